"""How much a model of the parts of mixed actions takes, counted before it is made.

The policy that keeps it, `factored_ts`, refuses by the same counts. It stands on a floor above and
cannot be asked from here; ``tests/spec/test_mixed.py`` compares the two.
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
_WAVES = 4  # that a number on a scale has at the most


def too_much(actions: Mixed, policy: FactoredTSPolicy, dim: int) -> Iterator[Problem]:
    """Yield what of a policy is more than it can be made with, the first of features to work.

    Args:
        actions: whose parts it learns.
        policy: as it was declared.
        dim: length of the context.
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
            f"{features:,} features of the parts and their pairs",
            features,
            f"{_MOST_FEATURES} or fewer with factored_ts",
            "give fewer categorical values, or declare pairs: false",
        )
    elif weights > _MOST_WEIGHTS:
        yield Problem(
            ("context", "dim"),
            f"{features} features and {alone} that depend on {dim} of the context are "
            f"{weights:,} weights",
            dim,
            f"{_MOST_WEIGHTS:,} weights or fewer with factored_ts",
            "lower dim, give fewer categorical values, or declare contextual: false",
        )
    elif work > _MOST_WORK:
        yield Problem(
            ("policy", "draws"),
            f"{policy.draws:,} draws of {weights:,} weights take {work:,} multiplications after "
            "an update",
            policy.draws,
            f"{_MOST_WORK:,} multiplications or fewer",
            "declare fewer draws, fewer values, or pairs: false",
        )


def _work(sizes: Sequence[int], columns: Sequence[int], *, pairs: bool) -> int:
    """Return the multiplications of one draw where configurations are taken by their halves."""
    cut = min(range(len(sizes)), key=lambda cut: prod(sizes[:cut]) + prod(sizes[cut:]))
    left, right = prod(sizes[:cut]), prod(sizes[cut:])
    own, across = (sum(columns[:cut]), sum(columns[cut:])) if pairs else (0, 0)
    return left * across * (own + right) + left * right
