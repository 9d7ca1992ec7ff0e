"""The rules: what may be done in a state, what follows, and when it ends."""

import numpy as np
import pytest

from steersman.errors import ActionError, InputError
from steersman_systems.evidence_selection.baselines import TopK
from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.environment import (
    EXPAND_ACTION,
    Environment,
    Limits,
    name_of,
)
from steersman_systems.evidence_selection.question import Question


def test_picks_are_legal_once(pool):
    rules = Environment()
    state = rules.step(rules.start(pool), 0)
    assert not rules.legal(state).picks[0]
    for action in (0, len(pool), -7):
        with pytest.raises(ActionError, match="cannot be picked"):
            rules.step(state, action)


def test_expanding_is_an_action_only_where_it_brings_something(collection, question):
    rules = Environment()
    pool = collection.pool(question, size=1)
    start = rules.start(pool)
    assert not rules.legal(start).expand
    picked = rules.step(start, 0)
    assert rules.legal(picked).expand
    after = rules.step(picked, EXPAND_ACTION)
    assert len(after.pool) > len(pool)
    assert after.picked == picked.picked
    assert not rules.legal(after).expand
    assert name_of(after, 0) == "band"
    assert name_of(after, EXPAND_ACTION) == "expand"


def test_expanding_always_and_never(collection, question):
    pool = collection.pool(question, size=1)
    always, never = (Environment(Limits(expanding=how)) for how in ("always", "never"))
    assert len(always.step(always.start(pool), 0).pool) > 1
    assert len(never.step(never.start(pool), 0).pool) == 1
    assert never.legal(never.step(never.start(pool), 0)).ended == "stop"


def test_a_selection_ends_after_its_picks(pool):
    rules = Environment(Limits(picks=2))
    state = rules.step(rules.step(rules.start(pool), 0), 1)
    assert rules.legal(state).ended == "steps"
    assert not rules.legal(state).picks.any()


def test_passages_longer_than_the_budget_cannot_be_picked(collection, question, rng):
    """A budget that no passage fits ends at once; one that some fit never picks the others."""
    pool = collection.pool(question, size=8)
    none = TopK("fused", Environment(Limits(tokens=1))).select(pool, rng=rng)
    assert (none.picked, none.stopped) == ((), "budget")
    least = int(pool.tokens.min())
    some = TopK("fused", Environment(Limits(tokens=least))).select(pool, rng=rng)
    assert len(some.picked) == 1
    assert pool.tokens[[one.id for one in pool.candidates].index(some.picked[0])] == least


def test_no_candidates_end_at_once(rng):
    collection = Collection.of_texts([("a", "", "words")])
    pool = collection.pool(Question("q", "xyzzy"))
    found = TopK().select(pool, rng=rng)
    assert (found.picked, found.stopped, found.propensity) == ((), "stop", 1.0)


def test_it_stops_where_the_answerer_is_sure(pool):
    rules = Environment(confidence=lambda state: 0.5 * len(state.picked))
    state = rules.start(pool)
    assert rules.legal(state).ended is None
    state = rules.step(state, 0)
    assert rules.legal(state).ended is None
    assert rules.legal(rules.step(state, 1)).ended == "confidence"


@pytest.mark.parametrize(
    "wrong",
    [{"picks": 0}, {"picks": 9}, {"tokens": 0}, {"expanding": "often"}, {"added": 0}],
)
def test_limits_out_of_their_range_are_refused(wrong):
    with pytest.raises(InputError):
        Limits(**wrong)


def test_tokens_add_up(pool):
    rules = Environment()
    state = rules.step(rules.step(rules.start(pool), 0), 2)
    assert state.tokens == int(np.sum(pool.tokens[[0, 2]]))
