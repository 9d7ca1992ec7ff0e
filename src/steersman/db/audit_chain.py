"""Verification of the tamper-evident audit log.

The database numbers and hashes each row together with the previous hash. This module recomputes the
hashes from the values (format: docs/reference/audit.md). The chain shows changed, removed or moved
rows. Truncation can only be detected against anchors: row numbers and hashes that were signed and
published.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC
from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

NO_HASH = bytes(32)
"""What the first row follows."""
_PAGE = 1000
_MOST = 100


class Anchor(NamedTuple):
    """Published position of the chain.

    Attributes:
        seq: row number, 1 or more.
        hash: hash of that row, 32 bytes.
    """

    seq: int
    hash: bytes


class ChainFault(NamedTuple):
    """Error in the chain.

    Attributes:
        seq: row number of the error.
        what: one sentence that explains it.
    """

    seq: int
    what: str


@dataclass(slots=True)
class ChainReport:
    """Result of a chain verification.

    Attributes:
        rows: number of rows.
        head: last row; None if there are none.
        anchors: number of compared anchors.
        broken: errors in order; at most 100.
    """

    rows: int = 0
    head: Anchor | None = None
    anchors: int = 0
    broken: list[ChainFault] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether all rows are unchanged, as far as the anchors reach."""
        return not self.broken


async def audit_head(connection: Any, tenant: UUID) -> Anchor | None:
    """Return the last row of a tenant's audit log, as an anchor to store elsewhere.

    Returns:
        Its number and hash; None without a row.
    """
    row = await connection.fetchrow(
        "SELECT seq, hash FROM audit WHERE tenant = $1 ORDER BY seq DESC LIMIT 1", tenant
    )
    return None if row is None else Anchor(*row)


async def verify_chain(
    connection: Any, tenant: UUID, anchors: Iterable[tuple[int, bytes]] = ()
) -> ChainReport:
    """Recompute the chain of a tenant's audit log and compare it with anchors.

    Raises:
        InputError: an anchor has a number below 1.
    """
    wanted: dict[int, set[bytes]] = {}
    for seq, known in anchors:
        if seq < 1:
            raise InputError(
                f"an anchor has row number {seq}; allowed are 1 and above; check its source"
            )
        wanted.setdefault(seq, set()).add(known)
    report = ChainReport(anchors=sum(map(len, wanted.values())))
    last = Anchor(0, NO_HASH)
    while rows := await connection.fetch(
        "SELECT tenant, seq, id, at, actor, action, subject, detail::text AS detail, prev_hash, "
        "hash FROM audit WHERE tenant = $1 AND seq > $2 ORDER BY seq LIMIT $3",
        *(tenant, last.seq, _PAGE),
    ):
        for row in rows:
            _compare(report, last, row)
            last = Anchor(row["seq"], row["hash"])
            _compare_anchors(report, last, wanted.pop(last.seq, set()))
        report.rows += len(rows)
    report.head = last if report.rows else None
    for seq in sorted(wanted):
        _note(report, seq, f"has an anchor but is missing; the chain ends at {last.seq}")
    return report


def entry_hash(entry: Mapping[str, Any]) -> bytes:
    """Return the hash of an audit row, 32 bytes.

    >>> from datetime import datetime
    >>> from uuid import UUID
    >>> entry_hash(
    ...     {
    ...         "tenant": UUID(int=1),
    ...         "seq": 1,
    ...         "id": UUID(int=2),
    ...         "at": datetime(2026, 1, 1, tzinfo=UTC),
    ...         "actor": "cli:ann",
    ...         "action": "key.create",
    ...         "subject": "web",
    ...         "detail": {"days": 0.5},
    ...         "prev_hash": NO_HASH,
    ...     }
    ... ).hex()[:16]
    '9b102271cb5f3485'
    """
    detail = entry["detail"]
    if isinstance(detail, str):
        detail = json.loads(detail, parse_float=Decimal)
    value = {
        "tenant": str(entry["tenant"]),
        "seq": entry["seq"],
        "id": str(entry["id"]),
        "at": f"{entry['at'].astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        "actor": entry["actor"],
        "action": entry["action"],
        "subject": entry["subject"],
        "detail": detail,
        "prev_hash": entry["prev_hash"].hex(),
    }
    return sha256(canonical_json(value).encode()).digest()


def canonical_json(value: object) -> str:
    r"""Return a JSON value as canonical text.

    Keys are sorted by code points. The output has no spaces, minimal escaping, and numbers as plain
    decimals without exponent or trailing zeros.

    Raises:
        InputError: the value is not JSON.

    >>> canonical_json({"b": [1.50, 1e22, None, True], "a": "é\n"})
    '{"a":"é\\n","b":[1.5,10000000000000000000000,null,true]}'
    """
    if isinstance(value, dict):
        entries = (f"{canonical_json(key)}:{canonical_json(value[key])}" for key in sorted(value))
        return "{" + ",".join(entries) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(canonical_json, value)) + "]"
    if value is None or isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int | float | Decimal):
        return _number(value)
    message = (
        f"{value!r:.80} is not a JSON value; allowed are objects, lists, texts, numbers, booleans"
    )
    raise InputError(message)


def _number(value: float | Decimal) -> str:
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not exact.is_finite():
        raise InputError(f"{value!r} is not a JSON number; leave it out")
    text = format(exact, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _compare(report: ChainReport, last: Anchor, row: Mapping[str, Any]) -> None:
    seq: int = row["seq"]
    if seq != last.seq + 1:
        _note(
            report,
            seq,
            f"follows row {last.seq}: {seq - last.seq - 1} rows are missing between them",
        )
    elif row["prev_hash"] != last.hash:
        _note(report, seq, f"does not match the hash of row {last.seq} before it")
    if entry_hash(row) != row["hash"]:
        _note(report, seq, "was changed: its hash differs")


def _compare_anchors(report: ChainReport, found: Anchor, known: set[bytes]) -> None:
    if known - {found.hash}:
        _note(report, found.seq, "differs from its anchor")


def _note(report: ChainReport, seq: int, what: str) -> None:
    if len(report.broken) < _MOST:
        report.broken.append(ChainFault(seq, f"row {seq} {what}"))
