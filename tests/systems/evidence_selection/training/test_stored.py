"""Off-policy estimates from stored selections match the true reward."""

import json

import numpy as np
import pytest

from steersman.db.logged_choices import StoredSelection
from steersman.errors import DataError, InputError
from steersman.policies import SequenceLinear
from steersman.policies.offered import Offered, offered_names
from steersman_systems.evidence_selection.training.logged_selections import (
    StoredTask,
    judge_selections,
    walk_of,
)

FORM = {"features": ["good"], "vector": 0, "max_steps": 2, "leading": 4, "temperature": 0.1}
LOGGED = SequenceLinear(**FORM, floor=0.3, start={"good": 0.1})
TARGET = SequenceLinear(**FORM, floor=0.1, start={"good": 0.2, "linked": 0.2, "is_stop": -0.1})


def question(rng):
    """Return four candidates; the first links to a fifth, which alone has a reward."""
    links = {"c0": ["bridge"]}
    names = offered_names([f"c{n}" for n in range(4)], links)
    return Offered.of(names[:4], links, rng.random((5, 1)).round(2))


def worth(picked):
    return 0.9 if "bridge" in picked else 0.3 * (len(picked) == 2)


def logged(count, *, policy=LOGGED, seed=0, units=None):
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        offered = question(rng)
        one = policy.select(offered, rng=rng)
        steps = [{"eligible": list(s.eligible), "action": s.action, "p": s.p} for s in one.steps]
        stored = json.loads(json.dumps(steps))  # as a row gives them back
        unit = str(number) if units is None else f"u{number % units}"
        found.append(StoredSelection(str(number), unit, offered, stored, worth(one.picked)))
    return found


@pytest.fixture(scope="module")
def truth():
    return float(np.mean([one.reward for one in logged(6_000, policy=TARGET, seed=9)]))


@pytest.mark.slow
def test_estimates_hold_what_the_target_earns(truth):
    log = logged(1_500)
    found = judge_selections(TARGET, log)
    assert not found.refused, found.reasons
    own = np.mean([one.reward for one in log])
    for name in ("pdis", "wpdis", "dr"):
        assert found[name].low < truth < found[name].high, name
        assert not found[name].low < own < found[name].high, "told from the log's own"
    gain = found["gain"]
    assert gain.value == pytest.approx(found["wpdis"].value - own)
    assert 0.0 < gain.low < truth - float(np.mean([one.reward for one in logged(6_000, seed=8)]))
    # What the heaviest selections leave open, which all earned the same, widens a side.
    below, above = gain.value - gain.low, gain.high - gain.value
    assert above <= below + 1e-12 < 1.25 * above


def test_along_its_own_log_every_weight_is_one():
    found = judge_selections(LOGGED, logged(150))
    assert found.ess == pytest.approx(150)
    assert found.diagnostics.max_weight == pytest.approx(1.0)
    # Both ends of the difference are then the same selections, and so is their noise.
    assert found["gain"].low == pytest.approx(0.0, abs=1e-9)
    assert found["gain"].high == pytest.approx(0.0, abs=1e-9)


@pytest.mark.slow
def test_selections_of_one_unit_belong_together():
    apart, together = (judge_selections(TARGET, logged(600, units=u)) for u in (None, 120))
    assert apart.diagnostics.units == 600
    assert together.diagnostics.units == 120


def test_a_log_that_cannot_tell_is_refused():
    few = judge_selections(TARGET, logged(60))
    assert few.refused
    assert few["dr"].value is None
    greedy = SequenceLinear(**{**FORM, "leading": 1, "temperature": 0.0}, start={"good": -1.0})
    assert judge_selections(greedy, logged(300)).refused
    with pytest.raises(InputError, match="no selection"):
        judge_selections(TARGET, [])


def test_other_rules_than_the_logs_are_refused():
    log = logged(10)
    shorter = SequenceLinear(**{**FORM, "max_steps": 1})
    with pytest.raises(DataError, match="by these rules"):
        judge_selections(shorter, log)
    never = SequenceLinear(**FORM, stop=False)
    stopped = [one for one in logged(60) if one.steps[-1]["action"] == "stop"]
    with pytest.raises(DataError, match="by these rules"):
        walk_of(stopped[0], never.form)
    task = StoredTask("1", log[0].offered, LOGGED.form)
    with pytest.raises(DataError, match="has no reward for selection"):
        task.reward((0,))
