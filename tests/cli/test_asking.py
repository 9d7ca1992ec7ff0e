"""Commands that talk to a running service, and those that look at it."""

import json
import time

import pytest

from tests.redis_server import PASSWORD, redis_server

CONTEXT = json.dumps({"intent": "weather", "text_len": 42})
OUTCOMES = json.dumps({"success": 1, "tool_ok": 1, "latency_ms": 240})


def _decide(asking):
    return asking.json("decide", "assistant", "route", "--context", CONTEXT, "--timeout-ms", 20_000)


def test_a_decision_and_its_outcome_are_stored_and_learned(asking, service):
    decision = _decide(asking)
    assert decision["logged"] is True
    assert decision["distribution"][decision["action"]] == decision["propensity"]
    told = asking.json(
        *("events", "send", "task_result", "--decision", decision["decision_id"]),
        *("--outcomes", OUTCOMES),
    )
    assert (told["stored"], told["waiting"], told["refused"]) == (1, 0, [])
    verified = asking.json(
        *("learn", "verify", "assistant", "route"), "--tenant", service.tenant.name
    )
    deadline = time.monotonic() + 20
    while verified[0]["updates"] == 0 and time.monotonic() < deadline:
        verified = asking.json("learn", "verify", "assistant", "--tenant", service.tenant.name)
        verified = [row for row in verified if row["decision"] == "route"]
    assert verified[0]["holds"]
    assert verified[0]["updates"] >= 1


def test_events_are_loaded_from_lines(asking, tmp_path):
    decision = _decide(asking)
    lines = [
        {"type": "interaction.create", "decision_id": decision["decision_id"], "body": {"n": 1}},
        {"type": "interaction.output", "decision_id": decision["decision_id"]},
        {"type": "feedback.submit", "episode_id": "e-none", "outcomes": {"thumbs_up": 1}},
    ]
    file = tmp_path / "events.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    told = asking.json("events", "load", file, status=1)
    assert told["stored"] == 2
    assert told["refused"][0]["problem"]["code"] == "not_found"


@pytest.mark.parametrize(
    "line",
    [
        *("{", '{"type": "x"}', '{"type": "task_result", "outcome": 1}', "[]"),
        '{"type": "task_result", "decision_id": "nonsense"}',
    ],
)
def test_a_wrong_line_is_told_before_anything_is_sent(asking, tmp_path, line):
    file = tmp_path / "events.jsonl"
    file.write_text('{"type": "task_result", "episode_id": "e"}\n' + line)
    assert "line 2" in asking("events", "load", file, status=2)


def test_what_is_no_id_is_bad_usage(asking):
    said = asking("events", "send", "task_result", "--decision", "nonsense", status=2)
    assert "not a valid UUID" in said


def test_refusals_are_told_without_a_traceback(asking):
    said = asking("decide", "assistant", "nothing", status=1)
    assert "assistant/route" in said
    said = asking("decide", "assistant", "route", "--context", '{"colour": 1}', status=1)
    assert "colour" in said
    said = asking("decide", "assistant", "route", "--api-key", "sk_wrong", status=1)
    assert "sk_wrong" not in said


def test_the_default_answers_when_nobody_else_does(asking, tmp_path):
    nobody = ("--url", "http://127.0.0.1:9", "--timeout-ms", "300")
    asked = ("decide", "assistant", "route", *nobody)
    assert "Error" in asking(*asked, status=1)
    decision = asking.json(*asked, "--default", "micro")
    assert (decision["action"], decision["logged"], decision["degraded"]) == ("micro", False, True)
    for more in (("--default", "b", "--default", "a"), ("--default", "b", "--picks")):
        decision = asking.json(*asked, *more)
        assert decision["picked"] == [one for one in more if one in {"a", "b"}]


def test_status_tells_what_service_and_store_say(asking, service):
    told = asking.json("status")
    assert told["service"]["guardian_state"] == "NORMAL"
    assert {point["decision"] for point in told["service"]["points"]} == {"cache", "route", "tool"}
    mine = [row for row in told["store"] if row["tenant"] == service.tenant.name]
    assert len(mine) == 3
    assert "lin_ucb" in asking("status")
    assert "401" in asking("status", "--api-key", "sk_wrong", status=1)


def test_the_doctor_finds_everything_sound_and_says_what_is_not(asking, service, tmp_path):
    found = asking.json("doctor")
    worst = {row["what"]: row["verdict"] for row in found if row["verdict"] == "fail"}
    assert worst == {}
    by_name = {row["what"]: row for row in found}
    for name in ("postgres", "roles", "schema", "partitions", "learning", "service", "clock"):
        assert by_name[name]["verdict"] == "ok", by_name[name]
    said = asking("doctor", "--url", "http://127.0.0.1:9")
    assert "steersman up" in said
    service.home.joinpath("secret").chmod(0o644)
    try:
        assert "chmod 600" in asking("doctor", status=1)
    finally:
        service.home.joinpath("secret").chmod(0o600)


def test_the_doctor_asks_the_redis_that_is_named(asking, monkeypatch):
    pytest.importorskip("redis")

    def told():
        (row,) = (row for row in asking.json("doctor") if row["what"] == "redis")
        return row["verdict"], row["found"], row["advice"]

    monkeypatch.delenv("REDIS_URL", raising=False)
    assert told()[0] == "ok"
    with redis_server() as server:
        monkeypatch.setenv("REDIS_URL", server.url)
        verdict, found, _ = told()
        assert (verdict, found.endswith("by REDIS_URL")) == ("ok", True)
    verdict, found, advice = told()
    assert (verdict, PASSWORD in found) == ("warn", False)
    assert "PostgreSQL stands in" in advice
    monkeypatch.setenv("REDIS_URL", "http://:secret@localhost")
    said = asking("doctor", status=1)
    assert "correct REDIS_URL" in said
    assert "secret@" not in said


def test_the_doctor_makes_nothing_where_nothing_is(command, tmp_path):
    nowhere = tmp_path / "nowhere"
    told = command.json("doctor", "--home", nowhere)
    assert {row["what"]: row["verdict"] for row in told}["home"] == "warn"
    assert not nowhere.exists()


def test_a_unit_is_handed_out_and_erased(asking, service):
    name = service.tenant.name
    decision = asking.json(
        *("decide", "assistant", "route", "--context", CONTEXT, "--unit", "u-1"),
        *("--timeout-ms", 20_000),
    )
    lines = asking("tenant", "export", name, "--unit", "u-1").splitlines()
    assert decision["decision_id"] in "".join(lines)
    assert all("table" in json.loads(line) for line in lines)
    erase = ("tenant", "erase", name, "--unit", "u-1", "--reason", "asked for it")
    assert "Aborted" in asking(*erase, status=1, input="n\n")
    done = asking.json(*erase, "--yes")
    assert done["decisions"] == [decision["decision_id"]]
    assert asking("tenant", "export", name, "--unit", "u-1") == ""


def test_a_point_is_relearned_without_some_decisions(asking, service):
    made = asking.json(
        *("learn", "rebuild", "assistant", "cache", "--tenant", service.tenant.name),
        *("--exclude", "unit = 'bot-7'", "--until", "2100-01-01"),
    )
    assert made["snapshot"] == "0.2.0"
    said = asking(
        *("learn", "rebuild", "assistant", "cache", "--tenant", service.tenant.name),
        *("--exclude", "1; DROP TABLE decision"),
        status=1,
    )
    assert "Traceback" not in said
