"""What the log says of a candidate, and how it does in the shadow."""

from dataclasses import replace
from datetime import UTC, datetime
from math import log
from uuid import uuid4

import numpy as np
import pytest

from steersman.db.logged_choices import LoggedChoice
from steersman.errors import RolloutError
from steersman.ope import Estimate
from steersman.points.policy_factory import build
from steersman.policies import Fixed
from steersman.rollouts.candidate import Candidate
from steersman.rollouts.candidate_evidence import (
    Shadow,
    least_value,
    logged_choices,
    off_policy,
    shadow,
)
from steersman.rollouts.plan import plan_of
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason
from steersman.spec.loader import loads
from steersman.spec.point import Gates
from tests.rollouts.world import NoSigner, check_history, document, world

NAMES = ("shallow", "middle", "deep")


def fixed(action):
    spec = loads(document())
    return Candidate.of(Fixed(NAMES, action), spec)


@pytest.fixture
def asked(database, tenant):
    async def ask(log):
        w = await world(database, tenant.id, log=log)
        key = tenant.id, w.row.skill, w.row.point
        closed = datetime.fromtimestamp(w.clock.now, UTC)
        logged = await w.read(lambda it: logged_choices(it, key, closed=closed))
        return plan_of(w.row.spec, salt="s"), logged

    return ask


async def test_the_log_tells_good_from_bad_and_its_own_mean(asked):
    plan, logged = await asked(900)
    assert len(logged) == 900
    deep, shallow = (off_policy(fixed(it), logged, gates=plan) for it in ("deep", "shallow"))
    assert deep.reasons == shallow.reasons == ()
    assert deep.low < 0.9 < deep.high
    assert shallow.low < 0.2 < shallow.high
    assert 250 < deep.effective_sample_size < 350
    assert abs(deep.control - 0.43) < 0.06


async def test_too_little_is_refused_with_its_reason(asked):
    plan, logged = await asked(90)
    found = off_policy(fixed("deep"), logged, gates=plan)
    assert found.value is None
    assert any("overlap" in reason or "effective sample" in reason for reason in found.reasons)
    assert "0 logged decisions" in off_policy(fixed("deep"), [], gates=plan).reasons[0]
    silent = Candidate.of(
        Fixed(NAMES, "deep"), loads(document().replace("floor: 0.3", "floor: 0\nexplore: none"))
    )
    assert "explore: none" in off_policy(silent, logged, gates=plan).reasons[0]


async def test_a_log_that_is_asked_until_it_is_enough_is_asked_strictly(asked):
    """The lower end of one look, looked at every half minute, reaches any value nearby."""
    plan, logged = await asked(900)
    once = off_policy(fixed("deep"), logged, gates=plan)
    assert off_policy(fixed("deep"), logged, gates=plan, often=True) == once
    unseen = once.value * log(40) / once.effective_sample_size
    near = replace(plan, min_value=once.low - unseen - 0.001)
    assert off_policy(fixed("deep"), logged, gates=near).reasons == ()
    often = off_policy(fixed("deep"), logged, gates=near, often=True)
    assert 1.3 < (often.value - often.low - unseen) / (once.value - once.low) < 1.8
    assert (often.value, often.high) == (once.value, once.high)
    assert "lower bound of the mean reward" in often.reasons[0]
    far = replace(plan, min_value=once.low - 0.1)
    assert off_policy(fixed("deep"), logged, gates=far, often=True).reasons == ()


@pytest.mark.slow
@pytest.mark.parametrize("often", [False, True])
@pytest.mark.parametrize("truth", [0.8, 0.97, 0.99, 0.997])
def test_what_is_demanded_is_reached_by_chance_in_few_logs_however_rare_its_failures(truth, often):
    """A log without a failure says little of those that happen once in a hundred times."""
    rng = np.random.default_rng(0)
    runs, looks = 2000, np.geomspace(100, 5000, 24).astype(int) if often else [150, 400, 1000]
    right = np.cumsum(rng.random((runs, 5000)) < truth, axis=1)[:, np.array(looks) - 1]
    bound, plain = np.zeros(right.shape), np.zeros(right.shape)
    for place, seen in np.ndenumerate(right):
        rows = int(looks[place[1]])
        mean = seen / rows
        error = float(np.sqrt(mean * (1 - mean) / rows))
        found = Estimate(mean, mean - 1.96 * error, mean + 1.96 * error, error)
        bound[place] = least_value(found, rows, float(rows), level=0.95, often=often)
        plain[place] = bound[place] + mean * log(40) / rows
    # At any of the looks where it is asked often; at the worst of them where it is asked once.
    reached, by_chance = (
        float((ends > truth).any(axis=1).mean() if often else (ends > truth).mean(axis=0).max())
        for ends in (bound, plain)
    )
    assert reached < 0.035
    if truth >= 0.99:
        assert by_chance > 0.08  # without room for what was not seen


async def test_the_shadow_counts_failures_time_and_agreement(asked):
    _, logged = await asked(60)
    seen = Shadow()
    ticks = iter(np.arange(0.0, 1000.0, 0.03))
    shadow(fixed("deep"), logged, seen, target_ms=20.0, clock=lambda: next(ticks))
    assert (seen.decisions, seen.failures, seen.slow) == (60, 0, 60)
    assert seen.agreement == pytest.approx(np.mean([one.action == "deep" for one in logged]))
    assert seen.total_ms == pytest.approx(60 * 30.0)
    narrow = Candidate.of(
        build(loads(document()).policy, NAMES, dim=3, floor=0.3), fixed("deep").spec
    )
    seen = Shadow()
    shadow(narrow, logged, seen, target_ms=1e9)
    assert (seen.decisions, seen.failures) == (60, 60)
    assert len(seen.examples) == 3


async def test_a_candidate_that_the_log_says_is_worse_serves_nobody(database, tenant):
    w = await world(database, tenant.id, log=900)
    worse = document().replace("{algorithm: lin_ucb}", "{algorithm: fixed, action: shallow}")
    why = Reason(actor="test", force="to see it held")
    made = await publish(database, w.row, NoSigner(), why, spec=worse)
    at_once = {"stages": [{"name": "canary", "share": 0.1, "min_units": 1, "min_s": 1}]}
    with pytest.raises(
        RolloutError, match=r"upper bound of the candidate.s mean reward .* start with a shadow"
    ):
        await w.start(candidate=made.version, overrides=at_once)
    begun = await w.start(candidate=made.version)
    async with w.controlled():
        now = await w.drive(begun.id, steps=6)
    rows = await check_history(w, begun.id)
    assert (now.status, now.stage, rows[-1].verdict) == ("running", "shadow", "hold")
    assert any(
        "off-policy: upper bound of the candidate's mean reward" in it for it in rows[-1].reasons
    )
    assert rows[-1].inputs["evidence"]["shadow"]["decisions"] > 1000


def test_a_log_that_names_what_was_taken_out_since_is_read():
    rng = np.random.default_rng(0)
    names = (*NAMES, "gone")

    def logged(eligible):
        return [
            LoggedChoice(
                uuid4(), str(place), {"intent": "x", "length": 0.0}, eligible, None,
                names[place % 4], 0.25, float(rng.random() < 0.9),
            )
            for place in range(1200)
        ]  # fmt: skip

    for eligible in (None, list(names)):
        found = off_policy(fixed("deep"), logged(eligible), gates=Gates())
        assert found.reasons == ()
        assert found.low < 0.9 < found.high


def test_what_the_log_never_drew_is_no_evidence_of_a_candidate_that_does():
    """A tenth of what it does: too little to be seen in the mean weight of so few rows."""
    rng = np.random.default_rng(0)
    logged = [
        LoggedChoice(
            uuid4(), str(place), {"intent": "x", "length": 0.0}, None, None,
            NAMES[place % 2], 0.5, float(rng.random() < 0.9),
        )
        for place in range(900)
    ]  # fmt: skip
    spec = loads(document())
    tenth = Candidate.of(Fixed(NAMES, "shallow", floor=0.3), spec)
    found = off_policy(tenth, logged, gates=Gates())
    assert found.value is None
    assert [reason for reason in found.reasons if "could not have drawn 10.0%" in reason]
    assert not any("Mean weight" in reason for reason in found.reasons)
    known = [one._replace(action="deep", p=0.05) if i < 45 else one for i, one in enumerate(logged)]
    assert off_policy(tenth, known, gates=Gates()).reasons == ()
