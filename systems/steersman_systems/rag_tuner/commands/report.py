"""Reports, estimates and exports of a run of `steersman tune run`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.cli.options import for_tenant
from steersman.errors import DataError
from steersman.platform.postgres.database import as_tenant
from steersman.platform.wheel_files import state_directory
from steersman_systems.rag_tuner.answerable import answerable
from steersman_systems.rag_tuner.commands.run import split_of
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.latencies import of_canary
from steersman_systems.rag_tuner.mlflow_export import export_run
from steersman_systems.rag_tuner.off_policy import estimated, holding
from steersman_systems.rag_tuner.page import facts, write_page
from steersman_systems.rag_tuner.pictures import episodes, frontier, latencies, shares, write_png
from steersman_systems.rag_tuner.policy_config import load_policy_config
from steersman_systems.rag_tuner.report import compile_report
from steersman_systems.rag_tuner.run_folder import RunFolder
from steersman_systems.reports.mlflow_runs import code_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from uuid import UUID

    from steersman.db.tenants import Tenant
    from steersman.platform.postgres.database import Database
    from steersman_systems.rag_tuner.latencies import Latencies
    from steersman_systems.rag_tuner.logged import World


def reported(
    folder: Path, recorded: World, out: Path, canary: Callable[[], Latencies] | None = None
) -> Mapping[str, Any]:
    """Write the report of a run to the folder `out`, and return its main figures.

    `canary` reads the latencies of a rollout; None: no rollout.

    Raises:
        DataError: the run is damaged, has no verdict, or used another recording.
    """
    run = RunFolder(folder)
    manifest, said, lines = run.manifest(), run.verdict(), run.episodes()
    of = manifest.get("recorded", {}).get("sha256")
    if of != recorded.sha256 or not {"seed", "held_out"} <= manifest.keys():
        raise DataError(
            f"{folder} was not tuned on this recording of {recorded.collection}: its SHA-256 is "
            f"{recorded.sha256[:12]}…, the run needs {str(of)[:12]}…; name the recording of the run"
        )
    tuned = load_policy_config(folder / "policy.yaml")
    split = split_of(
        *(recorded, manifest["seed"], manifest["held_out"], manifest.get("holdout")),
        by_time=bool(manifest.get("temporal")),
    )
    candidate, baseline = (Configuration.of(said[name]) for name in ("candidate", "baseline"))
    tuned = answerable(recorded, tuned, split, baseline).tuned
    report = compile_report(
        recorded, tuned, held_out=split.held_out, candidate=candidate, baseline=baseline,
        lines=lines, canary=None if canary is None else canary(),
    )  # fmt: skip
    write_page(out / "report.html", report)
    pictures = {
        "frontier": frontier(report.places, report.marked, "Quality, cost and latency"),
        "episodes": episodes(lines),
        "shares": shares(lines),
        "latencies": latencies(report.latencies, report.gate_ms),
    }
    if report.canary is not None:
        drawn = latencies(report.canary, report.gate_ms, own="canary", each="episode")
        pictures["canary"] = drawn
    for name, figure in pictures.items():
        write_png(figure, out / f"{name}.png")
    told = facts(report)
    kept = ("verdict", "says", "candidate", "baseline", "leakage", "latency", "canary")
    return {"page": str(out / "report.html"), **{name: told[name] for name in kept}}


def canary_of(home: Path, tenant_name: str, rollout: UUID, queries: int) -> Latencies:
    """Return the latencies of a rollout, in episodes of `queries` decisions.

    Raises:
        DataError: the candidate has no reported latencies.
    """

    async def work(database: Database, tenant: Tenant) -> Latencies:
        connection = await database.connect("app")
        try:
            async with as_tenant(connection, tenant.id):
                return await of_canary(connection, tenant.id, str(rollout), queries=queries)
        finally:
            await connection.close()

    return for_tenant(home, tenant_name, work)


def estimates(folder: Path, parts: Mapping[str, Any]) -> tuple[list[dict[str, Any]], Sequence[str]]:
    """Estimate from the log of a run the reward of fixed parts with the other parts drawn.

    Raises:
        DataError: the run is damaged, or its strategy does not draw.
        InputError: no configuration has these parts, or no evaluation has a reward.
    """
    run = RunFolder(folder)
    run.manifest()
    space = load_policy_config(folder / "policy.yaml").space
    report = estimated(run.episodes(), holding(space, parts))
    if report.refused:
        return [], report.reasons
    return [
        {
            "estimator": name, "value": one.value, "low": one.low, "high": one.high,
            "evaluations": report.diagnostics.n, "effective": report.ess,
        }
        for name, one in report.estimates.items()
    ], ()  # fmt: skip


def exported(
    folder: Path,
    home: Path | None,
    *,
    tracking_uri: str | None,
    experiment: str,
    commit: str | None,
    keep_days: int,
) -> Mapping[str, Any]:
    """Export a run to MLflow, and return its location there.

    `tracking_uri` None: the local store. `commit` None: that of the working directory. `keep_days`
    0: exported runs are never deleted.

    Raises:
        DataError: as in `export_run`.
    """
    return asdict(
        export_run(
            folder,
            store=state_directory(home) / "mlflow",
            tracking_uri=tracking_uri,
            experiment=experiment,
            commit=commit or code_commit(),
            keep_days=keep_days or None,
            now=datetime.now(UTC),
        )
    )
