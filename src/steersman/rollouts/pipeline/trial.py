"""Trial of a candidate: training and evaluation without storing anything.

A trial runs in a transaction that is always rolled back. Publishing repeats the training from the
same log, which gives the same bits. So the steps of a pipeline share no state.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from steersman.db.derived_snapshots import hold_snapshots, last_update
from steersman.db.held_out import hold_out
from steersman.db.logged_choices import LoggedChoice
from steersman.db.rewards import learned_of, spec_of
from steersman.db.snapshots import snapshots_of
from steersman.db.updates import base_state
from steersman.errors import SteersmanError
from steersman.learning.candidates import Origin, declared_as, holds_line, relearn
from steersman.learning.held_out import forget
from steersman.learning.replica import load
from steersman.ope import evaluate, suited_estimator
from steersman.ope.paired import off_policy_delta
from steersman.points.policy_factory import initial_policy, load_policy
from steersman.points.state_bytes import unpack_state
from steersman.registry.versions import Ingredients, change_between, next_version
from steersman.rollouts.candidate import Candidate
from steersman.rollouts.candidate_evidence import least_value, logged_data
from steersman.rollouts.pipeline.reports import Gate
from steersman.wire import id_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from steersman.db.points import PointRow
    from steersman.db.snapshots import SnapshotRow
    from steersman.db.work_queue import Point
    from steersman.platform.postgres.database import Database
    from steersman.policies import ChoicePolicy
    from steersman.rollouts.pipeline.config import Evaluation
    from steersman.spec.point import DecisionPoint, Gates


@dataclass(frozen=True, slots=True)
class TrainedCandidate:
    """A candidate as it would be published.

    Attributes:
        version: next version number.
        change: kind of change: patch, minor or major.
        algorithm: algorithm of its policy.
        line: live snapshot whose log it learned from.
        seq: last update of that log.
        samples: number of learned rewards; None: the policy does not count them.
        lost: updates that it could not learn under its own declaration.
    """

    version: str
    change: str
    algorithm: str
    line: str
    seq: int
    samples: int | None = None
    lost: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CandidateJudgement:
    """Off-policy evaluation of a candidate on held-out decisions.

    Attributes:
        decisions: number of held-out decisions; the candidate has learned none of them.
        against: name of the compared policy.
        value: estimated mean reward; None: no estimate.
        low: lower end of the interval of the value.
        high: upper end of the interval of the value.
        least: lower bound for the gate ``min_value``; see
            `steersman.rollouts.candidate_evidence.least_value`.
        standard_error: standard error of the value.
        effective_sample_size: effective sample size of the importance weights.
        max_weight_share: largest share of one weight in their sum.
        difference: value minus the value of the compared policy; None: no estimate.
        difference_low: lower end of the interval of the difference.
        difference_high: upper end of the interval of the difference.
        level: confidence level of both intervals.
        reasons: why the estimate is missing; empty otherwise.
    """

    decisions: int
    against: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    least: float | None = None
    standard_error: float | None = None
    effective_sample_size: float = 0.0
    max_weight_share: float = 1.0
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    level: float = 0.95
    reasons: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "reasons": list(self.reasons)}


@dataclass(frozen=True, slots=True)
class Trial:
    """Training and evaluation of a candidate."""

    trained: TrainedCandidate
    judgement: CandidateJudgement


def gates_of(asked: Evaluation, declared: Gates, found: CandidateJudgement) -> tuple[Gate, ...]:
    """Return the gates of a candidate; the configuration overrides the point's `declared` gates."""
    least = asked.min_effective_sample_size or declared.min_effective_sample_size
    share = asked.max_weight_share or declared.max_weight_share
    value = asked.min_value if asked.min_policy_value is None else asked.min_policy_value
    value = declared.min_value if value is None else value
    size = found.effective_sample_size
    gates = [
        Gate("min_effective_sample_size", size, least, "least", "effective sample size"),
        Gate("max_weight_share", found.max_weight_share, share, "most", "largest weight share"),
        Gate(
            "max_standard_error",
            found.standard_error,
            asked.max_standard_error,
            "most",
            "standard error of the value",
        ),
        Gate(
            "max_loss",
            None if found.difference_high is None else max(0.0, -found.difference_high),
            asked.max_loss,
            "most",
            f"shown loss against {found.against}",
        ),
    ]
    if value is not None:
        gates.insert(2, Gate("min_value", found.least, value, "least", "lower bound of the value"))
    return tuple(gates)


_ROWS_PER_FEATURE = 5


async def try_candidate(
    database: Database, row: PointRow, document: str | None, asked: Evaluation, since: datetime
) -> Trial:
    """Train and evaluate a candidate, and store nothing.

    `document` is the candidate's declaration; None: the live one. Decisions before `since` are not
    used in the evaluation. The same log gives the same result.

    Raises:
        InputError: the candidate cannot be compared with the live policy.
        SteersmanError: the log or a snapshot is damaged.
    """
    point = row.tenant, row.skill, row.point
    connection = await database.connect("worker")
    try:
        transaction = connection.transaction()
        await transaction.start()
        try:
            held = await hold_snapshots(connection, point)
            learned, trained = await _learned(connection, held, document)
            other = await _other(connection, held, relearned=document is not None)
            rows = [
                one
                for one in await hold_out(
                    connection,
                    point,
                    share=asked.held_out_share,
                    newest=asked.newest,
                    judged=learned.spec,
                )
                if id_time(one.id) >= since.timestamp()
            ]
            for state in (learned, other):
                await _forget(connection, point, state, rows)
        finally:
            await transaction.rollback()
    finally:
        await connection.close()
    logged = [LoggedChoice(*one) for one in rows]
    found = await asyncio.to_thread(_judged, learned, other, logged, asked.level)
    return Trial(trained, found)


def available(rows: Iterable[SnapshotRow]) -> list[SnapshotRow]:
    """Return the published versions that are not retracted, in order of publishing."""
    found = [one for one in rows if one.is_available]
    return sorted(found, key=lambda one: one.published_at or one.created_at)


def _relearned_from(
    rows: Iterable[SnapshotRow], spec_hash: bytes, line: str, seq: int
) -> SnapshotRow | None:
    """Return the version relearned from this line under this declaration, if it exists."""
    for one in reversed(available(rows)):
        origin = Origin.of((one.description or {}).get("evidence"))
        began = None if origin is None else (origin.line, origin.seq)
        if one.spec_hash == spec_hash and began == (line, seq):
            return one
    return None


@dataclass(slots=True, eq=False)
class _State:
    """A state to evaluate, without what it learned from held-out decisions."""

    name: str
    spec: DecisionPoint
    policy: ChoicePolicy
    snapshot: str
    seq: int
    trouble: str = ""


async def _learned(
    connection: Any, row: PointRow, document: str | None
) -> tuple[_State, TrainedCandidate]:
    """Return the candidate, and how it would be published."""
    point = row.tenant, row.skill, row.point
    origin: Origin | None = None
    if document is None:
        replica = await load(connection, row)
        made, policy, seq, last = row, replica.policy, replica.seq, replica.seq
    else:
        last = await last_update(connection, point)
        wanted = declared_as(row, document)
        new = await relearn(connection, row, wanted, document, last)
        made, policy, seq, origin = new.row, new.policy, new.seq, new.origin
    own = Ingredients.of(made.spec, made.snapshot)
    known = await snapshots_of(connection, point)
    if document is None:
        line = made.snapshot, seq
        held = (one for one in available(known) if holds_line(one))
        same = next((one for one in held if (one.line, one.line_seq) == line), None)
    else:
        same = _relearned_from(known, made.spec_hash, row.snapshot, last)
    version = same.version if same else next_version(own, own, [one.version for one in known])
    state = policy.state()
    trained = TrainedCandidate(
        version=version,
        change=change_between(Ingredients.of(row.spec), own),
        algorithm=made.spec.policy.algorithm,
        line=row.snapshot,
        seq=last,
        samples=seq if origin is None else origin.kept,
        lost=0 if origin is None else origin.lost,
    )
    return _State(version, made.spec, load_policy(state), made.snapshot, seq), trained


async def _other(connection: Any, row: PointRow, *, relearned: bool) -> _State:
    """Return the policy that a candidate is compared with.

    For a candidate with a new declaration this is the live policy. A candidate that only has more
    data is compared with the previous version, or with an untrained policy.
    """
    point = row.tenant, row.skill, row.point
    if relearned:
        replica = await load(connection, row)
        name = f"{row.snapshot} after {replica.seq} updates (live)"
        policy = load_policy(replica.policy.state())
        return _State(name, row.spec, policy, row.snapshot, replica.seq)
    earlier: list[SnapshotRow] = [
        one
        for one in available(await snapshots_of(connection, point))
        if one.is_stored and holds_line(one)
    ]
    if not earlier:
        name = f"{row.snapshot} (nothing learned)"
        return _State(name, row.spec, initial_policy(row.spec), row.snapshot, 0)
    version = earlier[-1].version
    spec = await spec_of(connection, earlier[-1].spec_hash)
    policy = load_policy(unpack_state(await base_state(connection, point, version)))
    return _State(version, spec, policy, version, 0)


async def _forget(connection: Any, point: Point, state: _State, rows: Sequence[Any]) -> None:
    ids = [one.id for one in rows]
    if not ids:
        return
    try:
        known = await learned_of(connection, point, state.snapshot, ids, until=state.seq)
        await asyncio.to_thread(forget, state.policy, known.values())
    except SteersmanError as error:
        state.trouble = f"cannot forget the held-out decisions: {error!s:.300}"


def _judged(
    new: _State, old: _State, logged: Sequence[LoggedChoice], level: float
) -> CandidateJudgement:
    found = CandidateJudgement(len(logged), old.name, level=level)
    troubles = [f"{one.name}: {one.trouble}" for one in (new, old) if one.trouble]
    if new.spec.explore == "none":
        troubles.append(
            "the point declares explore: none, so off-policy evaluation refuses; declare a floor"
        )
    if len(logged) < 2:
        troubles.append(f"{len(logged)} held-out decisions have a final reward; at least 2 needed")
    if troubles:
        return replace(found, reasons=tuple(troubles))
    try:
        data, other = (
            logged_data(Candidate.of(one.policy, one.spec), logged) for one in (new, old)
        )
        return _measured(found, data, other, level)
    except SteersmanError as error:
        return replace(found, reasons=(f"cannot evaluate the candidate: {error!s:.300}",))


def _measured(found: CandidateJudgement, data: Any, other: Any, level: float) -> CandidateJudgement:
    contexts = data.contexts
    if contexts is not None and len(data) < _ROWS_PER_FEATURE * contexts.shape[1]:
        contexts = None  # too few rows for a model of rewards
    data, other = (replace(one, contexts=contexts) for one in (data, other))
    estimator = suited_estimator(data)
    report = evaluate(data, estimators=(estimator,), level=level, adaptive=True)
    value = report[estimator]
    found = replace(
        found,
        value=value.value,
        low=value.low,
        high=value.high,
        least=least_value(value, len(data), float(report.ess), level=level, often=False),
        standard_error=value.standard_error,
        effective_sample_size=float(report.ess),
        max_weight_share=float(report.diagnostics.max_weight_share),
        reasons=tuple(report.reasons),
    )
    if report.reasons:
        return found
    delta = off_policy_delta(other, data, estimator=estimator, adaptive=True, level=level)
    return replace(
        found,
        difference=delta.delta,
        difference_low=delta.low,
        difference_high=delta.high,
        reasons=delta.reasons,
    )
