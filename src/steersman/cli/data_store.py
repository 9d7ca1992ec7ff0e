"""Commands of ``steersman data`` on stored rows: compaction, queries, imports, backups."""

from __future__ import annotations

import asyncio
import csv
import logging
import sys
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from steersman.cli.local_store import close, open_store
from steersman.cli.options import administers, for_tenant, home_option, in_store, run, tenant_option
from steersman.cli.output import as_fields, show, show_rows
from steersman.cli.stack import can_compact
from steersman.cli.supervisor import stop_on_signals, stop_with_parent
from steersman.db.answer_cache import trim_all_answers
from steersman.db.backup import backup, restore
from steersman.db.migrate import make_partitions
from steersman.db.retention import keep
from steersman.db.secret import load_secret
from steersman.errors import DataError, SteersmanError, StoreError
from steersman.errors.install_hint import how_to_install
from steersman.platform.postgres.database import AWAY, Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from steersman.db.imports.load import ImportReport
    from steersman.db.tenants import Tenant

_log = logging.getLogger(__name__)
_ROOM_EVERY_S = 3_600.0
_ROOM_AGAIN_S = 30.0  # after an error; partitions are created two weeks ahead
cold_option = click.option(
    "--cold",
    envvar="STEERSMAN_COLD",
    show_envvar=True,
    help="Cold store: a directory or s3://bucket/prefix.  [default: HOME/cold]",
)


def cold_place(home: Path, cold: str | None) -> str:
    """Return the location of the cold store; None: a folder in the home."""
    if cold and "://" in cold:
        return cold
    return str(Path(cold).expanduser() if cold else home.absolute() / "cold")


@click.command("compact")
@cold_option
@click.option("--tenant", "tenant_name", help="Tenant name.  [default: all]")
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Last day (UTC) to write.  [default: yesterday]",
)
@administers
def compact_command(
    cold: str | None, tenant_name: str | None, until: datetime | None, home: Path, *, as_json: bool
) -> None:
    """Write finished days to Parquet files. Running it again changes nothing."""
    from steersman.db.archive.compaction import compact  # noqa: PLC0415
    from steersman.db.archive.destination import open_destination  # noqa: PLC0415 (an extra)

    last = None if until is None else until.date()
    destination = open_destination(cold_place(home, cold))

    async def one(database: Database, tenant: Tenant) -> Any:
        return await compact(database, destination, tenants=[tenant.id], until=last)

    if tenant_name is None:
        done = in_store(home, lambda database: compact(database, destination, until=last))
    else:
        done = for_tenant(home, tenant_name, one)
    files = [
        {"dataset": e.dataset, "day": e.day, "rows": e.rows, "path": e.path} for e in done.written
    ]
    if as_json:
        result = {"written": files, "unchanged": done.unchanged, "removed": done.removed}
        show(result, as_json=True)
        return
    show_rows(files, ("dataset", "day", "rows", "path"), as_json=False, none="no new files")
    click.echo(f"{done.unchanged} files unchanged, {done.removed} removed")


@click.command("query")
@click.argument("sql")
@tenant_option
@cold_option
@click.option("--csv", "as_csv", is_flag=True, help="Print the result as CSV.")
@administers
def query_command(
    sql: str, tenant_name: str, cold: str | None, home: Path, *, as_csv: bool, as_json: bool
) -> None:
    """Run one SELECT over all rows of a tenant, hot and cold.

    Tables: decision, event, outcome, reward. The SQL dialect is DuckDB's. For example:
    "SELECT action, count(*), avg(value) FROM decision JOIN reward ON decision = id GROUP BY action"
    """
    from steersman.db.archive.destination import open_destination  # noqa: PLC0415
    from steersman.db.archive.query import query  # noqa: PLC0415 (an extra)

    async def work(database: Database, tenant: Tenant) -> Any:
        return await query(database, open_destination(cold_place(home, cold)), tenant.id, sql)

    found = for_tenant(home, tenant_name, work)
    table = found.rename_columns(apart(found.column_names))
    rows: list[dict[str, Any]] = table.to_pylist()
    if as_csv:
        writer = csv.DictWriter(sys.stdout, table.column_names)
        writer.writeheader()
        writer.writerows(rows)
        return
    show_rows(rows, table.column_names, as_json=as_json, none="no rows")


def apart(names: Sequence[str]) -> list[str]:
    """Return distinct column names; a duplicate would hide another column's value.

    >>> apart(["value", "value", "value_1", "at"])
    ['value', 'value_2', 'value_1', 'at']
    """
    found: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in count(1))
        free = (one for one in numbered if one not in names and one not in found)
        found.append(name if name not in found else next(free))
    return found


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--mapping",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file that maps fields of the log; see docs/how-to/import-logs.md.",
)
@tenant_option
@administers
def import_command(
    file: Path, mapping: Path, tenant_name: str, home: Path, *, as_json: bool
) -> None:
    """Import a log from FILE: JSON lines, CSV or Parquet.

    Rows with propensities are used for off-policy evaluation. Rows without propensities only warm
    up the policy. Importing the same file again changes nothing. The command reports wrong rows
    with their line and exits with status 1; it stores all other rows.
    """
    from steersman.db.imports.load import import_log  # noqa: PLC0415 (for one command)

    async def work(database: Database, tenant: Tenant) -> ImportReport:
        with _counting() as tell:
            return await import_log(
                database, tenant.id, file, mapping, secret=load_secret(home), progress=tell
            )

    report = for_tenant(home, tenant_name, work)
    told = as_fields(report)
    told["refusals"] = [refusal._asdict() for refusal in report.refusals]
    if as_json:
        show(told, as_json=True)
    else:
        del told["refusals"]
        show(told, as_json=False)
        for refusal in report.refusals:
            click.echo(f"line {refusal.number}: {refusal.reason}", err=True)
    if report.refused:
        message = f"{report.refused} of {report.rows} rows are wrong; correct them and import again"
        raise DataError(message)


@contextmanager
def _counting() -> Iterator[Callable[[ImportReport], None]]:
    """Show the progress of an import at a terminal."""
    console = Console(stderr=True)
    with console.status("importing") as status:
        yield lambda report: status.update(f"importing: {report.rows:,} rows read")


@click.command("backup")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@administers
def backup_command(file: Path, home: Path, *, as_json: bool) -> None:
    """Back up all tenants to FILE without blocking reads or writes.

    The backup does not contain the secret that hashes API keys. Store HOME/secret separately.
    """
    done = in_store(home, lambda database: backup(database, file))
    show(as_fields(done), as_json=as_json)


@click.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Replace existing tenants and their rows.")
@administers
def restore_command(file: Path, home: Path, *, replace: bool, as_json: bool) -> None:
    """Restore a backup from FILE. Stop the service and the learner first."""
    newer = in_store(home, lambda database: restore(database, file, replace=replace), make=True)
    show({"restored": str(file), "migrations_applied": newer}, as_json=as_json)


@click.command("retain")
@click.option("--days", required=True, type=click.IntRange(1, 36_500), help="Days of rows to keep.")
@click.option(
    "--idempotency-days",
    default=30,
    show_default=True,
    type=click.IntRange(1, 36_500),
    help="Days to remember idempotency keys; event ids are kept at least as long.",
)
@cold_option
@administers
def retain_command(
    days: int, idempotency_days: int, cold: str | None, home: Path, *, as_json: bool
) -> None:
    """Drop decisions and events older than DAYS days that the cold store holds.

    The command reads the cold files first. If a file is missing or damaged, its rows stay in the
    database.
    """
    from steersman.db.archive.destination import open_destination  # noqa: PLC0415 (for one command)

    destination = open_destination(cold_place(home, cold))
    done = in_store(
        home,
        lambda database: keep(
            database, days=days, destination=destination, idempotency_days=idempotency_days
        ),
    )
    show(as_fields(done), as_json=as_json)


@click.command("keep")
@home_option
@cold_option
@click.option(
    "--at", default="02:30", show_default=True, help="Time of day (UTC) of the compaction."
)
@click.option("--supervised", is_flag=True, hidden=True)
def keep_command(home: Path, cold: str | None, at: str, *, supervised: bool) -> None:
    """Create partitions, remove old cached answers and compact daily, until stopped."""
    from steersman.platform.telemetry.logs import configure_logging  # noqa: PLC0415 (for one command)

    configure_logging()
    database = open_store(home)
    if supervised:
        stop_with_parent()
    try:
        run(_keep(database, cold_place(home, cold), at))
    finally:
        close(database)


async def _keep(database: Database, cold: str, at: str) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    # Partitions do not depend on the cold store: without them rows are not stored by day.
    jobs = [asyncio.create_task(_make_room(database, stop))]
    if can_compact():
        from steersman.db.archive.compaction import run_daily  # noqa: PLC0415 (an extra)
        from steersman.db.archive.destination import open_destination  # noqa: PLC0415

        try:
            destination = open_destination(cold)
        except SteersmanError as error:
            _log.error("no compaction: %s", error)
        else:
            jobs.append(asyncio.create_task(run_daily(database, destination, at=at, stop=stop)))
    else:
        _log.warning("no compaction; it needs: %s", how_to_install("data"))
    await asyncio.gather(*jobs)


async def _make_room(database: Database, stop: asyncio.Event) -> None:
    while not stop.is_set():
        wait_s = _ROOM_EVERY_S
        try:
            made = await make_partitions(database)
            removed = await trim_all_answers(database)
        except (StoreError, *AWAY) as error:
            _log.warning(
                "cannot create partitions or remove old cached answers now, will retry: %s", error
            )
            wait_s = _ROOM_AGAIN_S
        else:
            if made or removed:
                _log.info("created %d partitions, removed %d cached answers", made, removed)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await stop.wait()
