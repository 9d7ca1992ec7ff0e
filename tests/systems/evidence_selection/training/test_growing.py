"""Trees trained on logged selections earn more than the logging policy."""

import numpy as np
import pytest

from steersman.db.held_out import is_held_out
from steersman.db.logged_choices import StoredSelection
from steersman.errors import InputError
from steersman.learning.held_out import SHARE
from steersman.policies import SequenceTrees
from steersman.policies.offered import Offered, offered_names
from steersman_systems.evidence_selection.training.log_trees import apart, grown
from steersman_systems.evidence_selection.training.logged_selections import judge_selections

pytest.importorskip("lightgbm")

DECLARED = SequenceTrees(
    features=["score", "names"], max_steps=2, stop=False, start={"score": 1.0}, floor=0.2
)


def question(rng):
    """Return a question with three candidates, one of which links to the answer."""
    names = [f"c{n}" for n in range(3)]
    leads = names[rng.integers(3)]
    every = offered_names(names, {leads: ["answer"]})
    rows = np.column_stack([rng.random(4), [float(name == leads) for name in every]])
    return Offered.of(names, {leads: ["answer"]}, rows)


def logged(count, policy, seed):
    rng, found = np.random.default_rng(seed), []
    for number in range(count):
        offered = question(rng)
        one = policy.select(offered, rng=rng)
        steps = [{"eligible": list(s.eligible), "action": s.action, "p": s.p} for s in one.steps]
        reward = 0.9 if "answer" in one.picked else 0.1
        found.append(StoredSelection(str(number), f"u{number % 400}", offered, steps, reward))
    return found


@pytest.mark.slow
def test_what_came_out_better_becomes_likelier():
    log = logged(1_600, DECLARED, seed=0)
    learned, judged = apart(log)
    assert 240 < len(judged) < 400
    assert all(is_held_out(one.unit, 0.2) for one in judged)
    assert not any(is_held_out(one.unit, SHARE) for one in learned)  # whom the publish guard asks
    assert not {one.unit for one in learned} & {one.unit for one in judged}
    policy = grown(DECLARED, learned)
    truth = float(np.mean([one.reward for one in logged(1_000, policy, seed=5)]))
    before = float(np.mean([one.reward for one in log]))
    assert truth > before + 0.15
    found = judge_selections(policy, judged)
    assert found.refused or found["wpdis"].low < truth < found["wpdis"].high
    again = grown(DECLARED, learned)
    for name, array in policy.state().items():
        assert np.array_equal(array, again.state()[name]), name


def test_what_tells_nothing_is_refused():
    log = logged(120, DECLARED, seed=1)
    with pytest.raises(InputError, match="at least 100"):
        grown(DECLARED, log[:50])
    with pytest.raises(InputError, match="with different rewards"):
        grown(DECLARED, [one._replace(reward=0.5) for one in log])
    cold = SequenceTrees(features=["score", "names"], max_steps=2, stop=False, temperature=0.5)
    with pytest.raises(InputError, match="softmax temperature of 1"):
        grown(cold, log)
    with pytest.raises(InputError, match="log more units"):
        apart(log[:1])
