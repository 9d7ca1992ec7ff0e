"""HTTP handlers that export or erase the data of a unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self
from uuid import UUID  # noqa: TC003 (field type)

import msgspec
from msgspec import Meta

from steersman.api.route import Route, handles
from steersman.db.erasure import ErasureResult, erase, export
from steersman.errors import InputError
from steersman.platform.http.messages import Answer
from steersman.platform.http.tenant_limiter import Apart
from steersman.wire import Refused

if TYPE_CHECKING:
    from steersman.api.service import Service
    from steersman.platform.breaker import Breaker
    from steersman.platform.http.messages import Request
    from steersman.platform.postgres.database import Database

_MOST_BYTES = 32 << 20
_LINES = ((b"content-type", b"application/x-ndjson"),)
_Unit = Annotated[str, Meta(min_length=1, max_length=200)]


class UnitRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Request for all data about a unit.

    Attributes:
        unit: unit name, as the application sent it with its decisions.
    """

    unit: _Unit


class EraseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Request to erase decisions. Give a unit or decision ids.

    Attributes:
        reason: reason for the audit log; it is kept permanently, so do not include personal data.
        unit: unit whose decisions are erased.
        decisions: decision ids to erase, for example those that only the cold store holds.
    """

    reason: Annotated[str, Meta(min_length=1, max_length=200)]
    unit: _Unit | None = None
    decisions: Annotated[list[UUID], Meta(min_length=1, max_length=1000)] | None = None


class LearnedFrom(msgspec.Struct, omit_defaults=True):
    """State that learned from erased decisions.

    Attributes:
        skill: skill of the decision point.
        decision: name of the decision point.
        version: version of a signed snapshot; absent: the live state.
    """

    skill: str
    decision: str
    version: str | None = None


class ErasedRows(msgspec.Struct):
    """Result of an erasure.

    Attributes:
        decisions: ids of the erased decisions.
        rows: number of deleted rows by table.
        learned: states to rebuild with ``steersman learn rebuild``.
        published: signed snapshots to retract after their replacements serve.
    """

    decisions: list[UUID]
    rows: dict[str, int]
    learned: list[LearnedFrom]
    published: list[LearnedFrom]


class Units:
    """Handlers of the routes for units; they cover the hot tables, not the cold store.

    Args:
        database: database of the rows.
        breaker: circuit breaker for the store.
    """

    def __init__(self, database: Database, breaker: Breaker) -> None:
        self._database = database
        self._breaker = breaker
        self._apart = Apart()

    @classmethod
    def open(cls, service: Service) -> Self:
        """Return the handlers of a service process."""
        return cls(service.pools.acting, service.breakers["units"])

    @handles(
        Route(
            "POST",
            "/v1/units/export",
            "Export all data about a unit in the hot store, one JSON object per line",
            str,
            scope="admin",
            sheds="read",
            body=UnitRequest,
            examples={"one": {"unit": "user-17"}},
            media="application/x-ndjson",
        )
    )
    async def exported(self, request: Request, asked: UnitRequest) -> Answer:
        """Return one JSON object per line, with table name and row.

        Raises:
            Refused: the export exceeds 32 MiB.
        """
        tenant = request.key.tenant
        async with self._apart.turn(tenant):
            lines = await self._breaker.call(lambda: self._lines(tenant, asked.unit))
        return Answer(200, lines, _LINES)

    @handles(
        Route(
            "POST",
            "/v1/units/erase",
            "Erase decisions with their events, rewards and keys permanently",
            ErasedRows,
            scope="admin",
            body=EraseRequest,
            examples={"one": {"unit": "user-17", "reason": "request 4711"}},
        )
    )
    async def erased(self, request: Request, asked: EraseRequest) -> ErasedRows:
        """Erase decisions; a repeated request changes nothing. An erasure is never shed.

        Raises:
            Refused: not exactly one of unit and decisions, or an invalid id.
        """
        try:
            async with self._apart.turn(request.key.tenant):
                done = await self._breaker.call(
                    lambda: erase(
                        self._database,
                        request.key.tenant,
                        reason=asked.reason,
                        actor=f"key {request.key.id}",
                        unit=asked.unit,
                        decisions=asked.decisions,
                    )
                )
        except InputError as error:
            raise Refused.of("invalid", str(error)) from None
        return _shown(done)

    async def _lines(self, tenant: UUID, unit: str) -> bytes:
        lines = bytearray()
        async for line in export(self._database, tenant, unit=unit):
            lines += line.encode() + b"\n"
            if len(lines) > _MOST_BYTES:
                message = (
                    f"this unit has more than {_MOST_BYTES >> 20} MiB of data; "
                    "`steersman tenant export` has no size limit"
                )
                raise Refused.of("invalid", message)
        return bytes(lines)


def _shown(done: ErasureResult) -> ErasedRows:
    return ErasedRows(
        list(done.decisions),
        done.rows,
        [LearnedFrom(skill, point) for skill, point in done.learned],
        [LearnedFrom(skill, point, version) for skill, point, version in done.published],
    )
