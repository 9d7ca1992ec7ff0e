"""Strategies by name, for commands and benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import InputError
from steersman_systems.rag_tuner.strategies.factored import Factored
from steersman_systems.rag_tuner.strategies.random import Random
from steersman_systems.rag_tuner.strategies.successive_halving import Halving
from steersman_systems.rag_tuner.strategies.tpe import Tpe

if TYPE_CHECKING:
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.strategies.base import Strategy

DEFAULT = "factored"
NAMES = (DEFAULT, "halving", "ppo", "random", "tpe")
_FREE = ("ppo", "tpe")


def build_strategy(name: str, tuned: PolicyConfig, *, queries: int, seed: int = 0) -> Strategy:
    """Return a new strategy by name.

    Args:
        queries: Number of queries for slices, ≥ 1.

    Raises:
        InputError: Unknown strategy, or the strategy needs configurations outside the space.
        DataError: A required extra is not installed.

    >>> from steersman_systems.rag_tuner.policy_config import load_policy_config
    >>> build_strategy("factored", load_policy_config(), queries=100).name
    'factored'
    """
    if tuned.space.only is not None and name in _FREE:
        raise InputError(
            f"{name} asks for any combination of parts, and only {len(tuned.space.all):,} of them "
            f"can be answered for; take {', '.join(one for one in NAMES if one not in _FREE)}"
        )
    if name == DEFAULT:
        return Factored(tuned, queries)
    if name == "halving":
        return Halving(tuned)
    if name == "ppo":
        # An extra, and slow to import; load it only if needed.
        from steersman_systems.rag_tuner.strategies.ppo_contextual import ContextualPpo  # noqa: PLC0415

        return ContextualPpo(tuned, seed=seed)
    if name == "random":
        return Random(tuned)
    if name == "tpe":
        return Tpe(tuned, seed)
    raise InputError(f"unknown strategy {name!r}; allowed: {', '.join(NAMES)}")
