"""Learning, gates and budgets of a decision point."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from steersman.spec.base import Declared, Fraction, Positive


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
