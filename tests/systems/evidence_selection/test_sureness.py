"""A selection ends when who answers is sure; who is never sure goes on."""

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.providers.judges.judge import Judge
from steersman_systems.evidence_selection.answer_model import Answerer
from steersman_systems.evidence_selection.answer_stability import AnswerStability, StopWhenStable
from steersman_systems.evidence_selection.baselines import TopK
from steersman_systems.evidence_selection.contenders import LinearlyCloned
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.evaluate import Fixed
from tests.systems.evidence_selection.bands import bands

LIMITS = Limits(picks=5, expanding="always", may_stop=False)


class Reads:
    """A model that says how many bridges there are where it can read it, else another thing."""

    name = "reads"

    def __init__(self):
        self.asked = 0

    def complete(self, prompt, *, max_tokens, timeout_s):
        self.asked += 1
        text = prompt.split("\n\n")[1]
        found = [word for word in text.split() if word.isdigit()]
        return f"{found[0]} bridges" if found else "guess " + "x" * self.asked


@pytest.fixture(scope="module")
def pools():
    return bands().pools


def picked_state(pool, *ids):
    rules = Environment(LIMITS)
    state = rules.start(pool)
    for one in ids:
        names = [candidate.id for candidate in state.pool.candidates]
        state = rules.step(state, names.index(one))
    return state


def test_sure_is_the_same_answer_twice_that_stands_in_a_passage(pools):
    sure = AnswerStability(Answerer(Judge(Reads())))
    pool = pools[0]
    assert sure(picked_state(pool)) == 0.0
    assert sure(picked_state(pool, "b0")) == 0.0
    assert sure(picked_state(pool, "b0", "t0")) == 0.5
    assert sure(picked_state(pool, "b0", "t0", "b1")) == 1.0


def test_a_clone_stops_once_the_answerer_is_sure(pools):
    inner = LinearlyCloned("clone", LIMITS)
    contender = StopWhenStable(inner, AnswerStability(Answerer(Judge(Reads()))))
    assert contender.name == "clone, until sure"
    rng = np.random.default_rng(0)
    full = inner.fitted(pools[1:]).select(pools[0], rng=rng)
    short = contender.fitted(pools[1:]).select(pools[0], rng=rng)
    assert (full.stopped, short.stopped) == ("steps", "confidence")
    assert short.picked == full.picked[: len(short.picked)]
    assert len(short.picked) < len(full.picked)


def test_what_does_not_score_cannot_be_stopped(pools):
    contender = StopWhenStable(Fixed(TopK()), lambda _: 1.0)
    with pytest.raises(InputError, match="has no scores; use a clone"):
        contender.fitted(pools)
