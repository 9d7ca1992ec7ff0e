"""The load guard rises quickly, falls slowly, and sheds in the declared order."""

from __future__ import annotations

import asyncio

import pytest

from steersman.serving.load_guard import Guard, GuardianState, GuardLimits
from steersman.wire import Refused


class World:
    """A clock and a queue that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.depth = 0
        self.guard = Guard(lambda: self.depth, lambda: self.now, GuardLimits())

    def run(self, seconds: float, *, depth: int = 0, latency_s: float = 0.0, every: int = 1) -> str:
        """Let time pass; 50 decisions a second are answered, in every so-many-th tick."""
        self.depth = depth
        for tick in range(round(seconds * 10)):
            if latency_s and tick % every == 0:
                for _ in range(5 * every):
                    self.guard.observe(latency_s)
            self.now += 0.1
            self.guard.tick()
        return self.guard.state.name


def test_calm_is_normal() -> None:
    assert World().run(60, depth=900, latency_s=0.1) == "NORMAL"


def test_a_short_peak_changes_nothing() -> None:
    world = World()
    assert world.run(0.2, depth=9_000) == "NORMAL"
    assert world.run(0.2) == "NORMAL"
    assert world.run(0.2, depth=9_000) == "NORMAL"


def test_a_moment_of_a_higher_level_does_not_count_as_long() -> None:
    world = World()
    world.run(0.4, depth=2_000)
    assert world.run(0.1, depth=10_000) == "BROWNOUT"
    assert world.run(0.2, depth=10_000) == "BROWNOUT"
    assert world.run(1.0, depth=10_000) == "LOCKDOWN"


@pytest.mark.parametrize(
    ("depth", "latency_s", "state"),
    [
        (2_000, 0.0, "BROWNOUT"),
        (0, 0.25, "BROWNOUT"),
        (10_000, 0.0, "LOCKDOWN"),
        (0, 2.0, "LOCKDOWN"),
        (9_999, 1.9, "BROWNOUT"),
    ],
)
def test_depth_and_latency_raise_the_state(depth: int, latency_s: float, state: str) -> None:
    assert World().run(1, depth=depth, latency_s=latency_s) == state


def test_answers_that_come_in_bursts_are_as_slow_as_others() -> None:
    assert World().run(2, latency_s=0.8, every=8) == "BROWNOUT"


def test_a_few_slow_decisions_are_no_load() -> None:
    world = World()
    for _ in range(19):
        world.guard.observe(30.0)
    assert world.run(5) == "NORMAL"
    assert world.guard.latency_ms == 0.0


def test_latency_of_the_past_is_forgotten() -> None:
    world = World()
    assert world.run(1, latency_s=0.5) == "BROWNOUT"
    assert world.guard.latency_ms == pytest.approx(500)
    world.run(1)
    assert world.guard.latency_ms == 0.0
    assert world.run(3.2) == "NORMAL"


def test_it_falls_step_by_step_and_only_well_below_the_limit() -> None:
    world = World()
    assert world.run(1, depth=20_000) == "LOCKDOWN"
    assert world.run(60, depth=6_000) == "LOCKDOWN"  # below the limit, but not well below
    assert world.run(2.9, depth=900) == "LOCKDOWN"
    assert world.run(0.3, depth=900) == "BROWNOUT"
    assert world.run(3.2, depth=900) == "NORMAL"
    assert world.guard.changes == 3


def test_it_does_not_flap_around_a_limit() -> None:
    world = World()
    for _ in range(100):
        world.run(0.5, depth=2_100)
        world.run(0.5, depth=1_900)
    assert world.guard.changes == 1


@pytest.mark.parametrize(
    ("state", "shed"),
    [
        (GuardianState.NORMAL, set()),
        (GuardianState.BROWNOUT, {"read", "large_batch"}),
        (GuardianState.LOCKDOWN, {"read", "large_batch", "events"}),
    ],
)
def test_what_is_shed_in_which_state(state: GuardianState, shed: set[str]) -> None:
    guard = World().guard
    guard.state = state
    for what in ("read", "large_batch", "events"):
        if what not in shed:
            guard.refuse(what)
            continue
        with pytest.raises(Refused) as refused:
            guard.refuse(what)
        assert refused.value.problem.status == 503
        assert refused.value.problem.retry_after_s


async def test_the_interface_sheds_as_declared_and_always_decides(serving) -> None:
    decide = {"skill": "search", "decision": "depth", "context": {"intent": "refund"}}
    async with serving() as s:
        s.service.guard.tick = lambda: None  # the state is ours now
        assert (await s.ask("POST", "/v1/decide", decide)).body["degraded"] is False

        async def statuses() -> list[int]:
            asked = [
                ("GET", "/rl-status", None),
                ("GET", "/v1/keys", None),
                ("POST", "/v1/decide", {"requests": [decide] * 101}),
                ("POST", "/v1/events", {"events": [], "records": []}),
                ("POST", "/v1/decide", {"requests": [decide] * 100}),
                ("POST", "/v1/decide", decide),
                ("GET", "/healthz", None),
            ]
            return [(await s.ask(*one)).status for one in asked]

        s.service.guard.state = GuardianState.BROWNOUT
        assert await statuses() == [503, 503, 503, 200, 200, 200, 200]
        s.service.guard.state = GuardianState.LOCKDOWN
        assert await statuses() == [503, 503, 503, 503, 200, 200, 200]
        answer = await s.ask("POST", "/v1/decide", decide)
        assert (answer.body["degraded"], answer.body["logged"]) == (True, False)
        assert answer.body["record"]
        refused = await s.ask("GET", "/rl-status")
        assert int(refused.headers["retry-after"]) >= 1
        s.service.guard.state = GuardianState.NORMAL
        stored = await s.ask("POST", "/v1/events", {"records": [answer.body["record"]]})
        assert stored.body["results"][0]["status"] == "stored"


@pytest.mark.slow
async def test_decisions_that_wait_for_the_store_bring_a_brownout(serving, database) -> None:
    slow = {"skill": "search", "decision": "depth", "deadline_ms": 400}
    async with serving() as s:
        assert (await s.ask("POST", "/v1/decide", {**slow, "deadline_ms": 9000})).status == 200
        lock = await database.connect(None)
        transaction = lock.transaction()
        await transaction.start()
        await lock.execute("LOCK TABLE steersman.decision IN ACCESS EXCLUSIVE MODE")
        until = asyncio.get_running_loop().time() + 10

        async def ask_on() -> None:
            while s.service.guard.state < GuardianState.BROWNOUT:
                assert asyncio.get_running_loop().time() < until
                answer = await s.ask("POST", "/v1/decide", slow)
                assert (answer.status, answer.body["logged"]) == (200, "unknown")

        try:
            await asyncio.gather(*(ask_on() for _ in range(24)))
            assert s.service.guard.depth() < 2_000  # so it was their latency
            assert 250 <= s.service.guard.latency_ms < 2_000
            assert (await s.ask("GET", "/rl-status")).status == 503
            metrics = (await s.ask("GET", "/metrics")).body.decode()
            assert 'steersman_guardian_state{process="0"} 1.0' in metrics
        finally:
            await transaction.rollback()
            await lock.close()
        await s.until(lambda: s.service.guard.state == GuardianState.NORMAL)
        assert (await s.ask("GET", "/rl-status")).status == 200
