"""A selector's file says what it is for; what does not fit is refused."""

import json

import msgspec
import numpy as np
import pytest

from steersman.errors import InputError, StateError
from steersman.points.state_bytes import pack_state, unpack_state
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.scorers import SummedScorer, scorer_state
from steersman.policies.tree_scorer import TreeScorer
from steersman_systems.evidence_selection.features import FEATURES
from steersman_systems.evidence_selection.kept_selectors import SelectorSetup, kept, read

TOLD = SelectorSetup("minilm", 4, 4000, 20, True, "keywords", "mtrag")


WIDTH = len(FEATURES)


def stump(columns=WIDTH):
    return TreeScorer.of_stumps(columns, [(0, 0.5, -1.0, 2.0)])


def changed(**fields):
    """Return a file whose header says something else."""
    state = unpack_state(kept(stump(), TOLD))
    told = json.loads(state["selector"].tobytes()) | fields
    raw = np.frombuffer(json.dumps(told).encode(), np.uint8).copy()
    return pack_state({**state, "selector": raw})


def test_what_it_is_for_comes_back_with_it():
    scorer, told = read(kept(stump(), TOLD))
    rows = np.random.default_rng(0).random((5, len(FEATURES)))
    assert told == TOLD
    assert scorer.scores(rows).tolist() == stump().scores(rows).tolist()
    limits = told.limits()
    assert (limits.picks, limits.may_stop, limits.expanding) == (4, True, "always")
    assert told.limits(picks=2, may_stop=False).picks == 2
    with pytest.raises(InputError, match="picks is 0; allowed are whole numbers"):
        told.limits(picks=0)


def test_what_was_learned_on_top_is_kept_with_what_is_below():
    both = SummedScorer((stump(), NetworkScorer.linear(np.linspace(0.0, 1.0, WIDTH))))
    rows = np.random.default_rng(0).random((5, WIDTH))
    scorer, _ = read(kept(both, TOLD))
    assert scorer.scores(rows).tolist() == both.scores(rows).tolist()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (lambda: changed(features=[*FEATURES[:-1], "magic"]), "other features .*magic"),
        (lambda: changed(features=FEATURES[::-1]), "other features .their order"),
        (lambda: changed(picks="four"), "'selector' is damaged: Expected `int`"),
        (lambda: kept(stump(3), TOLD), "other features"),
        (lambda: kept(SummedScorer((stump(), stump(3))), TOLD), "other features"),
        (lambda: pack_state(scorer_state(stump())), "has no training setup"),
    ],
)
def test_read_of_a_file_for_something_else_says_what_differs(content, says):
    data = content()
    with pytest.raises(StateError, match=says):
        read(data)


def test_other_vectors_are_refused():
    TOLD.check_embedder("minilm")
    with pytest.raises(InputError, match="trained with 'minilm', not words alone; use that one"):
        TOLD.check_embedder("")
    with pytest.raises(InputError, match="trained with words alone, not 'x'; give --words"):
        msgspec.structs.replace(TOLD, embedder="").check_embedder("x")
