"""``policy.defaults.yaml``: bounds, gates, weights and penalties, checked."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PrivateAttr

from steersman.spec.base import Declared, FormatVersion, Fraction, Identifier, Problem, repeated
from steersman.spec.yaml_files import read_declared
from steersman_systems.configs import shipped
from steersman_systems.rag_tuner.configuration import Configuration, Space

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_OLD = {"A": "bm25", "B": "dense"}
_SWITCH = {"off": False, "on": True}

Weight = Annotated[float, Field(ge=0, le=100)]
Above = Annotated[float, Field(gt=0, le=1e9)]


def _named(value: Any) -> Any:
    return _OLD.get(value, value) if isinstance(value, str) else value


def _switch(value: Any) -> Any:
    return _SWITCH.get(value, value) if isinstance(value, str) else value


_Variant = Annotated[Literal["bm25", "dense", "hybrid", "rrf"], BeforeValidator(_named)]
_Switch = Annotated[bool, BeforeValidator(_switch)]
_Variants = Annotated[tuple[_Variant, ...], Field(strict=False, min_length=1)]
_Switches = Annotated[tuple[_Switch, ...], Field(strict=False, min_length=1, max_length=2)]
_Prompts = Annotated[tuple[Identifier, ...], Field(strict=False, min_length=1, max_length=32)]


class Counts(Declared):
    """Range of the number of passages."""

    min: Annotated[int, Field(ge=1, le=100)]
    """The fewest."""
    max: Annotated[int, Field(ge=1, le=100)]
    """The most."""

    def _problems(self) -> Iterator[Problem]:
        if self.max < self.min:
            yield Problem(("max",), "below min", self.max, f"{self.min} to 100", "raise max")


class Weights(Declared):
    """Range and step of the fusion weights."""

    min: Fraction
    """The least."""
    max: Fraction
    """The greatest."""
    points: Annotated[int, Field(ge=1, le=101)] = 21
    """How many values, both ends included."""

    def _problems(self) -> Iterator[Problem]:
        if self.max < self.min:
            yield Problem(("max",), "below min", self.max, f"{self.min} to 1", "raise max")


class Bounds(Declared):
    """Ranges of the numeric parts."""

    k: Counts
    """Passages."""
    fusion_weight: Weights
    """Of the dense scores."""


class Discrete(Declared):
    """Values of the other parts."""

    variant: _Variants
    """Ways to find passages; the first design's A and B are bm25 and dense."""
    rerank: _Switches
    """off, on, or both."""
    expansion: _Switches = (False,)
    """off, on, or both."""
    prompt: _Prompts = ("plain",)
    """Ids of prompt templates."""

    def _problems(self) -> Iterator[Problem]:
        for field in ("variant", "rerank", "expansion", "prompt"):
            for place, name in repeated(map(str, getattr(self, field))):
                yield Problem((field, place), "named twice", name, "each once", "remove it")


class Thresholds(Declared):
    """Hard gates: a configuration that breaks one must not serve."""

    faithfulness: Fraction = 0.75
    """The least mean."""
    relevancy: Fraction = 0.75
    """The least mean."""
    p95_latency_ms: Above = 500.0
    """The greatest 95th percentile."""
    latency_ref_ms: Above | None = None
    """The unit of latency in the reward; the threshold unless declared."""
    error_rate: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Below this share of the queries may fail."""
    cost_ref_usd: Above = 1.0
    """The unit of cost in the reward, for one query."""

    @property
    def latency_unit_ms(self) -> float:
        """Unit of latency in the reward, in milliseconds."""
        return self.latency_ref_ms or self.p95_latency_ms


class RewardWeights(Declared):
    """Weights of quality, latency, cost and penalties in the reward."""

    alpha: Weight = 0.5
    """Faithfulness."""
    beta: Weight = 0.5
    """Relevancy."""
    gamma: Weight = 0.2
    """Latency."""
    delta: Weight = 0.2
    """Cost."""
    penalty: Annotated[float, Field(ge=0, le=100, alias="lambda")] = 1.0
    """One unit of penalty."""


class Penalties(Declared):
    """Penalties, in units of penalty."""

    breach: Weight = 1.0
    """A hard gate that does not hold."""
    violation: Weight = 1.0
    """An answer with personal data or toxic words in it."""
    instability: Weight = 0.5
    """Quality that scatters more from batch to batch than the band, or answers that differ."""
    instability_band: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Standard deviation of the quality of a configuration's batches."""


class PolicyConfig(Declared):
    """Policy configuration."""

    bounds: Bounds
    """Of the numbers."""
    discrete: Discrete
    """Values of all else."""
    thresholds: Thresholds = Thresholds()
    """The hard gates."""
    reward_weights: RewardWeights = RewardWeights()
    """Of the reward."""
    penalties: Penalties = Penalties()
    """What trouble counts."""
    _only: frozenset[Configuration] | None = PrivateAttr(default=None)

    def among(self, configurations: Iterable[Configuration]) -> PolicyConfig:
        """Return the policy configuration with a smaller space."""
        found = self.model_copy()
        PolicyConfig._keep(found, frozenset(configurations))
        return found

    def _keep(self, only: frozenset[Configuration]) -> None:
        self._only = only

    @property
    def space(self) -> Space:
        """Space of the allowed configurations."""
        weight = self.bounds.fusion_weight
        grid = np.linspace(weight.min, weight.max, weight.points)
        declared = Space(
            variants=self.discrete.variant,
            ks=tuple(range(self.bounds.k.min, self.bounds.k.max + 1)),
            rerank=self.discrete.rerank,
            weights=tuple(dict.fromkeys(round(float(one), 6) for one in grid)),
            expansion=self.discrete.expansion,
            prompts=self.discrete.prompt,
            only=self._only,
        )
        return _one_of(declared)


@lru_cache(maxsize=16)
def _one_of(space: Space) -> Space:
    """Return the first of equal spaces, because it has already listed its configurations."""
    return space


class PolicyFile(Declared):
    """The file."""

    format: FormatVersion = 1
    policy: PolicyConfig


def load_policy_config(path: Path | None = None) -> PolicyConfig:
    """Return the policy configuration in a file.

    Args:
        path: UTF-8, at most 256 KiB; ``None`` for the shipped one.

    Returns:
        Bounds, gates, weights and penalties; missing values have their defaults.

    Raises:
        SpecError: the file cannot be read or is invalid; lists all problems, one per line:
            ``file:line: field: what; got VALUE; allowed RANGE; what to do``.

    >>> tuned = load_policy_config()
    >>> tuned.thresholds.p95_latency_ms, len(tuned.space.all)
    (500.0, 2760)
    """
    return read_declared(path or shipped("rl/policy.defaults.yaml"), PolicyFile)[0].policy
