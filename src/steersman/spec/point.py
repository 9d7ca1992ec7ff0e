"""Declaration of a decision point: one named place where a skill chooses."""

from __future__ import annotations

import json
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from steersman.spec.actions import Actions  # noqa: TC001 (pydantic reads it)
from steersman.spec.base import Declared, FormatVersion, Fraction, Identifier, Positive, Problem
from steersman.spec.context import Context
from steersman.spec.crosschecks import crosscheck
from steersman.spec.policy import (
    Policy,  # noqa: TC001 (pydantic reads it)
    RuleList,  # noqa: TC001 (pydantic reads it)
)
from steersman.spec.privacy import Privacy
from steersman.spec.reward import Reward  # noqa: TC001 (pydantic reads it)
from steersman.spec.rollout import Rollout

if TYPE_CHECKING:
    from collections.abc import Iterator


class Learning(Declared):
    """Online learning of the live policy."""

    mode: Literal["online", "frozen"] = "online"
    """`online`: every reward updates the policy. `frozen`: only a new snapshot changes it."""
    bucket_s: Annotated[float, Field(ge=1e-6, le=1e9)] = (
        86_400.0  # shorter ones overflow the bucket number
    )
    """Length of a time bucket in seconds. Policies with `forget` below 1 decay once per bucket."""


class Gates(Declared):
    """Off-policy evaluation results that a candidate needs before promotion."""

    min_effective_sample_size: Annotated[float, Field(ge=1, le=1e9)] = 100.0
    """Minimum effective sample size of the importance weights."""
    max_weight_share: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Maximum share of one importance weight in the sum of weights."""
    min_value: Fraction | None = None
    """Minimum for the lower confidence bound of the candidate's reward. null: no minimum."""


class Budgets(Declared):
    """Cost and time limits of decisions."""

    cost_usd_per_day: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """Planned cost per day in USD. For information only: Steersman does not enforce it. null: no
    limit."""
    deadline_ms: Positive = 50.0
    """Time in milliseconds after which the action is returned even if it is not logged yet."""


class DecisionPoint(Declared):
    """Complete declaration of one named place where a skill chooses."""

    format: FormatVersion
    """Version of this format."""
    skill: Identifier
    """Name of the skill, an application capability."""
    decision: Identifier
    """Name of the decision point within its skill."""
    description: Annotated[str, Field(max_length=1000)] = ""
    """Short description for people."""
    context: Context = Context()
    """Context fields that each request sends."""
    actions: Actions
    """Actions that the policy can choose."""
    policy: Policy
    """Policy and its parameters."""
    explore: Literal["floor", "none"] = "floor"
    """`floor`: every eligible action keeps a minimum probability. `none`: no minimum, and
    off-policy evaluation refuses the log."""
    floor: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Total probability that is spread evenly over the eligible actions, 1e-6 to below 1. 0 is
    allowed only with `explore: none`."""
    fallback: RuleList
    """Rules that choose the action when the policy or the store is unavailable."""
    reward: Reward
    """Reward to maximise."""
    learning: Learning = Learning()
    """Online learning of the live policy."""
    gates: Gates = Gates()
    """Off-policy evaluation results required for a promotion."""
    rollout: Rollout = Rollout()
    """Stages and guardrails of a rollout."""
    budgets: Budgets = Budgets()
    """Cost and time limits of decisions."""
    privacy: Privacy = Privacy()
    """Personal data that is removed from texts before they are stored."""

    @cached_property
    def spec_hash(self) -> str:
        """SHA-256 hash of the declaration, as 64 hex digits.

        Comments, layout, key order and explicit defaults do not change it.
        """
        # Without scrubbing, the hash stays as it was before `privacy` existed.
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
