"""Traffic that remembers every answer: what was promised can then be looked for in the store.

Clients here are as a careful application would be: a question with an idempotency key is asked
again until it is answered, an event is sent again until it is acknowledged, records go with it.
Nothing of the product's own client is used, so that its mistakes cannot hide the service's.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import msgspec

from steersman.wire import new_id

FAILURES = (aiohttp.ClientError, TimeoutError, OSError)
_OUTCOMES = ({"success": 1}, {"success": 0}, {"success": 1, "clicked": 1}, {"clicked": 1})


@dataclass
class Ledger:
    """What the services answered.

    Attributes:
        answers: Decisions, in the order in which they were answered.
        by_key: Those that were asked with an idempotency key.
        outcomes: Of acknowledged events, by event id: the decision, and its outcomes.
        records: Ids of decisions whose record was acknowledged.
        lost: Requests that got no answer.
    """

    answers: list = field(default_factory=list)
    by_key: dict = field(default_factory=dict)
    outcomes: dict = field(default_factory=dict)
    records: set = field(default_factory=set)
    lost: int = 0

    @property
    def logged(self):
        """Return those answered ``logged: true``, by id."""
        return {a["decision_id"]: a for a in self.answers if a["logged"] is True}

    @property
    def unknown(self):
        """Return the others that were drawn by the policy, by id."""
        return {
            a["decision_id"]: a
            for a in self.answers
            if a["logged"] == "unknown" and not a["degraded"]
        }

    @property
    def degraded(self):
        """Return those that the fallback answered, by id."""
        return {a["decision_id"]: a for a in self.answers if a["degraded"]}


class Traffic:
    """Asks and reports for one tenant.

    Args:
        session: Of aiohttp.
        urls: Returns where the services are now.
        key: API key.
        seed: Of everything that is random.
    """

    def __init__(self, session, urls, key, *, seed=0):
        self.ledger = Ledger()
        self.rng = random.Random(seed)
        self._session = session
        self.urls = urls
        self._headers = {
            "authorization": f"Bearer {key}",
            "content-type": "application/json",
        }

    async def post(self, path, body, *, url=None):
        """Return (status, body) of one request, or None if there was no answer."""
        url = url or self.rng.choice(self.urls())
        try:
            async with self._session.post(
                url + path, data=msgspec.json.encode(body), headers=self._headers
            ) as answer:
                return answer.status, msgspec.json.decode(await answer.read() or b"null")
        except FAILURES:
            return None

    async def get(self, path):
        """Return (status, bytes) of one request."""
        url = self.rng.choice(self.urls())
        async with self._session.get(url + path, headers=self._headers) as answer:
            return answer.status, await answer.read()

    async def status(self, url):
        """Return how the points stand in one service, with the SHA-256 of each state it holds."""
        where = f"{url}/rl-status?states=true"
        async with self._session.get(where, headers=self._headers) as answer:
            assert answer.status == 200
            return msgspec.json.decode(await answer.read())["points"]

    async def decide(self, *, keyed, url=None, tries=400, **more):
        """Return a decision; without a key there is one try, which may get None."""
        body = {
            "skill": "search",
            "decision": "depth",
            "context": {"intent": self.rng.choice("abcd"), "length": self.rng.gauss(0, 1)},
            **more,
        }
        if keyed:
            body["idempotency_key"] = f"k-{new_id().hex}"
        for _ in range(tries if keyed else 1):
            answer = await self.post("/v1/decide", body, url=url)
            if answer is not None and answer[0] == 200:
                self.note(answer[1], body.get("idempotency_key"))
                return answer[1]
            assert answer is None or answer[0] in {429, 503}, answer
            await asyncio.sleep(0.05)
        self.ledger.lost += 1
        return None

    def note(self, answer, key=None):
        """Remember a decision."""
        self.ledger.answers.append(answer)
        if key is not None:
            self.ledger.by_key.setdefault(key, []).append(answer)

    async def report(self, decision, outcomes, *, tries=600):
        """Send an event, with the record of its decision, until it is acknowledged."""
        event = {
            "event_id": f"e-{new_id().hex}",
            "decision_id": decision["decision_id"],
            "type": "feedback.submit",
            "outcomes": outcomes,
        }
        records = [decision["record"]] if decision.get("record") else []
        for _ in range(tries):
            answer = await self.post("/v1/events", {"records": records, "events": [event]})
            if answer is not None and answer[0] == 200:
                *stored, result = answer[1]["results"]
                if all(one["status"] != "refused" for one in stored):
                    self.ledger.records.update(one["id"] for one in stored)
                if result["status"] != "refused":
                    self.ledger.outcomes[event["event_id"]] = (decision["decision_id"], outcomes)
                    return
                assert result["problem"]["status"] == 503 or stored, result
            else:
                assert answer is None or answer[0] in {429, 503}, answer
            await asyncio.sleep(0.05)
        message = f"an event was not acknowledged: {answer}"
        raise AssertionError(message)

    async def run(self, stop, *, pause_s=0.0):
        """Ask and report until it is enough."""
        while not stop.is_set():
            decision = await self.decide(keyed=self.rng.random() < 0.5)
            if decision is not None and self.rng.random() < 0.8:
                await self.report(decision, self.rng.choice(_OUTCOMES))
                if self.rng.random() < 0.2:
                    await self.report(decision, {"success": self.rng.choice((0.25, 0.5))})
            await asyncio.sleep(pause_s)

    @asynccontextmanager
    async def flowing(self, clients=8, *, pause_s=0.005):
        """Let several clients ask and report meanwhile; afterwards all is acknowledged."""
        stop = asyncio.Event()
        tasks = [asyncio.create_task(self.run(stop, pause_s=pause_s)) for _ in range(clients)]
        try:
            yield
        except BaseException:
            for task in tasks:
                task.cancel()
            raise
        stop.set()
        await asyncio.gather(*tasks)


@asynccontextmanager
async def traffic(made, access, *, seed=0, timeout_s=5.0):
    """Return traffic of a tenant to all services of an installation."""
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield Traffic(session, lambda: made.urls, access.key, seed=seed)
