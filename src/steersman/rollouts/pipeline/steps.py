"""Pipeline execution, step by step, for the decision points of a shipped system.

Each step can run alone: it reads its inputs from the store, or computes them from the log again
with the same result. So a candidate is published only if its gates passed just before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from steersman.db.decision_queries import log_counts
from steersman.db.points import find_declared
from steersman.errors import RolloutError, SteersmanError, StoreError
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.pipeline import release_steps as shipping
from steersman.rollouts.pipeline.candidate_declaration import (
    candidate_of,
    check_points,
    document_of,
)
from steersman.rollouts.pipeline.reports import STEPS, Gate, Step, StepReport
from steersman.rollouts.pipeline.trial import gates_of, try_candidate
from steersman.rollouts.plan import RolloutPlan, plan_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.db.points import PointRow
    from steersman.db.rollouts import RolloutRow
    from steersman.db.verdicts import VerdictRow
    from steersman.points.systems import System
    from steersman.rollouts.pipeline.config import LoadedConfig
    from steersman.rollouts.pipeline.reports import Status, Workshop
    from steersman.rollouts.pipeline.trial import Trial
    from steersman.spec.point import DecisionPoint


_ENDED_BADLY = {"rolled_back", "aborted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a pipeline run.

    Attributes:
        step: the only step to run; None: all, in order.
        only: decision points; empty: all.
        dry_run: run the first three steps, and report what the others would do.
        wait_s: longest time that a rollout is followed, in seconds, >= 0.
        tell: receives each report.
        say: receives progress lines for people.
    """

    step: Step | None = None
    only: Sequence[str] = ()
    dry_run: bool = False
    wait_s: float = 60.0
    tell: Callable[[StepReport], None] = lambda _report: None
    say: Callable[[str], None] = lambda _line: None


async def run_pipeline(
    workshop: Workshop, system: System, loaded: LoadedConfig, asked: RunOptions
) -> list[StepReport]:
    """Run the steps of a pipeline.

    If a step is refused, the later steps of its decision point do not run. Other points continue.

    Raises:
        SpecError: the configuration does not fit the declarations; nothing ran.
        StoreError: a decision point is not declared; nothing ran.
    """
    check_points(loaded, system)
    names = [name for name in system.points if not asked.only or name in asked.only]
    rows = await declared_points(workshop, system, names)
    candidates = {name: candidate_of(loaded, system, row.spec) for name, row in rows.items()}
    steps = STEPS if asked.step is None else (asked.step,)
    if asked.step is None and not loaded.config.deployment.goes_on:
        steps = tuple(step for step in steps if step != "promote")
    reports = []
    for name, row in rows.items():
        run = _PointRun(workshop, loaded, asked, row, candidates[name])
        for step in steps:
            report = await run.take(step)
            asked.tell(report)
            reports.append(report)
            if not report.goes_on and not (step == "monitor" and report.status == "waits"):
                break
    return reports


async def declared_points(
    workshop: Workshop, system: System, names: Sequence[str]
) -> dict[str, PointRow]:
    """Return decision points of a system by name.

    Raises:
        StoreError: a point is not declared.
        SpecError: a declaration is invalid.
    """
    connection = await workshop.database.connect("app")
    try:
        async with as_tenant(connection, workshop.tenant.id):
            found = {
                name: await find_declared(connection, (workshop.tenant.id, system.skill, name))
                for name in names
            }
    finally:
        await connection.close()
    known = {name: row for name, row in found.items() if row is not None}
    absent = [name for name in names if name not in known]
    if absent:
        tenant, file = workshop.tenant.name, f"configs/{system.name}/{absent[0]}.yaml"
        message = f"not declared by tenant {tenant}: {system.skill}/{', '.join(absent)}; "
        raise StoreError(message + f"declare it with `steersman tenant declare {tenant} {file}`")
    return known


class _PointRun:
    """Run of one decision point."""

    def __init__(
        self,
        workshop: Workshop,
        loaded: LoadedConfig,
        asked: RunOptions,
        row: PointRow,
        candidate: DecisionPoint | None,
    ) -> None:
        self._workshop = workshop
        self._config = loaded.config
        self._asked = asked
        self._row = row
        self._candidate = candidate
        self._document = None if candidate is None else document_of(candidate)
        self._trial: Trial | None = None

    async def take(self, step: Step) -> StepReport:
        """Run a step; return an error as its report."""
        taken = {
            "dataset": self._dataset,
            "train": self._train,
            "evaluate": self._evaluate,
            "package": self._package,
            "canary": self._canary,
            "monitor": self._monitor,
            "promote": self._promote,
        }
        try:
            return await taken[step]()
        except StoreError:
            raise  # the other steps need the store too
        except SteersmanError as error:
            return StepReport(self._row.point, step, "refused", str(error))

    async def _dataset(self) -> StepReport:
        asked = self._config.dataset
        connection = await self._workshop.database.connect("app")
        try:
            async with as_tenant(connection, self._row.tenant):
                now = shipping.moment(self._workshop.clock())
                since = now - timedelta(days=asked.lookback_days)
                point = self._row.tenant, self._row.skill, self._row.point
                found = await log_counts(connection, point, since, now)
        finally:
            await connection.close()
        gate = Gate("min_decisions", found.usable, asked.minimum, "least", "usable decisions")
        said = f"{found.usable:,} of {found.decisions:,} decisions in {asked.lookback_days:g} days "
        said += "have an exact propensity and a final reward"
        if not gate.passes:
            said += f"; at least {asked.minimum:,} needed (dataset.min_decisions)"
        return StepReport(
            self._row.point,
            "dataset",
            "done" if gate.passes else "refused",
            said,
            found._asdict(),
            (gate,),
        )

    async def _train(self) -> StepReport:
        trained = (await self._tried()).trained
        samples = "" if trained.samples is None else f" from {trained.samples:,} rewards"
        said = f"{trained.version} ({_CHANGES[trained.change]}){samples} of {trained.line}"
        if trained.lost:
            said += f"; {trained.lost:,} updates do not fit its declaration"
        return StepReport(self._row.point, "train", "done", said, trained.to_json())

    async def _evaluate(self) -> StepReport:
        found = (await self._tried()).judgement
        gates = gates_of(self._config.evaluation, self._row.spec.gates, found)
        failed = [gate.name for gate in gates if not gate.passes]
        said = "no estimate"
        if found.value is not None:
            said = f"value {found.value:.4f} ({found.low:.4f} to {found.high:.4f})"
        if found.difference is not None:
            said += f", {found.difference:+.4f} ({found.difference_low:+.4f} to "
            said += f"{found.difference_high:+.4f}) against {found.against}"
        said += f", on {found.decisions:,} held-out decisions"
        if found.reasons:
            said += f": {'; '.join(found.reasons)}"
        if failed:
            said += f"; refused by {', '.join(failed)}"
        passed = not failed and not found.reasons
        status: Status = "done" if passed else "refused"
        return StepReport(self._row.point, "evaluate", status, said, found.to_json(), gates)

    async def _package(self) -> StepReport:
        judged = await self._evaluate()
        if not judged.goes_on:
            return replace(judged, step="package", said=f"not published: {judged.said}")
        trained = (await self._tried()).trained
        if self._asked.dry_run:
            said = f"would publish {trained.version}, signed"
            if self._workshop.signer is None:
                said += "; no signing keys yet: create them with `steersman snapshot keys init`"
            return self._would("package", said)
        if self._workshop.signer is None:
            message = f"tenant {self._workshop.tenant.name} has no signing keys; "
            message += "create them with `steersman snapshot keys init`"
            return StepReport(self._row.point, "package", "refused", message)
        evidence = {"pipeline": {"trained": trained.to_json(), **_signed(judged)}}
        made = await shipping.package(
            self._workshop, self._workshop.signer, self._row, self._document, evidence
        )
        said = f"published {made['version']}, {made['samples']:,} rewards, {made['size']:,} bytes"
        values = {name: made[name] for name in ("version", "sha256", "size", "samples", "url")}
        return StepReport(self._row.point, "package", "done", said, values)

    async def _canary(self) -> StepReport:
        asked = self._config.deployment
        plan = plan_of(
            self._row.spec, salt="", overrides=shipping.overrides_of(self._row.spec, asked)
        )
        if self._asked.dry_run:
            shown = ", ".join(shipping.stages_of(plan))
            return self._would("canary", f"would start a rollout: {shown}")
        candidate = await shipping.published(self._workshop.database, self._row, self._candidate)
        if candidate is None:
            said = "no version published under this declaration; run the step `package` first"
            return StepReport(self._row.point, "canary", "refused", said)
        row, new = await shipping.canary(self._workshop, self._row, candidate, asked)
        known = RolloutPlan.from_json(row.plan)
        said = f"{'started' if new else 'already active:'} {row.id} of {row.candidate}: "
        said += ", ".join(shipping.stages_of(known))
        return StepReport(self._row.point, "canary", "done", said, _rollout(row, None))

    async def _monitor(self) -> StepReport:
        if self._asked.dry_run:
            wait = f"for at most {self._asked.wait_s:g} s"
            return self._would("monitor", f"would follow the rollout {wait}")
        known = await shipping.latest_rollout(self._workshop.database, self._row)
        if known is None:
            return self._none("monitor")
        row, verdict = await shipping.follow(
            self._workshop, known, wait_s=self._asked.wait_s, tell=self._asked.say
        )
        said = f"{row.status}, {row.stage} {row.share:.0%}"
        if verdict is not None:
            said += f"; verdict {verdict.seq}: {verdict.verdict} ({'; '.join(verdict.reasons)})"
        elif row.is_under_way:
            said += "; no verdict yet"
        status: Status = "done" if row.status == "promoted" else "waits"
        if row.status in _ENDED_BADLY:
            status, said = "refused", f"{said}; {row.reason}"
        values = _rollout(row, verdict)
        return StepReport(self._row.point, "monitor", status, said, values)

    async def _promote(self) -> StepReport:
        if self._asked.dry_run:
            return self._would("promote", "would promote if the last verdict is promote")
        known = await shipping.latest_rollout(self._workshop.database, self._row)
        if known is None:
            return self._none("promote")
        row, verdict = await shipping.last_verdict(self._workshop.database, known)
        values = _rollout(row, verdict)
        if row.status == "promoted":
            return StepReport(
                self._row.point, "promote", "done", f"{row.candidate} is already live", values
            )
        if not row.is_under_way:
            said = f"{row.candidate} was {row.status.replace('_', ' ')}: {row.reason}"
            return StepReport(self._row.point, "promote", "refused", said, values)
        try:
            moved = await shipping.move_on(self._workshop, row)
        except RolloutError as error:
            lacks = shipping.missing(row, verdict, error)
            if not self._config.deployment.goes_on:
                lacks.append(
                    "deployment.promote_after_canary is false; "
                    "continue with `steersman rollout promote --force`"
                )
            said = f"not yet, at {row.stage} {row.share:.0%}: {'; '.join(lacks)}"
            values["missing"] = lacks
            return StepReport(self._row.point, "promote", "waits", said, values)
        said = f"{moved.candidate} moved to {moved.stage} {moved.share:.0%}"
        if moved.status == "promoted":
            said = f"{moved.candidate} is live"
        return StepReport(self._row.point, "promote", "done", said, _rollout(moved, verdict))

    async def _tried(self) -> Trial:
        if self._trial is None:
            now = shipping.moment(self._workshop.clock())
            since = now - timedelta(days=self._config.dataset.lookback_days)
            self._trial = await try_candidate(
                self._workshop.database,
                self._row,
                self._document,
                self._config.evaluation,
                since,
            )
        return self._trial

    def _would(self, step: Step, said: str) -> StepReport:
        return StepReport(self._row.point, step, "would", said)

    def _none(self, step: Step) -> StepReport:
        said = "no rollout of this decision point; run the step `canary` first"
        return StepReport(self._row.point, step, "refused", said)


_CHANGES = {
    "patch": "patch: more data",
    "minor": "minor: other parameters",
    "major": "major: another algorithm",
}


def _signed(judged: StepReport) -> dict[str, object]:
    return {"judged": judged.values, "gates": [gate.to_json() for gate in judged.gates]}


def _rollout(row: RolloutRow, verdict: VerdictRow | None) -> dict[str, object]:
    found: dict[str, object] = {
        "rollout": str(row.id),
        "candidate": row.candidate,
        "control": row.control,
        "rollout_status": row.status,
        "stage": row.stage,
        "share": row.share,
    }
    if verdict is not None:
        found["verdict"] = {
            "seq": verdict.seq,
            "at": verdict.at,
            "verdict": verdict.verdict,
            "stage": verdict.stage,
            "reasons": list(verdict.reasons),
        }
    return found
