"""`steersman up`, as a person runs it: processes, signals, restarts."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import urllib3

from tests.clusters import copy_cluster

pytestmark = pytest.mark.slow
HTTP = urllib3.PoolManager(retries=False, timeout=10)
PATIENCE_S = 60


class Up:
    """A running `steersman up` with the store of its own."""

    def __init__(self, home, *arguments):
        environment = {k: v for k, v in os.environ.items() if k != "DATABASE_URL"}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in the end)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "steersman.cli", "up", "--home", home, *arguments],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        self.errors.close()

    def told(self):
        """What `--json` prints once everything is ready."""
        line = self.process.stdout.readline()
        assert line, self.said()
        return json.loads(line)

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def stop(self, number=signal.SIGTERM):
        begun = time.monotonic()
        self.process.send_signal(number)
        assert self.process.wait(PATIENCE_S) == 0, self.said()
        return time.monotonic() - begun


def _post(told, path, body, key):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    return HTTP.request("POST", told["url"] + path, body=json.dumps(body), headers=headers)


def _decide(told, key):
    body = {"skill": "assistant", "decision": "route", "context": {"intent": "weather"}}
    body["deadline_ms"] = 10_000  # the machine may be busy
    answer = _post(told, "/v1/decide", body, key)
    assert answer.status == 200, answer.data
    return answer.json()


def _wait_for_seq(told, key, seq):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        decision = _decide(told, key)
        if decision["update_seq"] >= seq:
            return decision
        time.sleep(0.1)
    pytest.fail(f"no process decided after update {seq}")


def _processes(home):
    """The processes whose command line names a home."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.startswith(os.fsencode(home)) for word in words):
                found.append((int(folder.name), words))
    return found


@contextmanager
def _home():
    folder = Path(tempfile.mkdtemp(prefix="st-up-"))
    yield folder
    assert _processes(folder) == []
    shutil.rmtree(folder)


@pytest.fixture
def home():
    with _home() as folder:
        yield folder


@pytest.fixture(scope="module")
def printed(cluster):
    """What runs, its home and what it printed for people; the last test here kills it."""
    with _home() as home, ExitStack() as exits:
        copy_cluster(cluster, home)
        up = exits.enter_context(Up(home, "--port", "0"))
        text = ""
        while "Ctrl-C" not in text:
            line = up.process.stdout.readline()
            assert line, up.said()
            text += line
        yield up, home, text


def test_everything_runs_learns_stops_and_goes_on(home):
    with Up(home, "--port", "0", "--json") as up:
        told = up.told()
        key = told["key"]
        assert (home / "trust" / "sample" / "root.json").exists()
        assert "move" in up.said()
        assert (home / "root-passphrase").stat().st_mode & 0o77 == 0
        assert set(told["processes"]) == {"service", "learner", "controller", "janitor"}
        decision = _decide(told, key)
        assert decision["logged"] is True
        event = {"event_id": "e-1", "decision_id": decision["decision_id"]}
        event["outcomes"] = {"success": 1, "tool_ok": 1, "latency_ms": 240}
        assert _post(told, "/v1/task_result", event, key).status == 200
        learned = _wait_for_seq(told, key, 1)
        assert learned["propensity"] != pytest.approx(1 / 3)

        # A second one would share the store; a killed child is started again.
        with Up(home, "--port", "0") as other:
            assert other.process.wait(PATIENCE_S) == 1
            assert "is in use by process" in other.said()
        os.kill(told["processes"]["learner"], signal.SIGKILL)
        second = _decide(told, key)
        event |= {"event_id": "e-2", "decision_id": second["decision_id"]}
        assert _post(told, "/v1/task_result", event, key).status == 200
        _wait_for_seq(told, key, 2)
        assert "learner was killed by SIGKILL" in up.said()
        assert key not in up.said()
        assert up.stop() < 15
        assert not _alive(told)
    assert _processes(home) == []
    for log in (home / "logs").iterdir():
        assert key not in log.read_text()

    with Up(home, "--port", "0", "--json", "--processes", "1") as up:
        told = up.told()
        assert told["key"] is None
        assert _decide(told, key)["update_seq"] == 2
        assert up.stop(signal.SIGINT) < 15


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_what_is_printed_can_be_pasted(printed):
    _, _, text = printed
    curl = text[text.index("curl") : text.index("Ctrl-C")]
    answered = subprocess.run(
        [shutil.which("bash"), "-c", curl], capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(answered)["logged"] in {True, "unknown"}


def test_children_end_with_a_parent_that_was_killed(printed):
    up, home, text = printed
    (line,) = [line for line in text.splitlines() if line.startswith("processes ")]
    told = {"processes": dict(re.findall(r"(\w+) (\d+)", line))}
    assert set(told["processes"]) == {"service", "learner", "controller", "janitor"}
    assert set(_alive(told)) == set(told["processes"])
    up.process.kill()
    up.process.wait()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and _alive(told):
        time.sleep(0.1)
    assert not _alive(told)
    # The embedded server was started by the one that was killed; the last of its children stops it.
    assert not (home / "postgres" / "data" / "postmaster.pid").exists()


def _alive(told):
    """The children of which something is left: each leads a process group of its own."""
    groups = {str(pid): name for name, pid in told["processes"].items()}
    left = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            state, _, group = stat[:3]
            if group in groups and state != "Z":  # a dead one that nobody asked about yet
                left.append(groups[group])
    return left
