"""A decision point: one named place where a skill chooses."""

from __future__ import annotations

import json
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from steersman.spec.actions import Actions  # noqa: TC001 (pydantic reads it)
from steersman.spec.base import Declared, FormatVersion, Identifier, Problem
from steersman.spec.context import Context
from steersman.spec.crosschecks import crosscheck
from steersman.spec.operation import Budgets, Gates, Learning
from steersman.spec.policy import Policy  # noqa: TC001 (pydantic reads it)
from steersman.spec.privacy import Privacy
from steersman.spec.reward import Reward  # noqa: TC001 (pydantic reads it)
from steersman.spec.rollout import Rollout
from steersman.spec.rules import RuleList  # noqa: TC001 (pydantic reads it)

if TYPE_CHECKING:
    from collections.abc import Iterator


class DecisionPoint(Declared):
    """One named place where a skill chooses, declared completely."""

    format: FormatVersion
    """Version of this format."""
    skill: Identifier
    """The application capability that chooses here."""
    decision: Identifier
    """Name of the decision point within its skill."""
    description: Annotated[str, Field(max_length=1000)] = ""
    """One line for people."""
    context: Context = Context()
    """What is known when a choice is due."""
    actions: Actions
    """What can be chosen."""
    policy: Policy
    """Who chooses, and with which parameters."""
    explore: Literal["floor", "none"] = "floor"
    """`floor`: every eligible action keeps some probability. `none`: off-policy evaluation
    refuses."""
    floor: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Total probability spread evenly over the eligible actions, 1e-6 to below 1; 0 with
    `explore: none` alone."""
    fallback: RuleList
    """Who answers when no policy or store can."""
    reward: Reward
    """What is to be got more of."""
    learning: Learning = Learning()
    """Whether the serving policy learns."""
    gates: Gates = Gates()
    """What evidence must show before a promotion."""
    rollout: Rollout = Rollout()
    """How a candidate comes to serve."""
    budgets: Budgets = Budgets()
    """What deciding may cost, and how long it may take."""
    privacy: Privacy = Privacy()
    """What is taken out of texts before anything is stored."""

    @cached_property
    def spec_hash(self) -> str:
        """SHA-256, as 64 hex digits, of what the declaration means.

        Comments, layout, the order of mapping keys and defaults written out do not change it.
        """
        # Whoever scrubs nothing means what was meant before there was anything to declare.
        without = {"rollout"} if self.privacy.scrub else {"rollout", "privacy"}
        meaning = json.dumps(
            self.model_dump(mode="json", exclude=without) | {"rollout": self.rollout.meaning()},
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=True,
        )
        return sha256(meaning.encode("ascii")).hexdigest()

    def _problems(self) -> Iterator[Problem]:
        yield from crosscheck({name: getattr(self, name) for name in type(self).model_fields})
