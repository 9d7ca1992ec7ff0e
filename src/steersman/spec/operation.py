"""How a decision point is run: learning, gates and budgets. Rollouts have a file of their own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from steersman.spec.base import Declared, Fraction, Positive


class Learning(Declared):
    """Whether the serving policy learns from what it serves."""

    mode: Literal["online", "frozen"] = "online"
    """`online`: every reward updates the policy. `frozen`: only a new snapshot changes it."""
    bucket_s: Annotated[float, Field(ge=1e-6, le=1e9)] = 86_400.0  # shorter ones have no number
    """Length of a time bucket in seconds: policies that forget do so once per bucket."""


class Gates(Declared):
    """What off-policy evidence must show before a candidate may be promoted."""

    min_effective_sample_size: Annotated[float, Field(ge=1, le=1e9)] = 100.0
    """Least effective sample size of the importance weights."""
    max_weight_share: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Greatest share of the sum that one importance weight may have."""
    min_value: Fraction | None = None
    """Least lower bound of the candidate's reward; null for none."""


class Budgets(Declared):
    """What a decision may take."""

    cost_usd_per_day: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """Most that a day should cost, in USD, for whoever reads it: nothing is stopped by it yet, so
    cap spending where it is spent; null for no limit."""
    deadline_ms: Positive = 50.0
    """Time after which the drawn action is served whether it is logged yet or not."""
