"""Canary of the RAG tuner: the rollout splits units, hard gates are checked per batch.

A rollout promotes if every check passes. Its own checks compare the arms by units and keep the
error budget; `GateSource` adds the tuner's check: no broken hard gate in a number of consecutive
batches. `canary_plan` requires an interval above zero before the canary stage ends.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.db.rollout_decisions import reported_outcomes
from steersman.errors import InputError
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.error_budget import Counts
from steersman.rollouts.evidence import SourceEvidence
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.reward import GATED, Batch, breaches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from steersman.db.rollouts import RolloutRow
    from steersman_systems.rag_tuner.policy_config import PolicyConfig

_MOST_ROWS = 20_000
_LATENCY = "latency_ms"
_ERRORS = "error_rate"


def canary_plan(tuned: PolicyConfig) -> dict[str, Any]:
    """Return the overrides of the rollout plan for a tuned configuration.

    Returns:
        For ``Wanted(overrides=…)``. The candidate leaves the canary, and is promoted, under three
        conditions: the two-sided 95 % interval of the reward is above zero; the error rate is
        within the gate; no gated number is shown to be worse.

    >>> from steersman_systems.rag_tuner.policy_config import load_policy_config
    >>> plan = canary_plan(load_policy_config())
    >>> plan["alpha"], plan["canary_margin"], round(plan["error_budget"]["objective"], 6)
    (0.025, 0.0, 0.99)
    """
    gates = tuned.thresholds
    return {
        "alpha": 0.025,
        "canary_margin": 0.0,
        "objective": {"kind": "superior"},
        "error_budget": {"objective": 1.0 - gates.error_rate},
        "guardrails": [
            {"outcome": "faithfulness", "below": gates.faithfulness, "margin": 0.01},
            {"outcome": "relevancy", "below": gates.relevancy, "margin": 0.01},
            {"outcome": "latency_ms", "above": gates.p95_latency_ms, "margin": 0.01},
        ],
    }


class GateSource:
    """Rollout source that waits for a number of consecutive batches without a broken hard gate.

    It reads the candidate's decisions with closed windows, in batches counted from the first
    decision. Batch borders stay fixed as decisions arrive, so frequent looks cannot find a lucky
    cut; only a late or erased decision moves them.

    The rollout continues only if the last `batches` batches hold every gate. Each decision of a
    batch with a broken gate counts as an error, so the error budget can roll the candidate back.
    If only the error gate is broken, only the failed decisions count. A decision whose action was
    replaced is left out.

    Missing reports of a few decisions are ignored. If too few decisions report a gated number,
    its gate is unknown; it is broken only if no value of the missing reports could hold it.

    Args:
        tuned: Policy configuration with the gates.
        skill: Skill of the decision point.
        point: Name of the decision point; rollouts of other points are ignored.
        queries: Number of decisions per batch, 10 or more.
        batches: Number of consecutive batches that must hold the gates, 1 or more.
        coverage: Minimum share of a batch's decisions that report each gated number, in (0, 1].
            `batches` + 1 batches must fit into the 20,000 decisions that are read.

    Attributes:
        about: Skill and name of the point.

    Raises:
        InputError: A number is out of range.
    """

    name = "gates"
    tells_tenants_apart = True

    def __init__(
        self,
        tuned: PolicyConfig,
        skill: str,
        point: str,
        *,
        queries: int = 100,
        batches: int = 3,
        coverage: float = 0.9,
    ) -> None:
        if {type(queries), type(batches)} != {int} or queries < 10 or batches < 1:
            raise InputError(
                f"queries {queries!r}, batches {batches!r}; allowed: whole numbers, 10 or more, "
                "and 1 or more"
            )
        if queries * (batches + 1) > _MOST_ROWS:
            raise InputError(
                f"queries {queries!r}, batches {batches!r}; only the last {_MOST_ROWS:,} decisions "
                "are read, and so many batches and one more must fit into them: take fewer"
            )
        if not 0.0 < coverage <= 1.0:
            raise InputError(f"coverage is {coverage!r}; allowed: above 0, up to 1")
        self._gates, self._coverage = tuned.thresholds, coverage
        self.about = skill, point
        self._queries, self._batches = queries, batches

    async def read(
        self, connection: Any, row: RolloutRow, stretches: Sequence[float], now: datetime
    ) -> SourceEvidence:
        """Return whether the gates hold, and the decisions of batches that broke one.

        Args:
            stretches: lengths in seconds, above 0.
        """
        if (row.skill, row.point) != self.about or row.stage == "shadow":
            return SourceEvidence(self.name)
        async with as_tenant(connection, row.tenant):
            told = await reported_outcomes(connection, row, now, limit=_MOST_ROWS)
        return self.judged(told.decisions, stretches, now, before=told.older)

    def judged(
        self,
        told: Sequence[tuple[datetime, Mapping[str, float]]],
        stretches: Sequence[float],
        now: datetime,
        *,
        before: int = 0,
    ) -> SourceEvidence:
        """Return the reading of some decisions, in order.

        Args:
            told: Time and reported outcomes of each decision.
            stretches: lengths in seconds, above 0.
        """
        size = self._queries
        starts = range(-before % size, len(told) - size + 1, size)
        batches = [told[start : start + size] for start in reversed(starts)]
        lacking = [self._lacking(batch) for batch in batches]
        broken = [
            breaches(self._batch(batch, less), self._gates)
            for batch, less in zip(batches, lacking, strict=True)
        ]
        counts = tuple(self._count(batches, broken, length, now) for length in stretches)
        found = enumerate(zip(broken, lacking, strict=True))
        held = next((n for n, (gates, less) in found if gates or less), len(broken))
        if held >= self._batches:
            return SourceEvidence(self.name, candidate=counts)
        why = f"hard gates held in {held} of {self._batches} batches of {size} decisions"
        if held < len(broken) and broken[held]:
            why += f"; {', '.join(broken[held])} was broken in the one before"
        elif held < len(broken):
            least = f"{self._coverage:.0%}"
            why += f"; {', '.join(lacking[held])} of less than {least} is known in the one before"
        return SourceEvidence(self.name, alive=False, reason=why, candidate=counts)

    def _lacking(self, told: Sequence[tuple[datetime, Mapping[str, float]]]) -> tuple[str, ...]:
        """Return the gated numbers that too few decisions report."""
        known = Counter(name for _, one in told for name in one)
        least = self._coverage * len(told)
        return tuple(name for name in (*GATED, _LATENCY) if known[name] < least)

    def _batch(
        self, told: Sequence[tuple[datetime, Mapping[str, float]]], lacking: Sequence[str]
    ) -> Batch:
        """Return decisions as a batch for the gates; missing values get the best possible value."""
        outcomes = [one for _, one in told]
        other = [1.0 if name in lacking else np.nan for name in GATED]
        missing = list(zip(GATED, other, strict=True))
        quality = np.array([[one.get(name, it) for name, it in missing] for one in outcomes], float)
        known = [max(0.0, float(one[_LATENCY])) for one in outcomes if _LATENCY in one]
        # Missing latencies must not move the 95th percentile; with too few, the best case counts.
        usual = 0.0 if _LATENCY in lacking else float(np.quantile(known, 0.95))
        latency = np.array([max(0.0, float(one.get(_LATENCY, usual))) for one in outcomes])
        return Batch(
            configuration=Configuration(),
            queries=np.arange(len(told)),
            quality=np.clip(quality, 0.0, 1.0),
            latency_ms=latency,
            cost=np.zeros(len(told)),
            failed=np.array([_failed(one) for one in outcomes]),
            violations=np.array([float(one.get("penalty", 0.0)) > 0.0 for one in outcomes]),
        )

    def _count(
        self,
        batches: Sequence[Sequence[tuple[datetime, Mapping[str, float]]]],
        broken: Sequence[tuple[str, ...]],
        length: float,
        now: datetime,
    ) -> Counts:
        """Return the decisions of a stretch, and those in batches that broke a gate."""
        total = bad = 0
        for batch, gates in zip(batches, broken, strict=True):
            within = [one for at, one in batch if (now - at).total_seconds() <= length]
            total += len(within)
            if gates:
                alone = gates == (_ERRORS,)  # then it is known whose they are
                bad += sum(map(_failed, within)) if alone else len(within)
        return Counts(length, float(bad), float(total))


def _failed(told: Mapping[str, float]) -> bool:
    return float(told.get("error", 0.0)) > 0.0


class Gates:
    """The gates of several decision points as one source.

    Args:
        sources: one for each point.
    """

    name = GateSource.name
    tells_tenants_apart = True

    def __init__(self, sources: Sequence[GateSource]) -> None:
        self._sources = {one.about: one for one in sources}

    async def read(
        self, connection: Any, row: RolloutRow, stretches: Sequence[float], now: datetime
    ) -> SourceEvidence:
        """Return the reading of the gates of the rollout's point; empty without gates.

        Args:
            stretches: lengths in seconds, above 0.
        """
        source = self._sources.get((row.skill, row.point))
        if source is None:
            return SourceEvidence(self.name)
        return await source.read(connection, row, stretches, now)
