"""Commands that call a running service: decide, events, status, doctor."""

import json
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from steersman.cli.doctor_machine import look_at_home
from steersman.cli.doctor_store import look_at_store
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


def test_an_event_of_ones_own_id_is_stored_once_if_its_time_is_given(asking):
    about = ("--decision", _decide(asking)["decision_id"])
    own = ("events", "send", "task_result", *about, "--event-id", about[1], "--outcomes", OUTCOMES)
    at = ("--at", f"{time.time() - 60:.3f}")
    for _ in range(2):
        assert asking.json(*own, *at)["stored"] == 1
    refused = asking.json(*own, status=1)["refused"]
    assert [it["problem"]["code"] for it in refused] == ["idempotency_conflict"]
    assert "expected seconds since 1970" in asking(*own, "--at", "1e12", status=1)


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
        '{"type": "task_result"}',
        '{"type": "task_result", "episode_id": "e", "at": "2026-01-01T00:00:00Z"}',
        '{"type": "task_result", "episode_id": "e", "outcomes": [1]}',
        '{"type": "task_result", "episode_id": "e", "outcomes": {"a": "b"}}',
        '{"type": "task_result", "episode_id": "e", "outcomes": {"a": NaN}}',
        '{"type": "task_result", "episode_id": "e", "body": "b"}',
        '{"type": "task_result", "episode_id": "e", "schema_version": 2}',
        '{"type": "task_result", "episode_id": "e", "episode_id": "f"}',
        "[" * 50_000,
        b"\xff",
    ],
    ids=range(15),
)
def test_a_wrong_line_is_told_before_anything_is_sent(asking, tmp_path, line):
    file = tmp_path / "events.jsonl"
    line = line if isinstance(line, bytes) else line.encode()
    file.write_bytes(b'\xef\xbb\xbf{"type": "task_result", "episode_id": "e"}\r\n' + line)
    assert "line 2" in asking("events", "load", file, status=2)


def test_only_what_was_sent_now_is_told_to_be_stored(asking, tmp_path):
    told = {"STEERSMAN_HOME": str(tmp_path), "STEERSMAN_URL": "http://127.0.0.1:9"}
    away = replace(asking, environment=asking.environment | told)
    for waiting in (1, 2):
        sent = ("events", "send", "task_result", "--episode", "e", "--wait-s", "0")
        result = away.json(*sent, status=1)
        assert (result["stored"], result["waiting"]) == (0, waiting)


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


def test_without_a_key_status_says_that_the_service_was_not_asked(command, service):
    said = command("status")
    assert "skipped the service" in said
    assert "no API key" in said
    assert said.index("skipped the service") < said.index("assistant")  # a row of the store
    assert "--states needs the service" in command("status", "--states", status=2)


@pytest.mark.parametrize(("wrong", "right"), [("deside", "decide"), ("tenat", "tenant")])
def test_a_command_that_is_nearly_one_is_named(asking, wrong, right):
    assert f"No such command '{wrong}'. Did you mean {right}" in asking(wrong, status=2)


def test_what_the_store_knows_is_shown_though_the_service_refuses_or_is_away(asking):
    for asked, why in (
        (["--api-key", "sk_wrong"], "refused with 401: "),
        (["--url", "http://127.0.0.1:1"], "does not answer"),
    ):
        said = asking("status", *asked, status=1)
        assert why in said
        assert '"code"' not in said
        assert said.index("assistant") < said.index(why)  # a row of the store


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
        assert (verdict, found.endswith("from REDIS_URL")) == ("ok", True)
    verdict, found, advice = told()
    assert (verdict, PASSWORD in found) == ("warn", False)
    assert "until then PostgreSQL is used" in advice
    monkeypatch.setenv("REDIS_URL", "http://:secret@localhost")
    said = asking("doctor", status=1)
    assert "correct REDIS_URL" in said
    assert "secret@" not in said


@pytest.fixture(params=[b"<html>hello</html>", b'{"status": "up"}', b"up 1\n"])
def stranger(request):
    """A web server that is none of ours, and answers everything with 200."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(request.param)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_another_program_at_the_address_is_not_taken_for_the_service(command, stranger):
    rows = {row["what"]: row for row in command.json("doctor", "--url", stranger, status=1)}
    assert rows["service"]["verdict"] == "fail"
    said = command("status", "--url", stranger, "--api-key", "sk_x", status=1)
    assert "is not a Steersman service" in said
    frame = command.json("monitor", "--once", "--url", stranger)
    assert (frame["service"]["state"], bool(frame["service"]["why"])) == (None, True)


def test_a_key_with_a_line_break_is_bad_usage(command):
    assert "line break" in command("status", "--api-key", "sk_x\nsk_y", status=2)


def test_a_home_that_is_a_file_fails(command, tmp_path):
    (tmp_path / "file").write_text("")
    rows = command.json("doctor", "--home", tmp_path / "file" / "home", status=0)
    assert {row["what"]: row["verdict"] for row in rows}["home"] == "warn"


def test_the_doctor_tells_of_a_home_that_it_may_not_look_into(tmp_path, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(type(tmp_path), "is_dir", refuse)
    (finding,) = look_at_home(tmp_path)
    assert (finding.what, finding.verdict) == ("home", "fail")
    assert "Permission denied" in finding.found
    monkeypatch.delenv("DATABASE_URL", raising=False)
    (finding,) = look_at_store(tmp_path)
    assert (finding.what, finding.verdict) == ("postgres", "fail")


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
    (said,) = asking("tenant", "export", name, "--unit", "u-1").splitlines()
    assert said.startswith("no rows of unit 'u-1' in PostgreSQL")


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
