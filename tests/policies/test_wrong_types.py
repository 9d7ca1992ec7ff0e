"""Whatever is given in place of an argument, the error is ours: it says what is allowed."""

from __future__ import annotations

from collections import UserList, deque

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.points.policy_factory import load_policy, warm_start
from steersman.policies import (
    BetaThompson,
    FactoredTS,
    LinTS,
    LinUCB,
    SequenceLinear,
    SequenceTrees,
)
from steersman.policies.beta_choice import beta_choice_probabilities
from steersman.policies.configurations import Configurations, are_configurations
from steersman.policies.gaussian_choice import gaussian_choice_probabilities
from steersman.policies.linear import decide_alike
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.offered import Offered, offered_names
from steersman.policies.scorers import scorer_from_state, scorer_state
from steersman.policies.sequence import (
    Step,
    StepRule,
    draw_step,
    sequence_propensity,
    step_distribution,
)
from steersman.policies.tree_scorer import TreeScorer
from steersman.policies.undo import withdraw
from tests.wrong_values import WRONG, refused

NETWORK = NetworkScorer.linear(np.ones(2))
LAYERS = [(np.ones((3, 2)), np.zeros(3)), (np.ones((1, 3)), np.zeros(1))]


def select(offered, rng):
    return SequenceLinear(features=["score"], max_steps=2).select(offered, rng=rng)


def along(offered, actions):
    return SequenceLinear(features=["score"], max_steps=2).along(offered, actions)


def chance(offered, actions):
    return SequenceLinear(features=["score"], max_steps=2).chance(offered, actions)


def learned():
    policy = BetaThompson(["a", "b"])
    policy.learn("refund", "a", 1.0)
    return policy


def rng():
    return np.random.default_rng(0)


OFFERED = Offered.of(["a", "b"], None, np.zeros((2, 1)))
SELECTING = {"features": ["score"], "max_steps": 2, "vector": 0, "stop": True, "leading": 8}
CALLS = {
    "offered": (Offered.of, {"start": ["a"], "links": {"a": ["b"]}, "rows": np.zeros((2, 1))}),
    "offered_names": (offered_names, {"start": ["a"], "links": {"a": ["b"]}}),
    "select": (select, {"offered": OFFERED, "rng": rng()}),
    "along": (along, {"offered": OFFERED, "actions": ["a"]}),
    "rule": (StepRule, {"leading": 3, "temperature": 1.0, "floor": 0.1}),
    "step_distribution": (step_distribution, {"scores": np.zeros(2), "rule": StepRule()}),
    "draw_step": (
        draw_step,
        {"names": ["a", "b"], "scores": np.zeros(2), "rule": StepRule(), "rng": rng()},
    ),
    "propensity": (sequence_propensity, {"steps": [Step(("a", "b"), "a", 0.5)]}),
    "chance": (chance, {"offered": OFFERED, "actions": ["a"]}),
    "trees": (
        TreeScorer,
        {
            "columns": 2,
            "places": np.zeros((1, 15), int),
            "thresholds": np.zeros((1, 15)),
            "kept": np.zeros((1, 15), np.uint16),
            "values": np.zeros((1, 16)),
        },
    ),
    "stumps": (TreeScorer.of_stumps, {"columns": 2, "stumps": [(0, 0.5, 1.0, 2.0)]}),
    "network": (NetworkScorer, {"mean": np.zeros(2), "scale": np.ones(2), "layers": LAYERS}),
    "line": (NetworkScorer.linear, {"weights": np.ones(2), "bias": 0.0}),
    "of the network": (NETWORK.scores, {"rows": np.zeros((3, 2))}),
    "of stumps": (TreeScorer.of_stumps(2, [(0, 0, 1, 2)]).scores, {"rows": np.zeros((3, 2))}),
    "scorer_state": (scorer_state, {"scorer": NETWORK}),
    "scorer_from_state": (scorer_from_state, {"state": scorer_state(NETWORK)}),
    "beta": (beta_choice_probabilities, {"a": np.ones(2), "b": np.ones(2)}),
    "normal": (gaussian_choice_probabilities, {"means": np.ones(2), "sds": np.ones(2)}),
    "are_configurations": (are_configurations, {"names": ['{"k":1}']}),
    "configurations": (Configurations, {"names": ['{"k":1}']}),
    "mixed": (FactoredTS, {"parts": {"k": [1, 2]}, "scales": None, "barred": (), "pairs": True}),
    "linear sequence": (SequenceLinear, SELECTING),
    "tree sequence": (SequenceTrees, SELECTING),
    "together": (decide_alike, {"parts": [(LinTS(["a", "b"], 2), np.ones((2, 2)))], "rng": rng()}),
    "withdraw": (withdraw, {"policy": learned(), "x": "refund", "action": "a", "reward": 1.0}),
    "load_policy": (load_policy, {"state": learned().state()}),
    "warm_start": (
        warm_start,
        {"policy": LinTS(["a"], 2), "X": np.ones((1, 2)), "actions": ["a"], "rewards": [1.0]},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_error_says_what_is_allowed(name):
    for argument, messages in refused(*CALLS[name]).items():
        assert len(messages) >= len(WRONG) // 2, argument
        assert max(map(len, messages)) < 600


def test_policies_that_are_not_alike_do_not_decide_together():
    rows = np.ones((9, 2))
    for other in (LinUCB(["b", "a"], 2), LinUCB(["a", "b"], 2, alpha=2.0), LinTS(["a", "b"], 2)):
        with pytest.raises(InputError, match="part 1 has another class, actions or parameters"):
            decide_alike([(LinUCB(["a", "b"], 2), rows), (other, rows)], rng=rng())
    with pytest.raises(InputError, match="contexts must be a list or array"):
        decide_alike([(LinUCB(["a", "b"], 2), rows), (LinUCB(["a", "b"], 2), None)], rng=rng())
    alike = [[LinUCB(["a", "b"], 2), rows], [LinUCB(["a", "b"], 2), rows]]
    assert len(decide_alike(alike, rng=rng())) == 18


def test_a_text_is_no_list_of_candidates():
    with pytest.raises(InputError, match=r"candidates must be a list of non-empty names; got 'ab'"):
        Offered.of("ab", None, np.zeros((2, 1)))
    with pytest.raises(
        InputError, match=r"links of 'a' must be a list of non-empty names; got 'bc'"
    ):
        offered_names(["a"], {"a": "bc"})
    with pytest.raises(InputError, match="candidates must be a list of non-empty names"):
        Offered.of(["a", ""], None, np.zeros((2, 1)))


def keys(names):
    return dict.fromkeys(names).keys()


@pytest.mark.parametrize("as_given", [np.array, deque, UserList, keys, iter])
def test_names_may_come_in_whatever_has_an_order(as_given):
    offered = Offered.of(as_given(["a", "b"]), {"a": as_given(["c"])}, np.zeros((3, 1)))
    assert offered.names == ("a", "b", "c")
    assert offered.leads == ((2,), (), ())
    assert offered.start == 2
    policy = SequenceLinear(features=["score"], max_steps=1)
    assert len(policy.along(offered, as_given(["a"]))) == 1
    assert 0.0 < policy.chance(offered, as_given(["a"])) < 1.0
    two = np.zeros(2)
    assert draw_step(as_given(["a", "b"]), two, StepRule(), rng=rng())[1].eligible == ("a", "b")
    assert Configurations(as_given(['{"k":1}'])).with_values('{"k":1}').tolist() == [True]
    assert sequence_propensity(step for step in [Step(("a",), "a", 0.5)] * 2) == 0.25


def test_a_name_for_each_score():
    with pytest.raises(InputError, match="3 names have 2 scores"):
        draw_step(["a", "b", "c"], np.zeros(2), StepRule(), rng=rng())


def test_a_column_of_a_stump_is_one_that_rows_have():
    for place in (1.5, -1, np.inf, 1e300):
        with pytest.raises(InputError, match=r"a stump uses column .*; allowed: whole numbers"):
            TreeScorer.of_stumps(2, [(place, 0.0, 1.0, 2.0)])
    with pytest.raises(InputError, match="a node uses column 2, but rows have 2"):
        TreeScorer.of_stumps(2, [(2, 0.0, 1.0, 2.0)])


def test_no_rows_have_no_scores_whatever_their_type():
    for rows in (np.zeros((0, 2)), np.zeros((0, 2), bool), np.zeros((0, 2), object)):
        assert NETWORK.scores(rows).shape == (0,)
        assert TreeScorer.of_stumps(2, [(0, 0, 1, 2)]).scores(rows).shape == (0,)


def test_counts_that_no_quantile_can_be_found_of():
    for wrong in (np.inf, np.nan, 0.0, -1.0, 1e300):
        with pytest.raises(InputError, match="counts above 0 and up to 1e"):
            beta_choice_probabilities(np.array([wrong, 1.0]), np.ones(2))
