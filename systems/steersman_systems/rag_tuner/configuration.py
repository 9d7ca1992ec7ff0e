"""Retrieval configuration, and the space of configurations."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

Variant = Literal["bm25", "dense", "hybrid", "rrf"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
FUSED = "hybrid"
"""The only variant that uses the fusion weight."""
_NEUTRAL = 0.5


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """Retrieval configuration.

    Args:
        variant: ``bm25``, ``dense``, ``hybrid`` (scores fused by weight) or ``rrf`` (ranks fused).
        k: Number of passages, 1 to 100.
        rerank: True to rerank the found passages with a slower model.
        fusion_weight: Weight of the dense scores, 0 to 1; only for ``hybrid``, elsewhere
            `canonical` sets it to .5.
        expansion: True to add linked passages.
        prompt: Id of the prompt template.

    Raises:
        InputError: A part is out of its range.

    >>> Configuration("bm25", k=5, fusion_weight=0.9).canonical().fusion_weight
    0.5
    """

    variant: Variant = "hybrid"
    k: int = 10
    rerank: bool = False
    fusion_weight: float = _NEUTRAL
    expansion: bool = False
    prompt: str = "plain"

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise InputError(f"variant is {self.variant!r}; allowed: {', '.join(VARIANTS)}")
        if type(self.k) is not int or not 1 <= self.k <= 100:
            raise InputError(f"k is {self.k!r}; allowed: a whole number, 1 to 100")
        for name in ("rerank", "expansion"):
            if type(getattr(self, name)) is not bool:
                raise InputError(f"{name} is {getattr(self, name)!r}; allowed: true or false")
        weight: object = self.fusion_weight  # JSON input may have any type
        prompt: object = self.prompt
        numeric = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not numeric or not 0.0 <= self.fusion_weight <= 1.0:
            raise InputError(f"fusion_weight is {self.fusion_weight!r}; allowed: 0 to 1")
        if not isinstance(prompt, str) or not prompt:
            message = (
                f"prompt is {prompt!r}; give the name of a prompt template, for example 'plain'"
            )
            raise InputError(message)

    def canonical(self) -> Configuration:
        """Return the equivalent configuration with an unused fusion weight set to .5."""
        if self.variant == FUSED or self.fusion_weight == _NEUTRAL:
            return self
        return replace(self, fusion_weight=_NEUTRAL)

    def parts(self) -> dict[str, Any]:
        """Return the parts by name, as a mixed action of a decision point."""
        return asdict(self)

    @classmethod
    def of(cls, parts: Mapping[str, Any]) -> Configuration:
        """Return the configuration of some parts; missing parts have their defaults.

        Raises:
            InputError: A part is unknown or out of its range.
        """
        unknown = set(parts) - set(cls.__slots__)
        if unknown:
            names = ", ".join(cls.__slots__)
            raise InputError(f"unknown part {', '.join(sorted(unknown))}; allowed: {names}")
        return cls(**parts)

    def __str__(self) -> str:
        weight = f" w={self.fusion_weight:.2f}" if self.variant == FUSED else ""
        added = (" +rerank" if self.rerank else "") + (" +expansion" if self.expansion else "")
        prompt = "" if self.prompt == "plain" else f" prompt={self.prompt}"
        return f"{self.variant}{weight} k={self.k}{added}{prompt}"


@dataclass(frozen=True)
class Space:
    """Space of the allowed configurations.

    Args:
        variants: Search methods, one or more.
        ks: Numbers of passages, ascending.
        rerank: Allowed values.
        weights: Grid of fusion weights, ascending.
        expansion: Allowed values.
        prompts: Ids of prompt templates.
        only: Allowed combinations, in canonical form; None: all.

    >>> space = Space(("bm25", "hybrid"), (3, 4), (False,), (0.0, 0.5, 1.0), (False,), ("plain",))
    >>> len(space.all)
    8
    """

    variants: tuple[Variant, ...]
    ks: tuple[int, ...]
    rerank: tuple[bool, ...]
    weights: tuple[float, ...]
    expansion: tuple[bool, ...]
    prompts: tuple[str, ...]
    only: frozenset[Configuration] | None = None

    @cached_property
    def all(self) -> tuple[Configuration, ...]:
        """Every configuration once, in canonical form and a fixed order."""
        every = dict.fromkeys(Configuration(*one).canonical() for one in self._combined())
        return tuple(one for one in every if self.only is None or one in self.only)

    @cached_property
    def index(self) -> dict[Configuration, int]:
        """Index of each configuration in `all`."""
        return {one: place for place, one in enumerate(self.all)}

    def draw(self, rng: np.random.Generator) -> Configuration:
        """Return a configuration with each part drawn independently and uniformly."""
        if self.only is not None:
            return self.all[int(rng.choice(len(self.all), p=self.draw_probabilities))]
        return Configuration(
            variant=self.variants[rng.integers(len(self.variants))],
            k=self.ks[rng.integers(len(self.ks))],
            rerank=self.rerank[rng.integers(len(self.rerank))],
            fusion_weight=self.weights[rng.integers(len(self.weights))],
            expansion=self.expansion[rng.integers(len(self.expansion))],
            prompt=self.prompts[rng.integers(len(self.prompts))],
        ).canonical()

    @cached_property
    def draw_probabilities(self) -> NDArray[np.float64]:
        """Probability of each configuration under `draw`, (all,)."""
        drawn = (Configuration(*one).canonical() for one in self._combined())
        places = [self.index[one] for one in drawn if one in self.index]
        counts = np.bincount(places, minlength=len(self.all))
        return np.asarray(counts / counts.sum(), np.float64)

    def _combined(self) -> Iterator[tuple[Variant, int, bool, float, bool, str]]:
        return product(
            self.variants, self.ks, self.rerank, self.weights, self.expansion, self.prompts
        )

    def check(self, configuration: Configuration) -> Configuration:
        """Return a configuration's canonical form.

        Raises:
            InputError: It is not in the space.
        """
        found = configuration.canonical()
        if found not in self.index:
            raise InputError(f"{found} is not among the {len(self.all):,} that may be chosen")
        return found
