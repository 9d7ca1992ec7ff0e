"""A pipeline over simulated assistant traffic: gates, packages, canaries, nothing by accident."""

import asyncio

from steersman.db.derived_snapshots import last_update
from steersman.db.rollout_transitions import claim_rollout
from steersman.db.rollouts import rollouts_of
from steersman.db.snapshots import find_snapshot
from steersman.db.verdicts import add_verdict
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.pipeline.reports import STEPS
from steersman.rollouts.pipeline.steps import RunOptions, run_pipeline
from tests.learning.world import learn_all
from tests.rollouts.pipeline.world import ASSISTANT, assistant, config, tables, traffic

ROUTE = ("route",)
OTHER = "training: {route: {alpha: 0.3}}"
POINT = ("assistant", "route")


async def run(made, loaded, **asked):
    return await run_pipeline(made, ASSISTANT, loaded, RunOptions(**{"only": ROUTE, **asked}))


async def take(made, loaded, step, **asked):
    (report,) = await run(made, loaded, step=step, **asked)
    return report


async def read(made, work):
    connection = await made.database.connect("worker")
    try:
        async with as_tenant(connection, made.tenant.id):
            return await work(connection)
    finally:
        await connection.close()


async def judged(made, verdict, *reasons):
    """Write a verdict of the rollout under way, as a controller would."""
    connection = await made.database.connect("worker")
    try:
        async with as_tenant(connection, made.tenant.id):
            (row,) = await rollouts_of(connection, made.tenant.id, limit=1)
            claimed = await claim_rollout(connection, made.tenant.id, row.id, "test", idle_s=None)
            await add_verdict(
                connection,
                claimed,
                claimed.epoch,
                at=row.started_at,
                verdict=verdict,
                acted="none",
                inputs={},
                reasons=reasons,
            )
    finally:
        await connection.close()


async def test_all_steps_lead_from_the_log_to_a_rollout(database, tenant, tmp_path):
    made = await assistant(database, tenant, tmp_path)
    loaded = config(tmp_path, OTHER)
    told = []
    reports = await run(made, loaded, wait_s=0, tell=told.append)
    assert told == reports
    assert [(one.step, one.status) for one in reports] == [
        ("dataset", "done"),
        ("train", "done"),
        ("evaluate", "done"),
        ("package", "done"),
        ("canary", "done"),
        ("monitor", "waits"),
        ("promote", "waits"),
    ]
    data, trained, value, package, canary, _, promote = reports
    assert (data.values["usable"], data.values["degraded"]) == (3000, 0.0)
    assert data.values["first_at"] < data.values["last_at"]
    assert (trained.values["version"], trained.values["change"]) == ("0.2.1", "minor")
    assert 400 < value.values["decisions"] < 800
    assert value.values["low"] < value.values["value"] < value.values["high"]
    assert value.values["difference_low"] <= value.values["difference"]
    assert {gate.name: gate.passes for gate in value.gates} == dict.fromkeys(
        (
            "min_effective_sample_size",
            "max_weight_share",
            "min_value",
            "max_standard_error",
            "max_loss",
        ),
        True,
    )
    assert package.values["version"] == trained.values["version"]
    assert "canary 0.05" in canary.said
    assert "check that `steersman up` or `steersman rollout run` is running" in promote.said

    async def signed(it):
        return await find_snapshot(it, (made.tenant.id, *POINT), "0.2.1")

    evidence = (await read(made, signed)).description["evidence"]["pipeline"]
    assert evidence["judged"]["value"] == value.values["value"]
    assert all(gate["passes"] for gate in evidence["gates"])
    # Once more: nothing is new, so nothing is made.
    again = await run(made, loaded, wait_s=0)
    assert again[1].values["version"] == again[3].values["version"] == "0.2.1"
    assert "already active" in again[4].said


async def test_the_same_log_gives_the_same_numbers_and_a_dry_run_writes_nothing(
    database, tenant, tmp_path
):
    made = await assistant(database, tenant, tmp_path)
    loaded = config(tmp_path, OTHER)
    before = await tables(database, tenant.id)
    files = sorted(tmp_path.rglob("*"))
    first = await run(made, loaded, dry_run=True)
    assert [one.status for one in first] == ["done"] * 3 + ["would"] * 4
    assert "would publish 0.2.1" in first[3].said
    second = await run(made, loaded, dry_run=True)
    assert first[1:] == second[1:]
    for step in STEPS[3:]:
        assert (await take(made, loaded, step, dry_run=True)).goes_on
    assert await tables(database, tenant.id) == before
    assert sorted(tmp_path.rglob("*")) == files
    await take(made, loaded, "package")
    after = await tables(database, tenant.id)
    changed = {name for name in before if before[name] != after[name]}
    assert {"audit", "snapshot", "spec", "update"} <= changed


async def test_more_data_is_a_patch_and_another_algorithm_a_major_version(
    database, tenant, tmp_path
):
    made = await assistant(database, tenant, tmp_path)
    patch = await take(made, config(tmp_path), "train")
    assert (patch.values["version"], patch.values["change"]) == ("0.1.1", "patch")
    major = await take(made, config(tmp_path, "training: {route: {algorithm: lin_ts}}"), "train")
    assert (major.values["version"], major.values["change"]) == ("1.0.1", "major")
    minor = await take(made, config(tmp_path, "training: {routing: {feature_dim: 32}}"), "train")
    assert (minor.values["version"], minor.values["samples"]) == ("0.2.1", 3000)
    first = await take(made, config(tmp_path), "evaluate")
    assert first.values["against"] == "0.1.0 (nothing learned)"
    assert first.values["difference_low"] > 0
    assert (await take(made, config(tmp_path), "package")).values["version"] == "0.1.1"
    second = await take(made, config(tmp_path), "evaluate")
    assert second.values["against"] == "0.1.1"
    assert second.values["difference"] == 0.0


async def test_too_few_decisions_are_refused_and_nothing_follows(database, tenant, tmp_path):
    made = await assistant(database, tenant, tmp_path, n=300)
    reports = await run(made, config(tmp_path))
    assert [(one.step, one.status) for one in reports] == [("dataset", "refused")]
    assert "300 of 300" in reports[0].said
    assert "at least 500 needed" in reports[0].said
    loaded = config(tmp_path, "dataset: {min_episodes: 300}")
    assert (await take(made, loaded, "dataset")).status == "done"
    loaded = config(tmp_path, "dataset: {min_decisions: 1, lookback_days: 2}")
    recent = await take(made, loaded, "dataset")
    assert 100 < recent.values["usable"] < 140
    assert (await take(made, loaded, "evaluate")).values["decisions"] < 40


async def test_what_cannot_be_judged_on_is_counted_apart(database, tenant, tmp_path):
    made = await assistant(database, tenant, tmp_path, n=0)
    assert (await take(made, config(tmp_path), "dataset")).values["degraded"] is None
    (row,) = await read(made, _route)
    await traffic(database, row, 40)
    await traffic(database, row, 10, seed=1, degraded=True, p=1.0, p_kind="fallback")
    await traffic(database, row, 5, seed=2, p_kind="imported")
    await learn_all(database)
    loaded = config(tmp_path, "dataset: {min_decisions: 40}")
    found = await take(made, loaded, "dataset")
    assert found.status == "done"
    assert [found.values[name] for name in ("decisions", "exact", "usable")] == [55, 40, 40]
    assert found.values["degraded"] == 10 / 55
    judged = await take(made, loaded, "evaluate")
    assert judged.status == "refused"


async def _route(connection):
    from steersman.db.points import points_of  # noqa: PLC0415

    (tenant,) = await connection.fetchrow("SELECT current_setting('app.tenant')::uuid")
    return [row for row in await points_of(connection, tenant) if row.point == "route"]


async def test_each_gate_refuses_and_names_both_numbers(database, tenant, tmp_path):
    made = await assistant(database, tenant, tmp_path)
    fine = await take(made, config(tmp_path), "evaluate")
    assert fine.status == "done"
    for limit, wanted in (
        ("min_effective_sample_size", 5000),
        ("max_weight_share", 0.001),
        ("min_value", fine.values["value"]),  # of the lower bound: the value itself is too much
        ("min_policy_value", 0.99),
        ("max_standard_error", 0.001),
    ):
        loaded = config(tmp_path, f"evaluation: {{{limit}: {wanted}}}")
        for step in ("evaluate", "package"):
            report = await take(made, loaded, step)
            (failed,) = [gate for gate in report.gates if not gate.passes]
            name = "min_value" if limit == "min_policy_value" else limit
            assert (report.status, failed.name, failed.limit) == ("refused", name, wanted)
            assert f"refused by {name}" in report.said
    assert await read(made, lambda it: it.fetchval("SELECT count(*) FROM snapshot")) == 3


async def test_what_is_shown_to_lose_is_refused(database, tenant, tmp_path):
    made = await assistant(database, tenant, tmp_path)
    # Ids, and with them what is held out, have no seed: of a fifth, one in ten would not show it.
    text = "training: {route: {algorithm: fixed, action: micro}}\nevaluation: {held_out_share: 0.6}"
    lost = await take(made, config(tmp_path, text), "evaluate")
    assert lost.status == "refused"
    assert "max_loss" in lost.said
    assert lost.values["difference_high"] < -0.01


async def test_one_decision_point_alone_and_steps_without_those_before(database, tenant, tmp_path):
    made = await assistant(database, tenant, tmp_path)
    loaded = config(tmp_path, OTHER)
    every = await run(made, loaded, only=(), step="dataset")
    assert [(one.point, one.status) for one in every] == [
        ("cache", "refused"),
        ("route", "done"),
        ("tool", "refused"),
    ]
    for step, said in (
        ("canary", "no version published under this declaration"),
        ("monitor", "no rollout of this decision point"),
        ("promote", "no rollout of this decision point"),
    ):
        report = await take(made, loaded, step)
        assert report.status == "refused"
        assert said in report.said
    assert (await take(made, loaded, "package")).status == "done"
    assert (await take(made, loaded, "canary")).values["candidate"] == "0.2.1"
    assert (await take(made, config(tmp_path), "canary")).status == "refused"


async def test_a_promotion_waits_for_a_verdict_that_says_so(database, tenant, tmp_path):
    made = await assistant(database, tenant, tmp_path)
    loaded = config(tmp_path, OTHER + "\ndeployment: {canary_traffic_pct: 2.5}")
    for step in ("package", "canary"):
        assert (await take(made, loaded, step)).status == "done"
    await judged(made, "not_enough_data", "7 of 100 decisions in shadow")
    waiting = await take(made, loaded, "promote")
    assert waiting.status == "waits"
    assert waiting.values["missing"] == ["7 of 100 decisions in shadow"]
    await judged(made, "promote", "nothing against it")
    seen = await take(made, loaded, "monitor", wait_s=0)
    assert "verdict 2: promote" in seen.said
    on = await take(made, loaded, "promote")
    assert (on.status, on.values["stage"], on.values["share"]) == ("done", "canary", 0.025)
    after = await take(made, loaded, "promote")
    assert after.status == "waits"
    assert "no verdict at stage canary yet" in after.said
    for _ in range(3):
        await judged(made, "promote", "shown")
        last = await take(made, loaded, "promote")
    assert last.values["rollout_status"] == "promoted"
    assert (await take(made, loaded, "promote")).said == "0.2.1 is already live"
    assert (await take(made, loaded, "monitor")).status == "done"


async def test_following_tells_every_verdict_until_the_end(database, tenant, tmp_path):
    from steersman.rollouts.commands import act  # noqa: PLC0415

    made = await assistant(database, tenant, tmp_path)
    loaded = config(tmp_path, OTHER)
    for step in ("package", "canary"):
        await take(made, loaded, step)
    lines, said = [], asyncio.Event()

    def say(line):
        lines.append(line)
        said.set()

    async def next_line():
        await asyncio.wait_for(said.wait(), 60)
        said.clear()
        return lines[-1]

    following = asyncio.create_task(take(made, loaded, "monitor", wait_s=3600.0, say=say))
    assert await next_line() == "assistant/route 0.2.1: running, shadow 0%"
    await judged(made, "hold", "no decision for 4000 s")
    assert (await next_line()).endswith("; shadow hold: no decision for 4000 s")
    await judged(made, "promote", "nothing against it")
    assert (await next_line()).endswith("; shadow promote: nothing against it")
    (row,) = await read(made, lambda it: rollouts_of(it, made.tenant.id))
    who = {"actor": "test", "clock": made.clock}
    await act(database, tenant.id, row.id, "pause", reason="lunch", **who)
    report = await asyncio.wait_for(following, 60)
    assert (report.status, len(lines)) == ("waits", 4)
    assert report.said.startswith("paused, shadow 0%; verdict 2: promote")
    following = asyncio.create_task(take(made, loaded, "monitor", wait_s=3600.0, say=say))
    assert (await asyncio.wait_for(following, 60)).status == "waits"  # for a person, not for time
    await act(database, tenant.id, row.id, "resume", reason="back", **who)
    following = asyncio.create_task(take(made, loaded, "monitor", wait_s=3600.0, say=say))
    said.clear()
    await next_line()
    await act(database, tenant.id, row.id, "rollback", reason="answers got worse", **who)
    report = await asyncio.wait_for(following, 60)
    assert report.status == "refused"
    assert "answers got worse" in report.said


async def test_what_was_rolled_back_is_told(database, tenant, tmp_path):
    from steersman.rollouts.commands import act  # noqa: PLC0415

    made = await assistant(database, tenant, tmp_path)
    loaded = config(tmp_path, OTHER)
    await take(made, loaded, "package")
    started = await take(made, loaded, "canary")
    (row,) = await read(made, lambda it: rollouts_of(it, made.tenant.id))
    assert str(row.id) == started.values["rollout"]
    options = {"actor": "test", "reason": "answers got worse", "clock": made.clock}
    await act(database, tenant.id, row.id, "rollback", **options)
    for step in ("monitor", "promote"):
        report = await take(made, loaded, step)
        assert report.status == "refused"
        assert "answers got worse" in report.said


async def test_a_rollout_that_may_not_go_on_stays_at_the_canary(database, tenant, tmp_path):
    made = await assistant(database, tenant, tmp_path)
    loaded = config(tmp_path, OTHER + "\ndeployment: {prod_after_canary: false}")
    reports = await run(made, loaded, wait_s=0)
    assert [one.step for one in reports] == list(STEPS[:-1])
    (row,) = await read(made, lambda it: rollouts_of(it, made.tenant.id))
    stages = {stage["name"]: stage for stage in row.plan["stages"]}
    assert stages["canary"]["min_s"] == 366 * 86_400
    assert "rollout promote --force" in (await take(made, loaded, "promote")).said


async def test_without_keys_nothing_is_published(database, tenant, tmp_path):
    from dataclasses import replace  # noqa: PLC0415

    made = replace(await assistant(database, tenant, tmp_path), signer=None)
    report = await take(made, config(tmp_path), "package")
    assert report.status == "refused"
    assert "snapshot keys init" in report.said
    seq = await read(made, lambda it: last_update(it, (made.tenant.id, *POINT)))
    assert seq == 3000
