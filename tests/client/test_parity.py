"""Sync and async behave alike: the same script of a server gives the same calls and results."""

import inspect
import random

import pytest

from steersman.client import AsyncClient, Client
from steersman_client.errors import ServiceError

FAULTS = [
    None, None, None, 408, 429, 500, 502, 503, 504, "drop", "garbage",
    401, 404, 409, 422, (302, {}, b"elsewhere"), (503, {"Retry-After": "60"}),
]  # fmt: skip


def play(client, server, seed):
    rng = random.Random(seed)
    server.script = [rng.choice(FAULTS) for _ in range(40)]
    told = []
    for index in range(8):
        default = rng.choice([None, "plain"])
        try:
            decision = client.decide("mail", "tone", {"i": index}, default=default)
            told.append((decision.action, decision.degraded))
        except ServiceError as error:
            told.append((type(error).__name__, str(error)))
    return told


def normal(calls):
    return [
        (call["path"], {k: v for k, v in call["body"].items() if k != "idempotency_key"})
        for call in calls
        if call["path"] == "/v1/decide"
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_script_gives_the_same_calls(scripted, kinds, key, tmp_path, seed):
    results = []
    for kind in kinds:
        server = scripted()
        client = kind(server.url, key, queue_dir=tmp_path / kind.__name__, timeout_ms=8000)
        results.append((play(client, server, seed), normal(server.calls)))
        getattr(client, "end", client.close)()
        server.close()
    assert results[0] == results[1]


def test_both_have_the_same_methods_with_the_same_arguments_and_words():
    public = {name for name in dir(Client) if not name.startswith("_")}
    assert public == {name for name in dir(AsyncClient) if not name.startswith("_")}
    for name in public - {"answered_locally", "queue_path"}:
        first, second = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.signature(first) == inspect.signature(second)
        assert first.__doc__ == second.__doc__
