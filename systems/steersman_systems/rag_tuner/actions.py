"""Configurations as mixed actions: all parts chosen at once, or small moves of the live one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.training.ppo.action_parts import Part
from steersman_systems.rag_tuner.configuration import FUSED, Configuration
from steersman_systems.rag_tuner.lookahead import STEPS_K, STEPS_WEIGHT, on_grid, stepped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.configuration import Space

    Floats = NDArray[np.float64]

__all__ = ["STEPS_K", "STEPS_WEIGHT", "Choices", "Moves"]

_WEIGHT = "fusion_weight"


class Choices:
    """Actions that choose every part of a configuration.

    Args:
        space: Allowed configurations; parts with one value are left out.

    >>> from steersman_systems.rag_tuner.policy_config import load_policy_config
    >>> choices = Choices(load_policy_config().space)
    >>> [(part.name, part.size) for part in choices.parts][:3]
    [('variant', 3), ('k', 30), ('rerank', 2)]
    >>> str(choices.configuration((0, 2, 1, 5, 0)))
    'bm25 k=5 +rerank'
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        values: dict[str, Sequence[Any]] = {
            "variant": space.variants, "k": space.ks, "rerank": space.rerank,
            _WEIGHT: space.weights, "expansion": space.expansion, "prompt": space.prompts,
        }  # fmt: skip
        self._fixed = {name: of[0] for name, of in values.items() if len(of) == 1}
        self._values = {name: of for name, of in values.items() if len(of) > 1}
        self.parts = tuple(
            Part(name, len(of), ordered=name in {"k", _WEIGHT}) for name, of in self._values.items()
        )

    def configuration(self, values: Sequence[int]) -> Configuration:
        """Return the configuration of an action, in canonical form."""
        named = zip(self._values.items(), values, strict=True)
        chosen = {name: of[value] for (name, of), value in named}
        return Configuration.of({**self._fixed, **chosen}).canonical()

    def values(self, configuration: Configuration) -> tuple[int, ...]:
        """Return an action for a configuration."""
        wanted = self.space.check(configuration).parts()
        return tuple(
            min(range(len(of)), key=lambda place: _apart(of[place], wanted[name]))
            for name, of in self._values.items()
        )

    def propensity(self, configuration: Configuration, distributions: Sequence[Floats]) -> float:
        """Return the probability that a configuration is drawn.

        Returns:
            The product over the parts that the configuration reads. A weight that is not used
            does not change the configuration.
        """
        drawn = zip(distributions, self.values(configuration), strict=True)
        return self.product(configuration, [float(masses[value]) for masses, value in drawn])

    def product(self, configuration: Configuration, masses: Sequence[float]) -> float:
        """Return the product over the parts that a configuration reads."""
        fused = configuration.variant == FUSED
        named = zip(self.parts, masses, strict=True)
        return float(np.prod([mass for part, mass in named if fused or part.name != _WEIGHT]))


class Moves:
    """Actions that move the live configuration: Δk, Δ weight, other variant or prompt, toggles.

    Args:
        space: Allowed configurations; parts with one value cannot move.

    >>> from steersman_systems.rag_tuner.policy_config import load_policy_config
    >>> moves = Moves(load_policy_config().space)
    >>> [part.name for part in moves.parts]
    ['variant', 'k', 'rerank', 'fusion_weight', 'expansion']
    >>> str(moves.apply(Configuration("hybrid", k=10), (0, 10, 1, 4, 0)))
    'hybrid w=0.50 k=26 +rerank'
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        sizes = {
            "variant": _stay_or(space.variants),
            "k": len(STEPS_K) if len(space.ks) > 1 else 1,
            "rerank": len(space.rerank),
            _WEIGHT: len(STEPS_WEIGHT) if len(space.weights) > 1 else 1,
            "expansion": len(space.expansion),
            "prompt": _stay_or(space.prompts),
        }
        self.parts = tuple(
            Part(name, size, ordered=name in {"k", _WEIGHT})
            for name, size in sizes.items()
            if size > 1
        )

    def apply(self, running: Configuration, values: Sequence[int]) -> Configuration:
        """Return the configuration after a move, in canonical form, clipped to the bounds."""
        moved = {
            part.name: self._moved(part.name, getattr(running, part.name), value)
            for part, value in zip(self.parts, values, strict=True)
        }
        return on_grid(self.space, replace(running, **moved))

    def propensity(
        self, running: Configuration, to: Configuration, distributions: Sequence[Floats]
    ) -> float:
        """Return the probability that a draw moves from one configuration to another."""
        found = 1.0
        for part, masses in zip(self.parts, distributions, strict=True):
            if part.name == _WEIGHT and to.variant != FUSED:
                continue
            now, wanted = getattr(running, part.name), getattr(to, part.name)
            leads = [self._moved(part.name, now, one) == wanted for one in range(part.size)]
            found *= float(masses[leads].sum())
        return found

    def _moved(self, name: str, now: Any, value: int) -> Any:
        space = self.space
        if name == "k":
            return stepped(space, name, now, STEPS_K[value])
        if name == _WEIGHT:
            return stepped(space, name, now, STEPS_WEIGHT[value])
        if name in {"rerank", "expansion"}:
            return now != bool(value)
        named: tuple[str, ...] = space.variants if name == "variant" else space.prompts
        return named[value - 1] if value else now


def _stay_or(names: Sequence[str]) -> int:
    return 1 + len(names) if len(names) > 1 else 1


def _apart(one: Any, other: Any) -> float:
    return float(one != other) if isinstance(one, str) else abs(one - other)
