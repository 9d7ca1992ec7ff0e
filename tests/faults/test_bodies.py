"""Bodies that are nearly right: cut, flipped, nested, doubled; refused, and no failure of ours."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import aiohttp
import msgspec
import pytest

from steersman.wire import new_id

BODIES = {
    "/v1/decide": {
        "skill": "search",
        "decision": "depth",
        "context": {"intent": "größe", "length": 1.5},
        "eligible": ["shallow", "deep"],
        "episode_id": "e-1",
        "deadline_ms": 5000,
    },
    "/v1/events": {
        "events": [
            {
                "event_id": "v-1",
                "episode_id": "e-1",
                "type": "task_result",
                "outcomes": {"success": 1.0, "clicked": True},
                "body": {"text": "fine", "list": [1, 2.5, None, {"a": -1}]},
            }
        ],
        "records": [{"decision_id": str(new_id(1.8e9)), "skill": "search", "decision": "depth"}],
    },
}
_TOKENS = (b"1e999", b"-0", b"NaN", b"null", b"[]", b"{}", b'"\\ud800"', b'"\\u0000"', b"9" * 400)


def _mutated(rng, body):
    """Return a body that was right before something happened to it."""
    text = bytearray(body)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(text))
        kind = rng.randrange(6)
        if kind == 0:
            text[place] = rng.randrange(256)
        elif kind == 1:
            del text[place : place + rng.randint(1, 8)]
        elif kind == 2:
            text[place:place] = rng.choice(_TOKENS)
        elif kind == 3:
            text[place:place] = text[place : place + rng.randint(1, 40)]
        elif kind == 4:
            text = bytearray(bytes(text).replace(b":", b":" + b"[" * rng.choice((1, 40, 4000)), 1))
        else:
            del text[place:]
        text = text or bytearray(b"{")
    return bytes(text)


@pytest.mark.slow
@pytest.mark.parametrize("path", BODIES)
async def test_bodies_that_are_nearly_right_are_no_failures_of_ours(made, path):
    rng = random.Random(len(path))
    access = await made.tenant("one")
    await asyncio.to_thread(made.start_service)
    headers = {"authorization": f"Bearer {access.key}", "content-type": "application/json"}
    right = msgspec.json.encode(BODIES[path])
    seen = Counter()
    async with aiohttp.ClientSession(headers=headers) as session:
        for _ in range(600):
            body = _mutated(rng, right)
            async with session.post(made.url("service") + path, data=body) as answer:
                text = await answer.read()
                seen[answer.status] += 1
                assert answer.status < 500, (body, text)
                assert msgspec.json.decode(text)
        async with session.post(made.url("service") + path, data=right) as answer:
            assert answer.status == 200
    assert seen[400] > 100
    assert "Traceback" not in made.log("service").read_text()
