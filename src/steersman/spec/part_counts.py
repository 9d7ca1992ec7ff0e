"""Size limits of a `factored_ts` model, checked in the declaration.

The policy has the same limits, but it is in a higher layer and cannot be imported here.
``tests/spec/test_mixed.py`` compares the two.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from steersman.spec.base import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from steersman.spec.actions import Mixed
    from steersman.spec.policy import FactoredTSPolicy

_MOST_FEATURES = 512
_MOST_WEIGHTS = 1_024
_MOST_WORK = 250_000_000
_WAVES = 4  # maximum per number with a scale


def too_much(actions: Mixed, policy: FactoredTSPolicy, dim: int) -> Iterator[Problem]:
    """Yield the first exceeded limit of features, weights or multiplications.

    `dim` is the length of the context.
    """
    parts = [actions.parts[name] for name in actions.order]
    columns = [
        min(_WAVES, part.count - 1) if hasattr(part, "scale") else part.count - 1 for part in parts
    ]
    alone = sum(columns)
    pairs = (alone**2 - sum(count**2 for count in columns)) // 2 if policy.pairs else 0
    features = 1 + alone + pairs
    weights = features + (dim * alone if policy.contextual else 0)
    work = _work([part.count for part in parts], columns, pairs=policy.pairs)
    work = (weights**2 + work) * policy.draws
    if features > _MOST_FEATURES:
        yield Problem(
            ("actions", "parts"),
            f"too many features of parts and pairs: {features:,}",
            features,
            f"{_MOST_FEATURES} or fewer with factored_ts",
            "declare fewer categorical values, or pairs: false",
        )
    elif weights > _MOST_WEIGHTS:
        yield Problem(
            ("context", "dim"),
            f"too many weights: {weights:,} ({features} features and {alone} times {dim} context "
            "numbers)",
            dim,
            f"{_MOST_WEIGHTS:,} weights or fewer with factored_ts",
            "lower dim, declare fewer categorical values, or contextual: false",
        )
    elif work > _MOST_WORK:
        yield Problem(
            ("policy", "draws"),
            f"too slow: {policy.draws:,} draws of {weights:,} weights take {work:,} "
            "multiplications after an update",
            policy.draws,
            f"{_MOST_WORK:,} multiplications or fewer",
            "declare fewer draws, fewer values, or pairs: false",
        )


def _work(sizes: Sequence[int], columns: Sequence[int], *, pairs: bool) -> int:
    """Return the multiplications of one draw when configurations are split into halves."""
    cut = min(range(len(sizes)), key=lambda cut: prod(sizes[:cut]) + prod(sizes[cut:]))
    left, right = prod(sizes[:cut]), prod(sizes[cut:])
    own, across = (sum(columns[:cut]), sum(columns[cut:])) if pairs else (0, 0)
    return left * across * (own + right) + left * right
