"""Log import: learned decisions, evidence with propensities, and idempotent repeats."""

from __future__ import annotations

import asyncio
import csv
import json
import time
import tracemalloc
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steersman.db.imports.load import import_log
from steersman.db.imports.readers import read_rows
from steersman.errors import DataError, StoreError
from steersman.features import FeatureMap
from steersman.platform.postgres.database import as_tenant
from steersman.workers.learner import run_learner

DECISIONS = "SELECT * FROM decision ORDER BY id"


async def learned(logs):
    """Run a learner until this tenant's work is done."""
    stop = asyncio.Event()
    learner = asyncio.create_task(run_learner(logs.database, stop=stop))
    for _ in range(3000):
        if learner.done() or (await counts(logs))["w"] == 0:
            break
        await asyncio.sleep(0.02)
    stop.set()
    await learner
    assert (await counts(logs))["w"] == 0


async def counts(logs):
    (row,) = await logs.rows(
        "SELECT (SELECT count(*) FROM decision) AS d, (SELECT count(*) FROM event) AS e, "
        "(SELECT count(*) FROM idempotency) AS i, (SELECT count(*) FROM work) AS w"
    )
    return row


async def test_alices_telemetry_warm_starts_her_router(logs, examples, configs):
    await logs.declare((configs / "assistant" / "route.yaml").read_text())
    file, mapping = examples / "telemetry.jsonl", examples / "telemetry.yaml"
    report = await import_log(logs.database, logs.tenant, file, mapping)
    assert (report.rows, report.stored, report.events, report.skipped) == (60, 50, 50, 10)
    assert (report.refused, report.unused) == (0, ())
    for row in await logs.rows(DECISIONS):
        assert (row["p"], row["p_kind"], row["distribution"]) == (None, "none", [])
        assert (row["snapshot"], row["update_seq"]) == ("imported", 0)
        assert (row["stage"], row["arm"], row["degraded"]) == ("live", "control", False)
        assert row["weight"] == pytest.approx(0.1)
        assert row["action"] in ("micro", "planner", "deep")
        assert row["context"]["guardian_state"] in ("normal", "brownout")
    before = await counts(logs)
    again = await import_log(logs.database, logs.tenant, file, mapping)
    assert (again.stored, again.events, again.already, again.refused) == (0, 0, 50, 0)
    assert await counts(logs) == before
    await learned(logs)
    updates = await logs.rows("SELECT * FROM update ORDER BY seq")
    assert len(updates) == 50
    assert {round(row["weight"], 6) for row in updates} == {0.1}
    statuses = {row["status"] for row in await logs.rows("SELECT status FROM reward")}
    assert statuses == {"scored"}


@pytest.mark.parametrize("name", ["searches.jsonl", "searches.csv"])
async def test_logs_with_propensities_are_evidence(logs, examples, name):
    point = await logs.declare()
    mapping = examples / f"searches_{name.partition('.')[2]}.yaml"
    report = await import_log(logs.database, logs.tenant, examples / name, mapping)
    assert (report.rows, report.stored, report.refused) == (40, 40, 0), report.refusals
    rows = await logs.rows(DECISIONS)
    features = FeatureMap(point.spec.context)
    for row in rows:
        assert row["p_kind"] == "imported"
        assert 0 < row["p"] <= 1
        x = features.encode(row["context"]).astype(np.float32)
        assert np.array(row["x"], np.float32).tobytes() == x.tobytes()
        if name.endswith("jsonl"):
            assert sum(row["distribution"]) == pytest.approx(1.0)
            index = ["shallow", "deep", "hybrid"].index(row["action"])
            assert row["distribution"][index] == pytest.approx(row["p"])
        else:
            assert row["p"] == pytest.approx(1 / len(row["eligible"]), abs=1e-6)
            assert row["weight"] == pytest.approx(0.2)
    before = await counts(logs)
    again = await import_log(logs.database, logs.tenant, examples / name, mapping)
    assert (again.stored, again.events, again.already) == (0, 0, 40)
    assert await counts(logs) == before


async def test_times_of_spreadsheets_are_of_their_time_zone(logs, examples):
    await logs.declare()
    file, mapping = examples / "searches.csv", examples / "searches_csv.yaml"
    await import_log(logs.database, logs.tenant, file, mapping)
    with file.open() as lines:
        first = next(csv.DictReader(lines))["time"]
    berlin = datetime.strptime(first, "%d.%m.%Y %H:%M").replace(tzinfo=UTC)
    assert (await logs.rows(DECISIONS))[0]["at"] == berlin - timedelta(hours=1)


async def test_the_three_kinds_of_files_say_the_same(logs, tmp_path):
    await logs.declare()
    rows = [logs.row(n, words=n % 9 + 1, clicked=float(n % 2)) for n in range(30)]
    with (tmp_path / "log.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    files = [logs.lines(*rows), tmp_path / "log.csv", tmp_path / "log.parquet"]
    stored = [(await logs.load(file)).stored for file in files]
    assert stored == [30, 0, 0]  # the id field names them


async def test_equal_rows_without_an_id_are_as_many_decisions(logs):
    await logs.declare()
    mapping = logs.mapping(id=None)
    row = logs.row(id="(absent)")
    other = logs.row(1, id="(absent)")
    file = logs.lines(row, other, row, row)
    assert (await logs.load(file, mapping)).stored == 4
    assert (await logs.load(file, mapping)).stored == 0
    file = logs.lines(row, other, row, row, row)  # the log went on
    assert (await logs.load(file, mapping)).stored == 1


async def test_a_repeat_after_the_ids_were_forgotten_changes_nothing(logs):
    await logs.declare()
    file = logs.lines(*(logs.row(n) for n in range(5)))
    await logs.load(file)
    connection = await logs.database.connect("owner")
    async with as_tenant(connection, logs.tenant):
        await connection.execute("DELETE FROM idempotency")
    await connection.close()
    again = await logs.load(file)
    assert (again.stored, again.events, again.already) == (0, 0, 5)
    assert (await counts(logs))["e"] == 5


async def test_outcomes_that_come_with_a_later_log_are_added(logs):
    await logs.declare()
    bare = logs.row(clicked="(absent)", seconds="(absent)")
    report = await logs.load(logs.lines(bare))
    assert (report.stored, report.events) == (1, 0)
    report = await logs.load(logs.lines(logs.row()))
    assert (report.stored, report.events, report.already, report.refused) == (0, 1, 1, 0)


async def test_the_same_id_with_other_content_is_refused(logs):
    await logs.declare()
    await logs.load(logs.lines(logs.row()))
    report = await logs.load(
        logs.lines(logs.row(chosen="shallow"), logs.row(1), logs.row(1, p=0.5))
    )
    assert (report.stored, report.refused) == (1, 2)
    assert [refusal.number for refusal in report.refusals] == [1, 3]
    assert "has other content" in report.refusals[0].reason
    report = await logs.load(logs.lines(logs.row(clicked=0)))
    assert "has other outcomes" in report.refusals[0].reason


async def declare_reward(logs, **reward):
    """Declare a point with a reward for clicks only."""
    document = (await logs.declare()).spec.model_dump(mode="json")
    document["reward"] = {"terms": {"clicked": {"weight": 1}}, "window_s": 600, **reward}
    return await logs.declare(json.dumps(document))


async def rewards(logs):
    query = "SELECT status, value, count(*) AS n FROM reward GROUP BY 1, 2 ORDER BY 2"
    return [tuple(row.values()) for row in await logs.rows(query)]


def sparse(logs, n=20):
    """Write rows with an outcome in one of four."""
    bare = {"clicked": "(absent)", "seconds": "(absent)"}
    return logs.lines(*(logs.row(i, **({} if i % 4 == 0 else bare)) for i in range(n)))


async def test_what_an_absent_outcome_is_worth_is_learned(logs):
    await declare_reward(logs, missing={"value": 0.25})
    report = await logs.load(sparse(logs), logs.mapping(outcomes="{clicked: clicked}"))
    assert (report.stored, report.events, report.settled) == (20, 5, 0)
    await learned(logs)
    assert await rewards(logs) == [("assumed", 0.25, 15), ("scored", 1.0, 5)]
    (row,) = await logs.rows("SELECT count(*) AS n, sum(reward_change) AS r FROM update")
    assert (row["n"], row["r"]) == (20, 15 * 0.25 + 5)


async def test_absent_outcomes_that_are_dropped_make_no_work(logs):
    await declare_reward(logs, missing="drop")
    await logs.load(sparse(logs), logs.mapping(outcomes="{clicked: clicked}"))
    assert (await counts(logs))["w"] == 5
    await learned(logs)
    assert await rewards(logs) == [("scored", 1.0, 5)]


async def test_an_episode_is_credited_across_chunks(logs, monkeypatch):
    monkeypatch.setattr("steersman.db.imports.load._CHUNK", 2)
    await declare_reward(logs, scope="episode")
    bare = {"clicked": "(absent)", "seconds": "(absent)", "talk": "t1"}
    rows = [logs.row(0, talk="t1"), *(logs.row(n, **bare) for n in range(1, 6))]
    mapping = logs.mapping(outcomes="{clicked: clicked}", episode="talk")
    await logs.load(logs.lines(*rows), mapping)
    await learned(logs)
    assert await rewards(logs) == [("scored", 1.0, 6)]


async def test_what_an_earlier_version_left_without_reward_gets_it_with_the_same_file(logs):
    await declare_reward(logs, missing={"value": 0})
    file, mapping = sparse(logs), logs.mapping(outcomes="{clicked: clicked}")
    await logs.load(file, mapping)
    connection = await logs.database.connect("worker")
    async with as_tenant(connection, logs.tenant):
        await connection.execute(
            "DELETE FROM work WHERE NOT EXISTS ("
            "SELECT FROM event AS e WHERE e.decision = work.decision)"
        )
    await connection.close()
    await learned(logs)
    assert await rewards(logs) == [("scored", 1.0, 5)]
    report = await logs.load(file, mapping)
    assert (report.stored, report.already, report.settled) == (0, 20, 15)
    await learned(logs)
    assert await rewards(logs) == [("assumed", 0.0, 15), ("scored", 1.0, 5)]
    assert (await logs.load(file, mapping)).settled == 0
    assert (await counts(logs))["w"] == 0


async def test_windows_that_are_open_are_waited_for_once(logs):
    await declare_reward(logs, missing={"value": 0}, window_s=86_400)
    file = logs.lines(logs.row(at=int(time.time()), clicked="(absent)", seconds="(absent)"))
    mapping = logs.mapping()
    report = await import_log(logs.database, logs.tenant, file, mapping)
    assert (report.stored, report.events) == (1, 0)
    assert (await import_log(logs.database, logs.tenant, file, mapping)).settled == 0
    (row,) = await logs.rows("SELECT due_at > now() AS later FROM work")
    assert row["later"]


async def test_an_interrupted_import_goes_on_where_it_stopped(logs):
    await logs.declare()
    file = logs.lines(*(logs.row(n) for n in range(1200)))

    def stop(report):
        if report.stored == 1000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await logs.load(file, progress=stop)
    assert (await counts(logs))["d"] == 1000
    seen = []
    report = await logs.load(file, progress=lambda r: seen.append(r.rows))
    assert (report.stored, report.already, report.events) == (200, 1000, 200)
    assert seen == [500, 1000, 1200]
    assert await counts(logs) == {"d": 1200, "e": 1200, "i": 1200, "w": 1200}


async def test_a_chunk_that_cannot_be_stored_leaves_nothing_half(logs):
    await logs.declare()
    file = logs.lines(*(logs.row(n) for n in range(4)), logs.row(4, chosen="deep", seconds=1e308))
    connection = await logs.database.connect("owner")
    # What comes of a decision cannot be stored: then the decision is not, either.
    await connection.execute(
        "ALTER TABLE event ADD CONSTRAINT small CHECK (outcomes->>'seconds' < '1') NOT VALID"
    )
    try:
        with pytest.raises(StoreError, match="run it again"):
            await logs.load(file)
        assert (await counts(logs))["d"] == 0
    finally:
        await connection.execute("ALTER TABLE event DROP CONSTRAINT small")
        await connection.close()
    assert (await logs.load(file)).stored == 5


async def test_erased_decisions_do_not_come_back(logs):
    await logs.declare()
    file = logs.lines(*(logs.row(n) for n in range(3)))
    await logs.load(file)
    connection = await logs.database.connect("owner")
    async with as_tenant(connection, logs.tenant):
        gone = await connection.fetchval("SELECT id FROM decision LIMIT 1")
        await connection.execute(
            "INSERT INTO erasure (tenant, decision, reason) VALUES ($1, $2, 'asked')",
            *(logs.tenant, gone),
        )
        await connection.execute("DELETE FROM event WHERE decision = $1", gone)
        await connection.execute("DELETE FROM decision WHERE id = $1", gone)
    await connection.close()
    report = await logs.load(file)
    assert (report.stored, report.already, report.erased) == (0, 2, 1)


async def test_decisions_lie_in_their_own_time(logs):
    await logs.declare()
    await logs.load(logs.lines(logs.row()))
    (row,) = await logs.rows("SELECT id, at, window_ends FROM decision")
    assert row["at"] == datetime.fromtimestamp(1_770_000_000, UTC)
    assert row["id"].int >> 80 == 1_770_000_000_000
    assert (row["id"].version, row["id"].variant) == (7, "specified in RFC 4122")
    assert row["window_ends"] - row["at"] == timedelta(seconds=600)


async def test_joint_policies_get_the_features_of_the_candidates(logs):
    await logs.declare("""
format: 1
skill: search
decision: passage
actions: {kind: choice, open: true, features: [score, length]}
policy: {algorithm: joint_squarecb}
floor: 0.05
fallback: {rules: [], otherwise: first}
reward: {terms: {clicked: {weight: 1}}}
""")
    mapping = logs.mapping(
        decision="passage",
        context="{}",
        eligible="candidates",
        features="features",
        propensity="{distribution: probabilities}",
        outcomes="{clicked: clicked}",
    )
    row = logs.row(
        chosen="p7",
        candidates=["p3", "p7"],
        features={"p3": [0.5, 1.0], "p7": [0.25, 0.1]},
        probabilities=[0.4, 0.6],
    )
    report = await logs.load(
        logs.lines(row, {**row, "id": "x", "features": {"p3": [1, 2]}}), mapping
    )
    assert (report.stored, report.refused) == (1, 1)
    assert "features of 'p7'" in report.refusals[0].reason
    (stored,) = await logs.rows(DECISIONS)
    tenth = float(np.float32(0.1))
    assert stored["x"] == pytest.approx([0.25, tenth], abs=0)
    assert stored["features"] == pytest.approx([0.5, 1.0, 0.25, tenth], abs=0)
    assert stored["eligible"] == ["p3", "p7"]
    assert stored["distribution"] == pytest.approx([0.4, 0.6])
    assert stored["p"] == 0.6


async def test_keys_of_beta_policies_are_stored(logs):
    document = (await logs.declare()).spec.model_dump(mode="json")
    document |= {"decision": "keyed", "policy": {"algorithm": "beta_thompson", "key": "language"}}
    await logs.declare(json.dumps(document))
    rows = logs.lines(logs.row(), logs.row(1, lang="(absent)"))
    await logs.load(rows, logs.mapping(decision="keyed"))
    assert [(r["x"], r["key"]) for r in await logs.rows(DECISIONS)] == [
        (None, "en"),
        (None, "(none)"),
    ]


async def test_files_that_cannot_be_read_are_told(logs, tmp_path):
    await logs.declare()
    (tmp_path / "log.parquet").write_bytes(b"PAR1 not really")
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    (tmp_path / "twice.csv").write_text("id,id\n1,2\n")
    (tmp_path / "latin.csv").write_bytes(b"id,\xe9t\n1,1\n")
    (tmp_path / "head.csv").write_text('"id" x,at\n1,2\n')
    (tmp_path / "log.txt").write_text("")
    for name, match in (
        ("log.parquet", "not a readable Parquet file"),
        ("twice.csv", "has a duplicate or empty column name"),
        ("twice.parquet", "duplicate column name 'id'"),
        ("latin.csv", "not UTF-8"),
        ("head.csv", "head.csv:1: the header is not valid CSV"),
        ("log.txt", "unknown file type"),
        ("absent.jsonl", "cannot read"),
    ):
        with pytest.raises(DataError, match=match):
            await logs.load(tmp_path / name)
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    assert (await logs.load(empty)).rows == 0


def test_rows_of_csv_take_no_more_memory_than_one_may(tmp_path):
    file = tmp_path / "log.csv"
    with file.open("w", encoding="utf-8") as log:
        log.write("id,text\n1,a\n2,")
        for _ in range(64):
            log.write("x," * (1 << 19))
        log.write("\r\n3,c\n4,")
        for _ in range(64):  # a quote that is never closed for good
            log.write(('"' + "y" * 10_000 + '\n",') * 100)
    tracemalloc.start()
    rows = list(read_rows(file, None))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 32 << 20
    assert [(row.number, row.row) for row in rows[:3]] == [
        (2, {"id": "1", "text": "a"}),
        (3, {}),
        (4, {"id": "3", "text": "c"}),
    ]
    assert rows[1].problem == "not a valid CSV row: longer than the maximum of 1,048,576 characters"
    assert all(row.problem for row in rows[3:])


async def test_texts_of_parquet_that_are_bytes_are_texts(logs, tmp_path):
    await logs.declare()
    rows = [logs.row(n, id=f"r{n}".encode(), chosen=b"deep", lang=b"en") for n in range(4)]
    rows[1]["lang"], rows[2]["lang"], rows[3]["lang"] = b"\xff", b"a\0b", b""
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    report = await logs.load(tmp_path / "log.parquet")
    assert (report.stored, report.refused) == (2, 2)
    assert [refusal.number for refusal in report.refusals] == [2, 3]
    assert all("is not text" in refusal.reason for refusal in report.refusals)
    stored = [(row["action"], row["context"].get("language")) for row in await logs.rows(DECISIONS)]
    assert stored == [("deep", "en"), ("deep", None)]


def test_what_is_no_row_of_csv_is_told_where_it_begins(tmp_path):
    file = tmp_path / "log.csv"
    fair, long = "x" * 200_000, "x" * 1_100_000
    file.write_text(f'id,at\n{fair},2\n{long},3\n4,5\n"6,7\n8,9\n')
    found = list(read_rows(file, None))
    assert [(one.number, one.problem is None) for one in found] == [
        *((2, True), (3, False), (4, True), (5, False)),
    ]
    assert found[0].row["id"] == fair
    assert "longer than the maximum of 1,048,576 characters" in found[1].problem
    assert "up to line 6; check for an unclosed quote" in found[3].problem


async def test_a_row_that_is_not_utf8_is_told_by_its_line_and_the_others_are_stored(logs, tmp_path):
    await logs.declare()
    rows = [logs.row(n) for n in range(1200)]
    lines = [",".join(rows[0])] + [",".join(map(str, row.values())) for row in rows]
    encoded = [line.encode() for line in lines]
    encoded[900] = encoded[900].replace(b"en", b"\xe9n")
    (tmp_path / "log.csv").write_bytes(b"\n".join(encoded))
    report = await logs.load(tmp_path / "log.csv")
    assert (report.stored, report.refused) == (1199, 1)
    (refusal,) = report.refusals
    assert refusal.number == 901
    assert "not UTF-8" in refusal.reason


async def test_times_of_parquet_are_read_as_they_are_written(logs, tmp_path):
    await logs.declare()
    at = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)
    rows = [
        {**logs.row(n), "at": at, "took": timedelta(seconds=n), "day": at.date(), "in": {"t": [at]}}
        for n in range(3)
    ]
    fine = pa.timestamp("ns", "UTC")
    columns = {"at": fine, "took": pa.duration("ns"), "in": pa.struct({"t": pa.list_(fine)})}
    table = pa.Table.from_pylist(rows)
    fields = [field.with_type(columns.get(field.name, field.type)) for field in table.schema]
    pq.write_table(table.cast(pa.schema(fields)), tmp_path / "fine.parquet")
    mapping = logs.mapping(time="{field: at, format: iso}")
    assert (await logs.load(tmp_path / "fine.parquet", mapping)).stored == 3
    assert {row["at"] for row in await logs.rows(DECISIONS)} == {at}
    again = logs.mapping(time="{field: day, format: iso}", source="by_day")
    assert (await logs.load(tmp_path / "fine.parquet", again)).stored == 3
    assert at.replace(hour=0, minute=0, second=0, microsecond=0) in {
        row["at"] for row in await logs.rows(DECISIONS)
    }


async def test_a_time_that_no_calendar_has_is_told_by_its_row(logs, tmp_path):
    await logs.declare()
    table = pa.Table.from_pylist([logs.row(n) for n in range(5)])
    seconds = pa.array([1_770_000_000 + n for n in range(4)] + [10**14], pa.int64())
    place = table.schema.get_field_index("at")
    table = table.set_column(place, "at", seconds.cast(pa.timestamp("s", "UTC")))
    pq.write_table(table, tmp_path / "far.parquet", coerce_timestamps=None)
    report = await logs.load(
        tmp_path / "far.parquet", logs.mapping(time="{field: at, format: iso}")
    )
    assert (report.stored, report.refused) == (4, 1)
    assert "cannot read a value" in report.refusals[0].reason


async def test_two_imports_at_once_tell_what_became_of_each_row(logs):
    await logs.declare()
    same = [logs.row(n) for n in range(1500)]
    others = [{**row, "chosen": "shallow"} for row in same]
    files = [logs.lines(*rows, name=f"{n}.jsonl") for n, rows in enumerate((same, same, others))]
    mapping = logs.mapping()
    reports = await asyncio.gather(*(logs.load(file, mapping) for file in files))
    stored = len(await logs.rows(DECISIONS))
    assert stored == sum(report.stored for report in reports) == 1500
    # Row by row: what the first two say is there already or stored, or the third came first.
    first, second, third = reports
    assert first.stored + second.stored == first.already + second.already
    assert first.refused == second.refused == third.stored
    assert third.refused == first.stored + second.stored
