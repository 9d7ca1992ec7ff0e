"""Processes that are killed, fork, share a queue, or end while the server hangs."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from steersman.client import Client
from steersman_client.core import Core
from steersman_client.exchange import Wait

LOGGER = """
import os, sys
from steersman.client import Client

client = Client(sys.argv[1], sys.argv[2], queue_dir=sys.argv[3])
for number in range(int(sys.argv[4])):
    name = client.submit_feedback(episode="e", outcomes={"n": number})
    os.write(1, name.encode() + b"\\n")
"""
ASYNC_LOGGER = """
import asyncio, os, sys
from steersman.client import AsyncClient

client = AsyncClient(sys.argv[1], sys.argv[2], queue_dir=sys.argv[3])

async def tell():
    for number in range(int(sys.argv[4])):
        name = await client.submit_feedback(episode="e", outcomes={"n": number})
        os.write(1, name.encode() + b"\\n")

asyncio.run(tell())
"""
DECIDER = """
import os, sys
from steersman.client import Client

client = Client(sys.argv[1], sys.argv[2], queue_dir=sys.argv[3], retries=0)
while True:
    decision = client.decide("mail", "tone", {}, default="plain")
    if decision.degraded:
        os.write(1, str(decision.decision_id).encode() + b"\\n")
        os.write(1, client.task_result(decision, outcomes={"done": 1}).encode() + b"\\n")
"""


@pytest.fixture
def start(server, key, tmp_path):
    """Start a Python process with the server's address, the key and the queue as arguments."""
    started = []

    def run(code, *more, url=None):
        command = [sys.executable, "-c", code, url or server.url, key, str(tmp_path), *more]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def read_until(process, lines):
    """Return at least so many whole lines that the process wrote."""
    heard = b""
    while heard.count(b"\n") < lines:
        piece = os.read(process.stdout.fileno(), 1 << 16)
        assert piece, process.stderr.read().decode()
        heard += piece
    return heard


def killed_after(process, lines, pause):
    """Kill a process some time after it wrote so many lines; return all it wrote."""
    heard = read_until(process, lines)
    time.sleep(pause)
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    # A line that was cut short was never acknowledged to anybody.
    return [line.decode() for line in (heard + rest).split(b"\n")[:-1]]


def drained(server, key, folder):
    server.always = None
    with Client(server.url, key, queue_dir=folder) as client:
        assert client.flush(30) == 0
        assert client.backlog().refused == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_killed_process_loses_nothing_it_was_acknowledged(start, server, key, tmp_path, seed):
    rng = random.Random(seed)
    server.always = rng.choice([None, None, 503, "drop"])
    code = rng.choice([LOGGER, DECIDER]) if server.always else LOGGER
    process = start(code, "1000000")
    told = killed_after(process, rng.randint(1, 200), rng.random() * 0.1)
    drained(server, key, tmp_path)
    assert set(told) <= set(server.stored)
    # At most the one row that was on disk and not yet written to the pipe.
    assert len(server.stored) - len(told) in {0, 1}


def test_a_killed_process_loses_nothing_in_short(start, server, key, tmp_path):
    told = killed_after(start(LOGGER, "1000000"), 50, 0.0)
    drained(server, key, tmp_path)
    assert set(told) <= set(server.stored)


def test_a_process_delivers_at_its_end_what_it_told(start, server):
    process = start(LOGGER, "5")
    told, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, b"")
    assert server.order == told.decode().split()


@pytest.mark.parametrize(
    ("logger", "fault"),
    [(LOGGER, "hang"), (LOGGER, 503), (LOGGER, "drop"), (ASYNC_LOGGER, "hang")],
    ids=["hang", "503", "drop", "async"],
)
def test_the_end_of_a_process_waits_a_second_at_most(start, server, logger, fault):
    server.always = fault
    code = logger + "import time; os.write(1, f'end {time.time()}'.encode())"
    process = start(code, "5")
    told, errors = process.communicate(timeout=30)
    ended = time.time()
    assert (process.returncode, errors.count(b"Traceback")) == (0, 0)
    # A second for us, as the next test measures, and some for an interpreter on a busy machine.
    assert ended - float(told.split()[-1]) < 1.0 + 2.0


CLOCKED = """
import atexit, os, types

waited = []
atexit.register(lambda: os.write(1, f"{sum(waited)}".encode()))  # the first one is called last
from steersman_client import outbox

outbox.time = types.SimpleNamespace(monotonic=lambda: sum(waited), sleep=waited.append)
"""


@pytest.mark.parametrize("logger", [LOGGER, ASYNC_LOGGER], ids=["sync", "async"])
def test_the_end_of_a_process_gives_the_server_a_second_and_no_more(start, server, logger):
    """By a clock that runs only while somebody waits: how busy the machine is does not show."""
    server.always = "hang"
    told, errors = start(CLOCKED + logger, "1").communicate(timeout=30)
    assert errors == b""
    assert float(told.split()[-1]) == pytest.approx(1.0, abs=0.015)


def test_closing_gives_the_server_a_second_and_no_more(
    kind, server, key, tmp_path, monkeypatch, eventually
):
    """By a clock that runs only while somebody waits, again."""
    waited = []

    def wait(seconds):
        waited.append(seconds)
        return Wait(0.0)

    monkeypatch.setattr("steersman_client.core.Wait", wait)
    monkeypatch.setattr("steersman_client.base.Core", partial(Core, clock=lambda: sum(waited)))
    server.always = "hang"
    client = kind(server.url, key, queue_dir=tmp_path)
    client.submit_feedback(episode="e", outcomes={"n": 1})
    eventually(lambda: server.calls)
    began = time.monotonic()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "join", lambda _, timeout=0.0: waited.append(timeout))
        client.close()
    assert time.monotonic() - began < 5  # nor does it wait for the request that hangs
    assert sum(waited) == pytest.approx(1.0)
    getattr(client, "end", client.close)()


def test_a_process_with_nothing_to_tell_ends_at_once(start, server):
    server.always = "hang"
    told, errors = start(CLOCKED + LOGGER, "0").communicate(timeout=30)
    assert (errors, float(told)) == (b"", 0.0)


def test_processes_share_a_queue(start, server, key, tmp_path):
    processes = [start(LOGGER, "200") for _ in range(3)]
    told = [name for one in processes for name in one.communicate(timeout=60)[0].decode().split()]
    drained(server, key, tmp_path)
    assert len(set(told)) == 600
    assert set(server.stored) == set(told)
    # The lease keeps them from sending the same rows; only the end of a process may repeat a batch.
    assert sum(server.sent.values()) < 1200


def test_what_a_dead_process_left_is_sent_by_one_that_lives(start, server, key, tmp_path):
    server.always = 503
    told = killed_after(start(LOGGER, "1000000"), 20, 0.0)
    server.always = None
    with Client(server.url, key, queue_dir=tmp_path) as client:
        mine = client.submit_feedback(episode="e", outcomes={"mine": 1})
        assert client.flush(30) == 0
    assert {mine, *told} <= set(server.stored)


PREFORK = """
import os, sys, threading
from steersman.client import Client

client = Client(sys.argv[1], sys.argv[2], queue_dir=sys.argv[3])
client.decide("mail", "tone", {})
names = [client.submit_feedback(episode="before", outcomes={"n": 1})]
stop = threading.Event()

def chatter():
    while not stop.is_set():
        names.append(client.submit_feedback(episode="thread", outcomes={"n": 1}))
        client.decide("mail", "tone", {})

thread = threading.Thread(target=chatter)
thread.start()
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        own = []
        for _ in range(20):
            decision = client.decide("mail", "tone", {"child": number})
            own.append(client.task_result(decision, outcomes={"child": number}))
        assert client.flush(30) == 0
        os.write(1, "".join(f"{name}\\n" for name in own).encode())
        os._exit(0)
    children.append(child)
stop.set()
thread.join()
for child in children:
    _, status = os.waitpid(child, 0)
    assert status == 0, status
names.append(client.submit_feedback(episode="after", outcomes={"n": 1}))
assert client.flush(30) == 0
os.write(1, "".join(f"{name}\\n" for name in names).encode())
"""


@pytest.mark.parametrize("attempt", range(3))
def test_parent_and_children_of_a_fork_both_work(start, server, attempt):
    process = start(PREFORK)
    told, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.decode()) == (0, "")
    names = told.decode().split()
    assert len(names) == len(set(names)) >= 82
    assert set(server.stored) == set(names)


AT_ONCE = """
import os, sys, threading
from steersman.client import Client

clients = [Client(sys.argv[1], sys.argv[2], queue_dir=f"{sys.argv[3]}/{n}") for n in range(3)]

def fork():
    for _ in range(50):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

threads = [threading.Thread(target=fork) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for client in clients:
    name = client.submit_feedback(episode="after", outcomes={"n": 1})
    assert client.flush(10) == 0
    os.write(1, name.encode() + b"\\n")
"""


def test_threads_that_fork_at_once_leave_each_others_locks_alone(start, server):
    process = start(AT_ONCE)
    told, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.decode()) == (0, "")
    assert set(told.decode().split()) == set(server.stored)
    assert len(server.stored) == 3


def test_connecting_imports_nothing_that_a_fork_could_cut_in_half():
    # The codec of host names: half of it in a child, and no address is ever found there.
    code = "import sys, steersman.client; print('encodings.idna' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


PARTING = """
import os, sys
from steersman.client import Client

client = Client(sys.argv[1], sys.argv[2], queue_dir=sys.argv[3])
client.submit_feedback(episode="before", outcomes={"n": 1})
go, closed = os.pipe()
child = os.fork()
if child == 0:
    names = [client.submit_feedback(episode="child", outcomes={"n": 1}) for _ in range(20)]
    os.read(go, 1)
    names += [client.submit_feedback(episode="child", outcomes={"n": 1}) for _ in range(20)]
    os.write(1, "".join(f"{name}\\n" for name in names).encode())
    os._exit(0)
client.close()
os.write(closed, b".")
os.waitpid(child, 0)
"""


def test_a_parent_that_closes_does_not_take_away_what_its_child_writes(
    start, server, key, tmp_path
):
    # With a copied SQLite handle, the parent would delete the journal that the child writes to.
    server.always = 503
    told, errors = start(PARTING).communicate(timeout=60)
    assert errors.count(b"Traceback") == 0
    names = told.decode().split()
    assert len(names) == 40
    drained(server, key, tmp_path)
    assert set(names) <= set(server.stored)


ASYNC = """
import asyncio, os, sys
from steersman.client import AsyncClient

client = AsyncClient(sys.argv[1], sys.argv[2], queue_dir=sys.argv[3])

async def work():
    decision = await client.decide("mail", "tone", {})
    return await client.task_result(decision, outcomes={"done": 1})

names = [asyncio.run(work())]
child = os.fork()
names.append(asyncio.run(work()))
os.write(1, "".join(f"{name}\\n" for name in names[1 if child == 0 else 0:]).encode())
if child:
    _, status = os.waitpid(child, 0)
    assert status == 0, status
asyncio.run(client.close())
"""


def test_an_async_client_serves_one_loop_after_another_and_forks(start, server):
    process = start(ASYNC)
    told, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.decode()) == (0, "")
    assert set(server.stored) == set(told.decode().split())
    assert len(server.stored) == 3
