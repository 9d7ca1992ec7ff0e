"""SQL over cold and hot rows of one tenant: `decision`, `event`, `outcome` and `reward`.

Days with an up-to-date file come from the file, all other rows from one PostgreSQL snapshot as that
tenant. DuckDB gets both as Arrow data and cannot open files, networks or other tenants' data.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import threading
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from steersman.db.archive import ledger
from steersman.db.archive.compaction import hot_rows
from steersman.db.archive.datasets import BY_NAME, schema
from steersman.db.archive.parquet_files import Writer, digest_of
from steersman.errors import DataError, InputError, StoreError
from steersman.errors.install_hint import extra
from steersman.platform.postgres.database import OF_SERVER, set_tenant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from steersman.db.archive.datasets import Dataset, Row
    from steersman.db.archive.destination import Destination
    from steersman.db.archive.ledger import ErasureRecord, Export
    from steersman.platform.postgres.database import Database

_FAR = date(9000, 1, 1)
_OUTCOME = (
    "CREATE VIEW outcome AS SELECT decision, episode, o.key AS name, o.value AS value, "
    'id AS event, "at", received_at '
    "FROM (SELECT *, unnest(map_entries(outcomes)) AS o FROM event)"
)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Rows of one dataset in local files."""

    dataset: Dataset
    cold: tuple[Path, ...]
    hot: Path
    overlap: bool
    erased: ErasureRecord


async def query(
    database: Database,
    destination: Destination,
    tenant: UUID,
    sql: str,
    *,
    memory_mb: int = 1024,
    timeout_s: float = 300.0,
) -> Any:
    """Return the result of one SELECT over all rows of a tenant.

    Args:
        sql: one SELECT in DuckDB's dialect over the views ``decision``, ``event``,
            ``outcome`` and ``reward``. They have the columns of the tables without the
            tenant; times are timestamps in UTC. Quote the column ``"at"``.
        memory_mb: memory limit of DuckDB in MB, 64 or more.
        timeout_s: timeout of the SELECT in seconds, above 0, without reading the rows.

    Raises:
        InputError: not exactly one SELECT, or DuckDB rejects it or cannot finish it.
        DataError: an extra is not installed, or a file of the cold store is missing or
            damaged.
        StoreError: the database does not answer.
    """
    extra("pyarrow", "data")
    _check(sql)
    connection = await database.connect("app")
    try:
        # Valid files are not removed while this connection holds the shared lock.
        await connection.execute(f"SELECT pg_advisory_lock_shared({ledger.READING})", str(tenant))
        with tempfile.TemporaryDirectory(prefix="steersman-query-") as folder:
            loaded = await _load(connection, destination, tenant, _named(sql), Path(folder))
            return await asyncio.to_thread(_run, loaded, sql, memory_mb, timeout_s, folder)
    except FileNotFoundError as error:
        message = (
            f"a file of the cold store is missing: {error.filename or error}; restore it from a "
        )
        raise DataError(
            message + "backup, or use the destination that it was written to"
        ) from error
    except OF_SERVER as error:
        message = f"cannot read the rows: {error}; check the server and try again"
        raise StoreError(message) from error
    finally:
        await connection.close()


def _check(sql: str) -> None:
    """Raise an error unless the SQL is one SELECT."""
    duckdb = extra("duckdb", "data")
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        message = f"invalid DuckDB SQL: {error}"
        if 'near "' in message and " at" in f" {sql}":
            message += '; quote the column "at"'
        raise InputError(message) from None
    kinds = [statement.type.name for statement in statements]
    if kinds != ["SELECT"]:
        message = f"the query is {', '.join(kinds) or 'empty'}; allowed is one SELECT statement"
        raise InputError(message)


def _named(sql: str) -> list[Dataset]:
    """Return the datasets that a query may use; extra ones only cost time."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    if "outcome" in words:
        words.add("event")
    return [dataset for name, dataset in BY_NAME.items() if name in words]


async def _load(
    connection: Any,
    destination: Destination,
    tenant: UUID,
    datasets: Sequence[Dataset],
    folder: Path,
) -> list[_Loaded]:
    # One snapshot for valid files, hot rows and erasures.
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await set_tenant(connection, tenant)
        return [
            await _load_one(connection, destination, tenant, dataset, folder)
            for dataset in datasets
        ]


async def _load_one(
    connection: Any, destination: Destination, tenant: UUID, dataset: Dataset, folder: Path
) -> _Loaded:
    exports = await ledger.exports(connection, tenant, dataset)
    sources = await ledger.sources(connection, dataset, exports.keys(), None, _FAR)
    stale = [day for day, source in sources.items() if not _fresh(exports.get(day), source)]
    cold = [
        await asyncio.to_thread(_fetched, destination, export, folder)
        for export in exports.values()
        if export.rows
    ]
    writer = Writer(folder / f"hot-{dataset.name}.parquet", dataset)
    await writer.write(_hot(connection, dataset, stale))
    await asyncio.to_thread(writer.close)
    return _Loaded(
        dataset,
        tuple(cold),
        folder / f"hot-{dataset.name}.parquet",
        overlap=any(day in exports for day in stale),
        erased=await ledger.erasures(connection),
    )


def _fetched(destination: Destination, export: Export, folder: Path) -> Path:
    """Return a verified local copy of a day's file."""
    path = destination.fetch(export.path, folder)
    if digest_of(path) != export.sha256:
        raise DataError(
            f"{export.path} is damaged: its hash differs; restore it from a backup, or, "
            "while its rows are in the database, remove it and compact again"
        )
    return path


def _fresh(export: Export | None, source: ledger.Source) -> bool:
    return export is not None and export.source == str(source)


async def _hot(connection: Any, dataset: Dataset, days: Sequence[date]) -> AsyncIterator[Row]:
    for day in days:
        async for row in hot_rows(connection, dataset, day):
            yield row


def _run(loaded: Sequence[_Loaded], sql: str, memory_mb: int, timeout_s: float, folder: str) -> Any:
    duckdb = extra("duckdb", "data")
    settings = {
        "enable_external_access": "false",
        "memory_limit": f"{max(64, memory_mb)}MB",
        "temp_directory": f"{folder}/spilled",
    }
    with duckdb.connect(":memory:", config=settings) as connection:
        for each in loaded:
            _register(connection, each)
        if any(each.dataset.name == "event" for each in loaded):
            connection.execute(_OUTCOME)
        # Otherwise a query could read variables of this function by name.
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET lock_configuration = true")
        timer = threading.Timer(timeout_s, connection.interrupt)
        timer.start()
        try:
            return connection.sql(sql).to_arrow_table()
        except duckdb.InterruptException:
            message = f"the query exceeded the timeout of {timeout_s:g} s; narrow it or allow more"
            raise InputError(message) from None
        except duckdb.Error as error:
            message = f"the query failed: {error}"
            if isinstance(error, duckdb.CatalogException):
                message += f"; the tables are {', '.join(BY_NAME)} and outcome"
            raise InputError(message) from None
        finally:
            timer.cancel()


def _register(connection: Any, loaded: _Loaded) -> None:
    """Create the view of one dataset from valid cold rows and hot rows.

    Its source tables have random names, because files can contain erased rows.
    """
    arrow_dataset = extra("pyarrow.dataset", "data")
    name, columns = loaded.dataset.name, schema(loaded.dataset)
    own = f"{name}_{token_hex(16)}"
    cold = [str(path) for path in loaded.cold]
    for part, paths in (("cold", cold), ("hot", [str(loaded.hot)])):
        rows = (
            arrow_dataset.dataset(paths, schema=columns, format="parquet")
            if paths
            else columns.empty_table()
        )
        connection.register(f"{part}_{own}", rows)
    conditions = _still_holds(connection, loaded, own) if loaded.overlap else "true"
    connection.execute(
        f"CREATE VIEW {name} AS SELECT * REPLACE ({_times(loaded.dataset)}) "  # noqa: S608 (ours)
        f"FROM (FROM hot_{own} UNION ALL FROM cold_{own} AS c WHERE {conditions})"
    )


def _times(dataset: Dataset) -> str:
    """Return the conversion of times to plain timestamps in UTC.

    Without an extension that must be downloaded, DuckDB shows times in the local zone and cannot
    compute with them.
    """
    times = [column.name for column in dataset.columns if column.type == "time"]
    return ", ".join(f'make_timestamp(epoch_us("{name}")) AS "{name}"' for name in times)


def _still_holds(connection: Any, loaded: _Loaded, own: str) -> str:
    """Return the condition for cold rows that are neither hot nor erased."""
    pa = extra("pyarrow", "data")
    for what, values in (
        ("decision", loaded.erased.decisions),
        ("episode", loaded.erased.episodes),
    ):
        table = pa.table({what: pa.array(sorted(values), pa.string())})
        connection.register(f"erased_{what}_{own}", table)
    key = loaded.dataset.columns[: loaded.dataset.key]
    same = " AND ".join(f"h.{column.name} = c.{column.name}" for column in key)
    gone = [f"EXISTS (SELECT 1 FROM hot_{own} AS h WHERE {same})"]  # noqa: S608 (likewise)
    gone.append(
        f"EXISTS (SELECT 1 FROM erased_decision_{own} AS e "  # noqa: S608 (likewise)
        f"WHERE e.decision = c.{loaded.dataset.decision})"
    )
    if loaded.dataset.name == "event":
        whole = f"EXISTS (SELECT 1 FROM erased_episode_{own} AS e WHERE e.episode = c.episode)"  # noqa: S608 (likewise)
        gone.append(f"(c.decision IS NULL AND {whole})")
    return " AND ".join(f"NOT {condition}" for condition in gone)
