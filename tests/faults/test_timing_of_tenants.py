"""How long an answer takes does not tell a tenant what another one has."""

from __future__ import annotations

import statistics
import time

import msgspec
import pytest

from steersman.wire import new_id
from tests.faults.data_rules import filled
from tests.faults.harness import POINT, SECRET, installation
from tests.faults.kept_connection import Http
from tests.faults.rollout_rules import rolled_out
from tests.kept import kept, run

PAIRS = 100
ATTEMPTS = 6
LENGTH_OF_ID = 36
REASON = {"reason": "curious"}
OUTCOME = {"outcomes": {"success": 1}}
DEPTH = {"skill": "search", "decision": "depth"}
TIMED = {  # what is looked for, and how; ID is its name
    "explain": ("decision", "GET", "/v1/decisions/ID/explain", None),
    "event": ("decision", "POST", "/v1/task_result", {"decision_id": "ID", **OUTCOME}),
    "erase": ("decision", "POST", "/v1/units/erase", {"decisions": ["ID"], **REASON}),
    "export": ("unit", "POST", "/v1/units/export", {"unit": "ID"}),
    "erase a unit": ("unit", "POST", "/v1/units/erase", {"unit": "ID", **REASON}),
    "end a key": ("key", "DELETE", "/v1/keys/ID", None),
    "rotate a key": ("key", "POST", "/v1/keys/ID/rotate", {"grace_s": 0}),
    "rollout": ("rollout", "GET", "/v1/rollouts/ID", None),
    "pause": ("rollout", "POST", "/v1/rollouts/ID/pause", REASON),
    "candidate": ("version", "POST", "/v1/rollouts", {**DEPTH, "candidate": "ID", **REASON}),
    "retract": ("version", "POST", "/v1/snapshots/retract", {**DEPTH, "version": "ID", **REASON}),
    "key of a call": (
        "idempotency key",
        "POST",
        "/v1/decide",
        {**DEPTH, "idempotency_key": "ID"},
    ),
    "decide": ("point", "POST", "/v1/decide", {"skill": "ID", "decision": "depth"}),
    "search": ("corpus", "POST", "/v1/search", {"corpus": "ID", "query": "pump"}),
    "document": ("corpus", "POST", "/v1/documents", {"corpus": "ID", "doc_id": "same.md"}),
}


@pytest.fixture(scope="module")
def service(cluster):
    """Return an installation with one service, for all tests here."""
    with installation(cluster) as made, kept(made.database) as made.database:
        made.start_service()
        http = Http(made.url("service"))
        yield made, http
        http.close()


def _of_the_first(made, http, access):
    """Give a tenant all that the other may look for; return names of it, by kind."""
    keys = [f"k-{n:04}" for n in range(PAIRS)]
    body = {"requests": [{**DEPTH, "unit": "unit", "idempotency_key": key} for key in keys]}
    _, text = http.call(access, "POST", "/v1/decide", body)
    decisions = [one["decision_id"] for one in msgspec.json.decode(text)["decisions"]]
    _, text = http.call(access, "POST", "/v1/keys", {"name": "k", "role": "observer"})
    rollout = run(rolled_out(made.database, access.tenant, "0.1.7"))
    run(filled(made.database, access.tenant, 0))
    return {
        "decision": decisions,
        "idempotency key": keys,
        "key": [msgspec.json.decode(text)["id"]],
        "rollout": [rollout],
        "unit": ["unit"],
        "version": ["0.1.7"],
        "point": ["hidden"],
        "corpus": ["hidden"],
    }


def _name_like(name):
    """Return one that nobody has, of the same length."""
    return str(new_id()) if len(name) == LENGTH_OF_ID else name[::-1]


@pytest.fixture(scope="module")
def pair(service):
    """Return a tenant that has nothing of its own, and names of what another has."""
    made, http = service
    owner = run(made.tenant("owner", POINT, SECRET))
    other = run(made.tenant("curious"))
    return other, _of_the_first(made, http, owner)


@pytest.mark.slow
@pytest.mark.parametrize("way", TIMED)
def test_the_time_of_an_answer_does_not_tell_whether_something_is_anothers(service, pair, way):
    """Medians of alternating pairs within a fifth of each other.

    What an extra query or a second row would cost, half a look-up or more, is seen; a few
    microseconds are not, nor could they be over a network. Some attempts, since other programs
    share the machine: a difference that is real is there every time.
    """
    (_, http), (curious, theirs) = service, pair
    kind, method, path, body = TIMED[way]

    def ask(name):
        sent = body and msgspec.json.decode(msgspec.json.encode(body).replace(b"ID", name.encode()))
        begun = time.perf_counter()
        status, _ = http.call(curious, method, path.replace("ID", name), sent)
        return status, time.perf_counter() - begun

    for _ in range(ATTEMPTS):
        times = {"foreign": [], "unknown": []}
        for turn, name in enumerate((theirs[kind] * PAIRS)[:PAIRS]):
            names = {"foreign": name, "unknown": _name_like(name)}
            # either comes first as often: what takes its time at every other call tells nothing
            answers = {which: ask(names[which]) for which in sorted(names, reverse=turn % 2)}
            assert answers["foreign"][0] == answers["unknown"][0]
            for which, (_, taken) in answers.items():
                times[which].append(taken)
        low, high = sorted(statistics.median(values) for values in times.values())
        if high - low < 0.2 * low:
            return
    pytest.fail(f"medians differ: {low} and {high}")
