"""Log import: rows are converted and stored in atomic chunks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.db.decisions import log_decisions
from steersman.db.imports.mapping import load_mapping
from steersman.db.imports.readers import read_rows
from steersman.db.imports.rows import Converter
from steersman.db.packed_events import log_events
from steersman.db.points import find_declared, points_as_they_are
from steersman.errors import InputError, StoreError
from steersman.platform.postgres.database import OF_SERVER, as_tenant
from steersman.spec.actions import Choice
from steersman.spec.base import Problem, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from uuid import UUID

    from steersman.db.decisions import DecisionRow
    from steersman.db.imports.mapping import LoadedMapping, LogMapping
    from steersman.db.imports.readers import Raw
    from steersman.db.imports.rows import ConvertedRow
    from steersman.db.packed_events import EventRow
    from steersman.db.points import PointRow
    from steersman.platform.postgres.database import Database

_CHUNK = 500
_TOLD = 100
_OTHER = (
    "a row with the same id and time {}; ids must be unique: correct the row, or give the "
    "log another source in the mapping"
)


class Refusal(NamedTuple):
    """Row that was not imported.

    Attributes:
        number: line number, or row number in Parquet; from 1.
        reason: what is wrong and what to do.
    """

    number: int
    reason: str


@dataclass(slots=True)
class ImportReport:
    """Result of an import.

    Attributes:
        rows: rows read.
        stored: new decisions.
        events: new events with outcomes.
        already: existing, unchanged rows.
        skipped: rows excluded by the mapping's ``where``.
        erased: rows of erased decisions, which are not imported.
        refused: rejected rows.
        refusals: the first 100 rejected rows.
        unused: stored outcomes that no reward term uses.
        settled: existing decisions without outcomes whose default reward is computed now;
            earlier versions did not.
    """

    rows: int = 0
    stored: int = 0
    events: int = 0
    already: int = 0
    skipped: int = 0
    erased: int = 0
    refused: int = 0
    refusals: tuple[Refusal, ...] = ()
    unused: tuple[str, ...] = ()
    settled: int = 0

    def refuse(self, number: int, reason: str) -> None:
        """Count a rejected row and keep its reason, up to the limit."""
        self.refused += 1
        if len(self.refusals) < _TOLD:
            self.refusals = (*self.refusals, Refusal(number, reason))


async def import_log(
    database: Database,
    tenant: UUID,
    file: Path,
    mapping: Path,
    *,
    secret: bytes = b"",
    now: datetime | None = None,
    progress: Callable[[ImportReport], None] | None = None,
) -> ImportReport:
    """Import the decisions and outcomes of a log; a repeated import changes nothing.

    Rows with propensities are evidence (``p_kind`` imported); rows without only warm-start. Both
    are learned with the mapping's weight ``trust``. Invalid rows are reported and left out. Each
    500 rows are one transaction, so an interrupted import can be run again.

    Args:
        now: import time; default: system clock.

    Raises:
        SpecError: the mapping is invalid or does not fit the decision point.
        InputError: a scrubber is not installed, or the secret is missing.
        DataError: the file cannot be read, or an extra is not installed.
        StoreError: the database is unreachable; earlier chunks stay.
    """
    loaded = load_mapping(mapping)
    connection = await database.connect("app")
    report = ImportReport()
    try:
        point = await _point(connection, tenant, loaded)
        report.unused = tuple(sorted(loaded.mapping.outcomes.keys() - point.spec.reward.terms))
        converter = Converter(point, loaded.mapping, now or datetime.now(UTC), secret)
        raws = read_rows(file, loaded.mapping.rows)
        while chunk := list(islice(raws, _CHUNK)):
            await _store(connection, point, list(_converted(converter, chunk, report)), report)
            if progress is not None:
                progress(report)
    except (*OF_SERVER, ConnectionError) as error:
        message = f"the import stopped after {report.rows} rows: {error}; run it again to resume"
        raise StoreError(message) from error
    finally:
        await connection.close()
    return report


def _converted(
    converter: Converter, chunk: Sequence[Raw], report: ImportReport
) -> Iterator[ConvertedRow]:
    for raw in chunk:
        report.rows += 1
        if raw.problem is not None:
            report.refuse(raw.number, raw.problem)
        elif not converter.wanted(raw.row):
            report.skipped += 1
        else:
            try:
                yield converter.convert(raw.number, raw.row)
            except InputError as error:
                report.refuse(raw.number, str(error))


async def _store(
    connection: Any, point: PointRow, rows: Sequence[ConvertedRow], report: ImportReport
) -> None:
    """Write a chunk in one transaction: decisions, then events."""
    reward = point.spec.reward
    settles = reward.missing != "drop" or reward.scope == "episode"  # as in the service
    async with as_tenant(connection, point.tenant):
        # A concurrent import of this tenant has committed before, or waits.
        await connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"import/{point.tenant}"
        )
        chunk = await _Chunk.of(connection, rows)
        for row in rows:
            chunk.add(row, report)
        settled = await _settle(connection, point.tenant, chunk.again) if settles else 0
        # Both set the tenant of every slice themselves, within this transaction.
        settling = [decision.id for decision in chunk.decisions if settles and decision.weight]
        taken = await log_decisions(connection, chunk.decisions, settling=settling)
        events = [event for event in chunk.events if event.decision not in taken]
        refused = await log_events(connection, events)
    report.stored += len(chunk.decisions) - len(taken)
    for row in rows if taken else ():
        if row.decision.id in taken:  # a client sent it meanwhile as another decision
            report.refuse(row.number, _OTHER.format("has other content"))
    report.settled += settled
    report.events += len(events) - len(refused)
    for (_, event), verdict in refused.items():
        number = next(r.number for r in rows if r.event is not None and r.event.id == event)
        report.refuse(
            number, f"its outcomes were not stored: {verdict}; another event has the same id"
        )


async def _settle(connection: Any, tenant: UUID, ids: Sequence[UUID]) -> int:
    """Queue stored decisions that were never queued; return their number."""
    status: str = await connection.execute(
        "INSERT INTO work (tenant, skill, point, decision, due_at, traceparent) "
        "SELECT d.tenant, d.skill, d.point, d.id, d.window_ends, d.traceparent FROM decision AS d "
        "WHERE d.tenant = $1 AND d.id = ANY($2) AND d.weight > 0 AND NOT EXISTS ("
        "  SELECT FROM reward AS r WHERE r.tenant = d.tenant AND r.decision = d.id"
        ") AND NOT EXISTS ("
        "  SELECT FROM work AS w WHERE w.due_at = d.window_ends AND w.decision = d.id)",
        *(tenant, ids),
    )
    return int(status.rsplit(maxsplit=1)[-1])


class _Chunk:
    """New rows of a chunk.

    Args:
        decisions: hashes of existing decisions by id.
        events: hashes of existing events by id.
        erased: decisions that must not come back.
    """

    def __init__(
        self, decisions: dict[UUID, bytes | None], events: dict[str, bytes], erased: set[UUID]
    ) -> None:
        self._stored, self._told, self._erased = decisions, events, erased
        self.decisions: list[DecisionRow] = []
        self.events: list[EventRow] = []
        self.again: list[UUID] = []

    @classmethod
    async def of(cls, connection: Any, rows: Sequence[ConvertedRow]) -> _Chunk:
        ids = [row.decision.id for row in rows]
        events = [row.event.id for row in rows if row.event is not None]
        return cls(
            dict(
                await connection.fetch("SELECT id, body_hash FROM decision WHERE id = ANY($1)", ids)
            ),
            dict(
                await connection.fetch(
                    "SELECT id, body_hash FROM event WHERE decision = ANY($1) AND id = ANY($2)",
                    *(ids, events),
                )
            ),
            {
                row["decision"]
                for row in await connection.fetch(
                    "SELECT decision FROM erasure WHERE decision = ANY($1)", ids
                )
            },
        )

    def add(self, row: ConvertedRow, report: ImportReport) -> None:
        """Add the new parts of a row and count the rest."""
        decision, event = row.decision, row.event
        if decision.id in self._erased:
            report.erased += 1
            return
        if decision.id not in self._stored:
            self._stored[decision.id] = decision.body_hash
            self.decisions.append(decision)
        elif self._stored[decision.id] == decision.body_hash:
            report.already += 1
            self.again.append(decision.id)
        else:
            report.refuse(row.number, _OTHER.format("has other content"))
            return
        if event is not None and event.id not in self._told:
            self._told[event.id] = event.body_hash
            self.events.append(event)
        elif event is not None and self._told[event.id] != event.body_hash:
            report.refuse(row.number, _OTHER.format("has other outcomes"))


async def _point(connection: Any, tenant: UUID, loaded: LoadedMapping) -> PointRow:
    """Return the mapping's decision point, or report why it does not fit."""
    mapping = loaded.mapping
    async with as_tenant(connection, tenant):
        point = await find_declared(connection, (tenant, mapping.skill, mapping.decision))
        points, _ = await points_as_they_are(connection, tenant)
    if point is None:
        known = ", ".join(f"{row.skill}/{row.point}" for row in points) or "none"
        got = f"{mapping.skill}/{mapping.decision}"
        what = "decision point not declared for this tenant"
        problem = Problem(("decision",), what, got, known, "declare it first, or correct the name")
        loaded.refuse([problem])
        raise AssertionError
    loaded.refuse(_misfits(mapping, point))
    return point


def _misfits(mapping: LogMapping, point: PointRow) -> Iterator[Problem]:
    fields = list(point.spec.context.fields)
    for name in mapping.context:
        if name not in fields:
            allowed = ", ".join(fields) or "none"
            what = "not a context field of the decision point"
            yield Problem(("context", name), what, name, allowed, nearest(name, fields))
    actions = point.spec.actions
    if not isinstance(actions, Choice):
        what, advice = "its action kind is not choice", "import rows of another decision point"
        yield Problem(("decision",), what, actions.kind, "points with kind: choice", advice)
        return
    if actions.open and mapping.eligible is None:
        what, advice = (
            "an open choice needs the candidates of each row",
            "set the field that lists them",
        )
        yield Problem(("eligible",), what, None, "a field", advice)
    joint = point.spec.policy.reads == "action_features"
    if joint != (mapping.features is not None):
        what = (
            "the policy learns from features of the actions"
            if joint
            else "the policy uses no action features"
        )
        advice = "set their field" if joint else "remove it"
        yield Problem(("features",), what, mapping.features, "a field" if joint else "null", advice)
