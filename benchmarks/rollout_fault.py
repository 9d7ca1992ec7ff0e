"""Fault of a serving candidate: time until rollback and until the alert.

Everything is real: service process, controller, PostgreSQL, signed candidate, Prometheus with a
scrape every second, Alertmanager, webhook. The fault is a common one: the candidate requires a
context field that control does not need, and the application stops sending it.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp
import click

from benchmarks.monitoring_stack import DeliveredAlert, Monitors, missing, monitors, until
from benchmarks.report import Figure
from steersman.cli.running_service import Served, served
from steersman.db.points import points_of
from steersman.db.rollouts import find_rollout
from steersman.platform.postgres.database import as_tenant
from steersman.registry.bucket import open_place
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.rollouts.start import StartRequest, start
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from benchmarks.report import Options
    from steersman.db.points import PointRow
    from steersman.db.rollouts import RolloutRow
    from steersman.platform.postgres.database import Database

__all__ = ["CONTROL", "Canary", "Fault", "canary", "fault", "figures"]

CONTROL = """
format: 1
skill: faulty
decision: route
context: {dim: 8, fields: {intent: {type: category}}}
actions: {kind: choice, names: [fast, careful]}
policy: {algorithm: lin_ucb}
floor: 0.1
fallback: {rules: [], otherwise: fast}
budgets: {deadline_ms: 20000}
reward: {terms: {success: {weight: 1}}}
"""
CANDIDATE = CONTROL.replace("{type: category}", "{type: category, missing: refuse}")
# Windows of 30, 180 and 2,160 s, and a twelfth of each: for a canary of some hours.
BUDGET = {"period_s": 21_600.0, "objective": 0.99, "min_errors": 10}
STAGES = [{"name": "canary", "share": 0.1, "min_units": 100, "min_s": 3600.0}]
_ALERT = "SteersmanCandidateFailing"
_SERIES = 'group by (__name__) (last_over_time({__name__=~"steersman_.+"}[1m]))'
_RATE = 100.0
_LONG_WINDOW_S = BUDGET["period_s"] / 720
_LONGEST_S = 60.0
_PASSPHRASE = "only for this run"  # noqa: S105 (the keys it locks are gone after it)


@dataclass(frozen=True)
class Fault:
    """Effects of the fault; times in seconds from the first faulty request.

    Args:
        rolled_back_s: Time until the rollback was committed.
        served_s: Time until the last decision within the rollout.
        fired_s: Time until the alert fired in Prometheus.
        delivered_s: Time until the webhook received the alert.
        asked: Number of requests, before and with the fault.
        refused: Number of requests without a decision.
        degraded: Number of requests answered by the fallback.
        failed: Number of failed decisions of the candidate.
        reason: Reason of the rollback.
        pages: Names of the alerts for the person on call.
        series: Names of the scraped series.
    """

    rolled_back_s: float
    served_s: float
    fired_s: float
    delivered_s: float
    asked: int
    refused: int
    degraded: int
    failed: int
    reason: str
    pages: tuple[str, ...]
    series: tuple[str, ...]


def figures(options: Options) -> Iterator[Figure]:
    """Yield the figures: median, minimum and maximum of three runs.

    Args:
        options: ``quick`` means one run, with an incomplete window.
    """
    if missing():
        said = (
            f"{', '.join(missing())} not installed, so no fault is injected; run tools/prometheus"
        )
        click.echo(said, err=True)
        return
    found = []
    for _ in range(1 if options.quick else 3):
        with tempfile.TemporaryDirectory(prefix="fault-") as folder:
            found.append(fault(Path(folder), warm_s=5.0 if options.quick else _LONG_WINDOW_S + 5))
    yield _spread("fault injected → rolled back", [one.rolled_back_s for one in found], goal=10.0)
    yield _spread("fault injected → no decision in the rollout", [one.served_s for one in found])
    yield _spread("fault injected → alert at the webhook", [one.delivered_s for one in found])
    harmed = sum(one.refused + one.degraded for one in found)
    asked = sum(one.asked for one in found)
    yield Figure(
        "requests refused or degraded by the fault",
        float(harmed),
        unit=f"of {asked:,}",
        goal="0",
        holds=harmed == 0,
    )


def _spread(name: str, seconds: list[float], *, goal: float | None = None) -> Figure:
    worst = max(seconds)
    return Figure(
        name,
        median(seconds),
        min(seconds),
        worst,
        unit="s",
        goal=None if goal is None else f"< {goal:g}, the slowest too",
        holds=None if goal is None else worst < goal,
    )


def fault(folder: Path, *, warm_s: float, tenant: str = "faulty") -> Fault:
    """Run all programs, break the candidate, and return the effects.

    Args:
        folder: Folder for all files and sockets; its path must be short.
        warm_s: Seconds that the candidate serves before the fault. More data in the long window
            delays the alert.
        tenant: Name of a new tenant.

    Raises:
        DataError: Prometheus or Alertmanager is not installed, or something took too long.
    """
    with canary(folder, warm_s=warm_s, tenant=tenant) as serving:
        return _break(serving)


@dataclass(frozen=True)
class Canary:
    """Canary with a tenth of the traffic, and the programs around it.

    Args:
        running: Service.
        watching: Prometheus, Alertmanager and webhook.
        traffic: Application that sends requests.
        row: Rollout at its start.
    """

    running: Served
    watching: Monitors
    traffic: Traffic
    row: RolloutRow

    def wait_for_end(self) -> RolloutRow:
        """Wait for the end of the rollout and return it.

        Raises:
            DataError: Timeout.
        """
        ended = partial(_ended, self.running, self.row)
        row: RolloutRow = until(lambda: asyncio.run(ended()), "the end of it", _LONGEST_S)
        return row


@contextmanager
def canary(folder: Path, *, warm_s: float, tenant: str) -> Iterator[Canary]:
    """Run all programs within the context.

    Args:
        folder: Folder for all files and sockets; its path must be short.
        warm_s: Seconds that the candidate serves before the block begins.
        tenant: Name of a new tenant.

    Yields:
            The canary, without fault.

    Raises:
        DataError: Prometheus or Alertmanager is not installed, or something took too long.
    """
    with ExitStack() as exits:
        running = exits.enter_context(served(folder / "home", tenant, [CONTROL], processes=1))
        target = urlsplit(running.urls[0]).netloc
        watching = exits.enter_context(monitors(folder / "monitors", target))
        traffic = exits.enter_context(_traffic(running))
        row = asyncio.run(_start(running))
        exits.enter_context(_controlling(running, watching))
        watching.wait('steersman_arm_decisions_total{arm="candidate"} > 0', within_s=_LONGEST_S)
        # The controller has started, and both of its sources are ready.
        watching.wait("min(steersman_rollout_source_healthy) == 1", within_s=_LONGEST_S)
        time.sleep(warm_s)
        yield Canary(running, watching, traffic, row)


def _break(serving: Canary) -> Fault:
    watching, traffic = serving.watching, serving.traffic
    begun = traffic.break_it()
    end = serving.wait_for_end()
    told: DeliveredAlert = until(
        lambda: watching.webhook.find(_ALERT), f"the alert {_ALERT}", _LONGEST_S
    )
    watching.wait('ALERTS{alertname="SteersmanRolledBack", alertstate="firing"}')
    delivered = list(watching.webhook.delivered)
    first = f'min_over_time(timestamp(ALERTS{{alertname="{_ALERT}", alertstate="firing"}})[2m:1s])'
    failed = 'sum(steersman_arm_decisions_total{arm="candidate", result="failed"})'
    return Fault(
        rolled_back_s=_seconds(end) - begun,
        served_s=traffic.last_in_rollout - begun,
        fired_s=_number(watching, first) - begun,
        delivered_s=told.at - begun,
        asked=traffic.counts.total(),
        refused=traffic.counts["refused"],
        degraded=traffic.counts["degraded"],
        failed=int(_number(watching, failed)),
        reason=end.reason,
        pages=tuple(sorted({it.labels["alertname"] for it in delivered if it.path == "/page"})),
        series=tuple(sorted(one["metric"]["__name__"] for one in watching.query(_SERIES))),
    )


def _seconds(end: RolloutRow) -> float:
    return 0.0 if end.ended_at is None else end.ended_at.timestamp()


def _number(watching: Monitors, query: str) -> float:
    return float(watching.wait(query)[0]["value"][1])


class Traffic:
    """Application that sends requests from a separate thread and ``counts`` the answers.

    Args:
        running: Service.
    """

    def __init__(self, running: Served) -> None:
        self.counts: Counter[str] = Counter()
        self.last_in_rollout = 0.0
        self._running = running
        self._broken_at: float | None = None
        self._stop = threading.Event()
        self._rng = random.Random(7)

    def break_it(self) -> float:
        """Stop sending the field; return the time."""
        self._broken_at = time.time()
        return self._broken_at

    def stop(self) -> None:
        """Stop sending requests."""
        self._stop.set()

    async def run(self) -> None:
        """Send requests at a steady rate."""
        key = {"Authorization": f"Bearer {self._running.key}"}
        async with aiohttp.ClientSession(headers=key) as session, asyncio.TaskGroup() as group:
            due = time.monotonic()
            while not self._stop.is_set():
                group.create_task(self._ask(session))
                due = max(due + 1 / _RATE, time.monotonic() - 1.0)
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        context = {} if self._broken_at else {"intent": self._rng.choice(["refund", "order"])}
        body = {"skill": "faulty", "decision": "route", "context": context}
        body["unit"] = f"u{self._rng.randrange(1_000_000)}"
        asked = time.time()
        async with session.post(f"{self._running.urls[0]}/v1/decide", json=body) as answer:
            said = await answer.json()
        if answer.status != 200:
            self.counts["refused"] += 1
        elif said["degraded"]:
            self.counts["degraded"] += 1
        else:
            self.counts["answered"] += 1
            if said["stage"] == "canary":
                self.last_in_rollout = max(self.last_in_rollout, asked)


@contextmanager
def _traffic(running: Served) -> Iterator[Traffic]:
    traffic = Traffic(running)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(traffic.run())
        except BaseException as error:  # noqa: BLE001 (raised again below, where it is seen)
            failures.append(error)

    thread = threading.Thread(target=run, name="traffic")
    thread.start()
    try:
        yield traffic
    finally:
        traffic.stop()
        thread.join()
        if failures:
            raise failures[0]


@contextmanager
def _controlling(running: Served, watching: Monitors) -> Iterator[None]:
    asked = ["rollout", "run", "--home", str(running.home), "--prometheus", watching.url]
    with (watching.folder / "controller.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "steersman.cli", *asked], stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(_LONGEST_S)


async def _start(running: Served) -> RolloutRow:
    """Sign a candidate and start its rollout at a tenth of the traffic."""
    name, tenant = running.tenant.name, running.tenant.id
    publisher = Publisher(
        open_place(running.home / "registry" / name), Keys(running.home / "keys" / name)
    )
    trust = running.home / "trust" / name
    trust.mkdir(parents=True)
    (trust / "root.json").write_bytes(publisher.create(name, _PASSPHRASE))
    row = await _point(running.database, tenant)
    why = Reason(actor="benchmark", force="nothing is learned here")
    published = await publish(running.database, row, publisher, why, spec=CANDIDATE)
    wanted = StartRequest(
        skill=row.skill,
        point=row.point,
        candidate=published.version,
        overrides={"stages": STAGES, "error_budget": BUDGET},
        force="to see what a fault does",
    )
    return await start(running.database, tenant, wanted, actor="benchmark", clock=time.time)


async def _point(database: Database, tenant: UUID) -> PointRow:
    connection = await database.connect("app")
    try:
        async with as_tenant(connection, tenant):
            (row,) = await points_of(connection, tenant)
        return row
    finally:
        await connection.close()


async def _ended(running: Served, row: RolloutRow) -> RolloutRow | None:
    connection = await running.database.connect("app")
    try:
        async with as_tenant(connection, row.tenant):
            found = await find_rollout(connection, row.tenant, row.id)
    finally:
        await connection.close()
    return None if found is None or found.is_under_way else found
