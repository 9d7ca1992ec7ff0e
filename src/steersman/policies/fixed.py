"""Policies without learning: a fixed action, and rules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.errors.format import brief
from steersman.policies import inputs
from steersman.policies.base import ChoicePolicy
from steersman.spec.expressions import compile_rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.policies.states import Sums

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


class UnlearningPolicy(ChoicePolicy):
    """Base class of policies without learning. It only counts updates."""

    action_kinds = frozenset({"choice", "mixed"})

    def _one(self, index: int, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        if features is not None:
            raise InputError(
                f"{type(self).__name__} does not use features of actions; omit features"
            )
        if mask is not None and not mask[index]:
            index = int(np.flatnonzero(mask)[0])
        distribution: Floats = np.zeros(len(self.actions))
        distribution[index] = 1.0
        return distribution.copy(), distribution

    def _learn(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        inputs.reward(reward)

    def _learn_batch(
        self,
        rows: Any,
        indexes: NDArray[np.intp],
        rewards: Any,
        weights: Floats,
        buckets: Sequence[int] | None,
    ) -> None:
        inputs.each(inputs.reward, rewards)

    def _revise(self, x: Any, index: int, change: float, weight: float, bucket: int | None) -> None:
        return

    def _withdraw(self, x: Any, index: int, reward: Any, weight: float, bucket: int | None) -> None:
        inputs.reward(reward)

    def _sums(self) -> Sums:
        return {}

    def _sum_shapes(self, meta: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        return {}

    def _load(self, meta: dict[str, Any], sums: Sums) -> None:
        return

    def _action_axes(self) -> dict[str, int]:
        return {}

    def remove_action(self, name: str) -> None:
        """Remove an action that this policy does not use."""
        if name in self._named():
            raise InputError(
                f"cannot remove {name!r}: this policy uses it; create a new policy without it"
            )
        super().remove_action(name)

    @abstractmethod
    def _named(self) -> set[str]:
        """Return the actions that this policy uses."""


class Fixed(UnlearningPolicy):
    """Fixed policy: always one action, or the first eligible action if that one is not eligible.

    It is the baseline for learned policies, and the control of a rollout.

    Args:
        actions: K different names.
        action: action to choose.
        floor: total probability in [0, 1) that is spread evenly over the eligible actions.

    Raises:
        ActionError: ``action`` is not among ``actions``.

    >>> Fixed(["small", "large"], "large", floor=0.1).distribution(None)
    array([0.05, 0.95])
    """

    algorithm = "fixed"
    reads = "nothing"

    def __init__(self, actions: Sequence[str], action: str, *, floor: float = 0.0) -> None:
        super().__init__(actions, floor=floor)
        self.action = self.actions[self.index(action)]

    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        return self._one(self.index(self.action), mask, features)

    def _config(self) -> dict[str, Any]:
        return {"action": self.action}

    def _named(self) -> set[str]:
        return {self.action}


class Rules(UnlearningPolicy):
    """Rules policy: the action of the first rule whose condition holds.

    The policy skips rules whose action is not eligible. If no rule is left, it chooses the first
    eligible action. Conditions are expressions over context fields (comparisons, and, or, not, in,
    arithmetic, literals). They are compiled once, without ``eval``.

    Args:
        actions: K different names.
        rules: pairs (condition, action), or mappings with ``when`` and ``action``. The last may
            have the condition ``"True"``, or be a mapping with only ``otherwise``. If no rule
            holds, the last rule's action is chosen.
        floor: total probability in [0, 1) that is spread evenly over the eligible actions.

    Raises:
        SpecError: invalid condition.
        ActionError: a rule has an unknown action.

    >>> route = Rules(["micro", "deep"], [("confidence < 0.2", "deep"), ("True", "micro")])
    >>> route.distribution({"confidence": 0.1})
    array([0., 1.])
    """

    algorithm = "rules"
    reads = "context"

    def __init__(
        self,
        actions: Sequence[str],
        rules: Sequence[tuple[str, str] | Mapping[str, str]],
        *,
        floor: float = 0.0,
    ) -> None:
        super().__init__(actions, floor=floor)
        if not rules or not isinstance(rules, Sequence):
            raise InputError(
                f"rules must be a list of one or more, at least ('True', action); got "
                f"{brief(rules)}"
            )
        self.rules = tuple(_pair(rule) for rule in rules)
        self._compiled = [(compile_rule(when), self.index(action)) for when, action in self.rules]

    def _score(self, x: Any, mask: Mask | None, features: Any) -> tuple[Floats, Floats]:
        if not isinstance(x, Mapping):
            raise InputError(
                f"the context must be a mapping of names to values; got {type(x).__name__}"
            )
        try:
            for holds, index in self._compiled:
                if (mask is None or mask[index]) and holds(x):
                    return self._one(index, mask, features)
        except TypeError:
            for name in x:
                if not isinstance(name, str):
                    raise InputError(
                        f"the context has the name {brief(name)}; names must be text"
                    ) from None
            raise
        return self._one(self._compiled[-1][1], mask, features)

    def _reindex(self, actions: tuple[str, ...], order: list[int]) -> None:
        super()._reindex(actions, order)
        self._compiled = [(compile_rule(when), self.index(action)) for when, action in self.rules]

    def _config(self) -> dict[str, Any]:
        return {"rules": [list(rule) for rule in self.rules]}

    def _named(self) -> set[str]:
        return {action for _, action in self.rules}


def _pair(rule: Any) -> tuple[str, str]:
    if isinstance(rule, (tuple, list)):
        if len(rule) == 2:
            return str(rule[0]), rule[1]
    elif not isinstance(rule, Mapping):
        pass
    elif set(rule) == {"otherwise"}:
        return "True", rule["otherwise"]
    elif set(rule) == {"when", "action"}:
        return rule["when"], rule["action"]
    got = brief(rule)
    raise InputError(f"a rule is (condition, action), {{when, action}} or {{otherwise}}; got {got}")
