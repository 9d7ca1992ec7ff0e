"""Whatever is logged, at whatever level, and however requests go wrong: no key, no secret."""

from __future__ import annotations

import asyncio
import re

import pytest

from steersman.db.secret import load_secret
from tests.faults.traffic import traffic


@pytest.mark.slow
async def test_no_log_holds_a_key_or_the_secret(made):
    made.environment["STEERSMAN_LOG_LEVEL"] = "DEBUG"
    made.environment["PYTHONASYNCIODEBUG"] = "1"
    access = await made.tenant("one")
    await asyncio.to_thread(made.start_service)
    made.start_learner()
    async with asyncio.timeout(60):
        # So that the learner, too, sees the server go and come.
        while '"level":"DEBUG"' not in made.log("learner").read_text():  # noqa: ASYNC110 (a file)
            await asyncio.sleep(0.05)
    async with traffic(made, access) as asking:
        async with asking.flowing(clients=3):
            await asyncio.sleep(1.0)
            await asyncio.to_thread(made.kill_postgres)
            await asyncio.sleep(0.5)
            await asyncio.to_thread(made.start_postgres)
            await asyncio.sleep(1.0)
        shown = [access.key]
        status, made_key = await asking.post("/v1/keys", {"name": "second", "role": "observer"})
        assert status == 201
        shown.append(made_key["key"])
        status, rotated = await asking.post(f"/v1/keys/{made_key['id']}/rotate", {"grace_s": 0})
        assert status == 201
        shown.append(rotated["key"])
        # A key where it does not belong is the likeliest way into a log.
        for body in (
            {"skill": access.key},
            {"skill": "search", "decision": access.key},
            [access.key],
        ):
            status, _ = await asking.post("/v1/decide", body)
            assert status in {404, 422}
        for path in (f"/v1/{access.key}", f"/v1/decisions/{access.key}/explain?key={access.key}"):
            assert (await asking.get(path))[0] == 404
        event = {"event_id": access.key, "episode_id": access.key, "type": "task_result"}
        await asking.post("/v1/events", {"events": [event], "records": [access.key]})
        status, metrics = await asking.get("/metrics")
        assert status == 200
        status, openapi = await asking.get("/openapi.json")
        assert status == 200
    for name in ("service", "learner"):
        made.stop(name)
    secret = load_secret(made.home).hex()
    texts = {path.name: path.read_text() for path in made.home.glob("*.out")}
    texts["postgres"] = (made.home / "postgres" / "log").read_text(errors="replace")
    texts |= {"metrics": metrics.decode(), "openapi": openapi.decode()}
    assert '"level":"WARNING"' in texts["service.out"]
    for name, text in texts.items():
        assert secret not in text.lower(), name
        for key in shown:
            assert key[11:] not in text, name
        assert not re.search(r"sk_[A-Za-z0-9]{20}", text), name
