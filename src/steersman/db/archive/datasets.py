"""Cold store datasets: columns and SQL of decisions, events and rewards.

A day is a UTC day: of the decision id for decisions and rewards, of ``received_at`` for events.
Erased decisions are left out with their events and rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from steersman.errors.install_hint import extra

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Row = tuple[Any, ...]
_ID_DAY = (
    "(to_timestamp(('x0000' || left(replace({0}::text, '-', ''), 12))::bit(64)::bigint / 1000.0)"
    " AT TIME ZONE 'UTC')::date"
)


class Column(NamedTuple):
    """Column of a dataset.

    Attributes:
        name: column name in PostgreSQL.
        type: short name of its Arrow type (see `schema`).
        sql: expression that reads it.
    """

    name: str
    type: str
    sql: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """Exported table.

    Attributes:
        name: name of the table and of the view over hot and cold rows.
        columns: columns in order; the tenant is only in the path.
        key: number of leading key columns; files are sorted by them.
        decision: column of the decision that may be erased.
        day: SQL of a row's day.
        ordering: SQL of the row order, equal to the order of Python tuples.
        fingerprint: SQL hash of a row's key.
    """

    name: str
    columns: tuple[Column, ...]
    key: int
    decision: str
    day: str
    ordering: str
    fingerprint: str

    def key_of(self, row: Row) -> Row:
        """Return the key of a row."""
        return row[: self.key]

    def within(self, first: date | None, last: date) -> str:
        """Return the SQL condition for the days from ``first`` to ``last``, inclusive."""
        column, bound = _bounded(self)
        above = f"{column} >= {bound(first)} AND " if first else ""
        return f"{above}{column} < {bound(last + timedelta(days=1))}"

    def rows_sql(self, day: date) -> str:
        """Return SQL for all rows of a day that were not erased, in order."""
        columns = ", ".join(column.sql for column in self.columns)
        return (
            f"SELECT {columns} FROM {self.name} AS r "  # noqa: S608 (constants of this file)
            f"WHERE {self.within(day, day)} AND {self._kept()} ORDER BY {self.ordering}"
        )

    def sources_sql(self, first: date | None, last: date) -> str:
        """Return SQL for day, row count and fingerprint of each day."""
        return (
            f"SELECT {self.day} AS day, count(*) AS rows, "  # noqa: S608 (likewise)
            f"bit_xor({self.fingerprint}) AS mark "
            f"FROM {self.name} AS r WHERE {self.within(first, last)} AND {self._kept()} GROUP BY 1"
        )

    def delete_sql(self, day: date) -> str:
        """Return SQL that deletes a day's rows and returns their count and fingerprint.

        As in `sources_sql`, erased rows are not counted.
        """
        return (
            f"WITH gone AS (DELETE FROM {self.name} AS r WHERE {self.within(day, day)} "  # noqa: S608 (likewise)
            f"RETURNING r.*) SELECT count(*), bit_xor({self.fingerprint}) "
            f"FROM gone AS r WHERE {self._kept()}"
        )

    def _kept(self) -> str:
        same = f"x.decision = r.{self.decision}"
        if self.name == "event":
            same += " OR (r.decision IS NULL AND x.episode = r.episode)"
        return f"NOT EXISTS (SELECT FROM erasure AS x WHERE {same})"


def _bounded(dataset: Dataset) -> tuple[str, Callable[[date], str]]:
    if dataset.name == "event":
        return "r.received_at", lambda day: f"'{day.isoformat()}T00:00:00Z'::timestamptz"
    return f"r.{dataset.decision}", lambda day: f"'{first_id(day)}'::uuid"


def first_id(day: date) -> UUID:
    """Return the smallest UUIDv7 of a UTC day; SQL has the same function.

    Args:
        day: UTC day, from 1970 on.
    """
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return UUID(int=int(midnight.timestamp() * 1000) << 80)


def _columns(text: str, **sql: str) -> tuple[Column, ...]:
    """Return columns from ``name:type`` words; ``sql`` overrides the expression."""
    wrap = {"uuid": "r.{0}::text", "json": "r.{0}::text", "hex": "encode(r.{0}, 'hex')"}
    columns = []
    for word in text.split():
        name, _, kind = word.partition(":")
        expression = sql.get(name) or wrap.get(kind, "r.{0}").format(name)
        columns.append(Column(name, kind or "string", expression))
    return tuple(columns)


DECISION = Dataset(
    name="decision",
    columns=_columns(
        "id:uuid skill point episode parent:uuid unit rollout stage arm snapshot update_seq:int64 "
        "spec_hash:hex feature_hash:hex context:json eligible:texts distribution:floats action "
        "p:double p_kind x:floats key features:floats u:double degraded:bool weight:float "
        "idempotency_key body_hash:hex traceparent at:time window_ends:time links:json steps:json"
    ),
    key=1,
    decision="id",
    day=_ID_DAY.format("r.id"),
    ordering="r.id",
    fingerprint="uuid_hash_extended(r.id, 0)",
)
EVENT = Dataset(
    name="event",
    columns=_columns(
        "id decision:uuid episode type schema_version:int16 at:time received_at:time "
        "outcomes:numbers action_taken body:json body_hash:hex traceparent"
    ),
    key=1,
    decision="decision",
    day="(r.received_at AT TIME ZONE 'UTC')::date",
    ordering='r.id COLLATE "C"',
    fingerprint="hashtextextended(r.id, 0)",
)
REWARD = Dataset(
    name="reward",
    columns=_columns(
        "decision:uuid revision:int32 spec_hash:hex value:double status terms:json final:bool "
        "at:time"
    ),
    key=2,
    decision="decision",
    day=_ID_DAY.format("r.decision"),
    ordering="r.decision, r.revision",
    fingerprint="uuid_hash_extended(r.decision, r.revision)",
)
DATASETS = (DECISION, EVENT, REWARD)
BY_NAME: Mapping[str, Dataset] = {dataset.name: dataset for dataset in DATASETS}


def schema(dataset: Dataset) -> Any:
    """Return the Arrow schema of a dataset's files.

    Raises:
        DataError: pyarrow is not installed.
    """
    pa = extra("pyarrow", "data")
    types = {
        "string": pa.string(),
        "uuid": pa.string(),
        "json": pa.string(),
        "hex": pa.string(),
        "bool": pa.bool_(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "time": pa.timestamp("us", tz="UTC"),
        "texts": pa.list_(pa.string()),
        "floats": pa.list_(pa.float32()),
        "numbers": pa.map_(pa.string(), pa.float64()),
    }
    return pa.schema([pa.field(column.name, types[column.type]) for column in dataset.columns])
