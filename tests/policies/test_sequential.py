"""Selections: propensities are exact whatever was offered; states learn, revise, come back."""

import json
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.errors import ActionError, InputError, MergeError, StateError
from steersman.points.policy_factory import load_policy
from steersman.policies import SequenceLinear, SequenceTrees
from steersman.policies.offered import Offered, Progress, SequenceForm, offered_names
from steersman.policies.sequence import StepRule, draw_step
from steersman.policies.tree_scorer import TreeScorer
from steersman.policies.undo import withdraw

FEATURES = ("good", "cheap")
FORM = {"features": list(FEATURES), "vector": 2, "max_steps": 3, "leading": 3}


def offered(count=5, *, links=None, seed=0, start=None):
    rng = np.random.default_rng(seed)
    names = offered_names([f"c{n}" for n in range(start or count)], links)
    return Offered.of(names[: start or count], links, rng.random((len(names), 4)).round(3))


def linear(**more):
    return SequenceLinear(**{**FORM, "temperature": 0.1, "floor": 0.2, **more})


@st.composite
def requests(draw):
    count = draw(st.integers(1, 7))
    names = [f"c{n}" for n in range(count)]
    starting = draw(st.integers(1, count))
    links = draw(st.dictionaries(st.sampled_from(names), st.lists(st.sampled_from(names))))
    known = offered_names(names[:starting], {k: v for k, v in links.items() if k in names[:1]})
    links = {k: v for k, v in links.items() if k == names[0]}
    number = st.floats(-3, 3, width=32)
    rows = draw(
        st.lists(st.lists(number, min_size=4, max_size=4), min_size=len(known), max_size=len(known))
    )
    return Offered.of(names[:starting], links, np.array(rows))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(request=requests(), seed=st.integers(0, 2**32), stop=st.booleans(), leads=st.integers(1, 4))
def test_a_selection_has_the_product_of_its_steps_entries(request, seed, stop, leads):
    policy = linear(stop=stop, leading=leads, start={"good": 0.3, "linked": 0.2})
    found = policy.select(request, rng=np.random.default_rng(seed))
    for step, distribution in zip(found.steps, found.distributions, strict=True):
        assert distribution.sum() == pytest.approx(1.0)
        assert step.p == distribution[step.eligible.index(step.action)] >= 0.2 / (leads + stop)
        assert len(step.eligible) <= leads + stop
    assert found.propensity == math.prod(step.p for step in found.steps)
    done = [step.action for step in found.steps]
    assert found.picked == tuple(name for name in done if name != "stop")
    assert len(set(found.picked)) == len(found.picked) <= 3
    along = policy.along(request, done)
    assert [step.chance for step in along] == [step.p for step in found.steps]
    assert [step.eligible for step in along] == [step.eligible for step in found.steps]
    assert policy.chance(request, done) == found.propensity


@pytest.mark.slow
def test_selections_come_with_just_their_propensity():
    policy, request = linear(max_steps=2), offered(3, links={"c0": ["d"]}, start=2)
    rng = np.random.default_rng(3)
    draws = [policy.select(request, rng=rng) for _ in range(4_000)]
    exact = {(*one.picked, len(one.steps)): one.propensity for one in draws}
    seen = Counter((*one.picked, len(one.steps)) for one in draws)
    assert sum(exact.values()) == pytest.approx(1.0), "all of them together"
    for name, p in exact.items():
        assert abs(seen[name] / 4_000 - p) < 4.5 * math.sqrt(p * (1 - p) / 4_000), name


def test_what_is_picked_brings_in_what_it_leads_to_and_the_columns_tell():
    request = offered(2, links={"c1": ["d", "c0"], "d": ["e"]})
    progress = Progress(request, SequenceForm(FEATURES, 2, 4, True))
    assert progress.names == ["c0", "c1", "stop"]
    progress.take(progress.place("c1"))
    assert progress.names == ["c0", "d", "stop"]
    progress.take(progress.place("d"))
    assert progress.names == ["c0", "e", "stop"]
    of = dict(zip(SequenceForm(FEATURES, 2, 4, True).columns, progress.rows.T, strict=True))
    assert of["hop"].tolist() == [0, 2, 0]
    assert of["linked"].tolist() == [1, 1, 0]
    assert of["linked_last"].tolist() == [0, 1, 0]
    assert of["picked"].tolist() == [2, 2, 0]
    assert of["is_stop"].tolist() == [0, 0, 1]
    assert of["stop_after"].tolist() == [0, 0, 2]
    vectors = request.rows[:, 2:] / np.linalg.norm(request.rows[:, 2:], axis=1)[:, None]
    near = vectors @ vectors[[1, request.names.index("d")]].T
    wanted = 1.0 - near.max(axis=1)[[0, request.names.index("e")]]
    assert of["novelty"][:2] == pytest.approx(wanted)
    with pytest.raises(ActionError, match="cannot be 'c1'"):
        progress.place("c1")


@pytest.mark.parametrize("scale", [1.0, 1e-170, 1e-310, 1e170])
def test_novelty_does_not_depend_on_how_long_vectors_are(scale):
    form = SequenceForm(("score",), 2, 2, True)
    rows = np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 1.0, -1.0]])
    progress = Progress(Offered.of(["a", "b", "c"], None, rows * [1.0, scale, scale]), form)
    progress.take(0)
    novelty = progress.rows[:2, form.columns.index("novelty")]
    assert novelty == pytest.approx([0.0, 1.0], abs=1e-12)


def test_a_policy_gives_nothing_to_what_it_would_not_have_done():
    policy, request = linear(stop=False), offered(5)
    names = list(request.names)
    assert policy.chance(request, names[:2]) == 0.0, "it would have gone on"
    assert policy.chance(request, [*names[:1], "stop"]) == 0.0
    assert policy.chance(request, [names[0], names[0], names[1]]) == 0.0
    assert policy.chance(request, ["nobody"]) == 0.0
    best = linear(leading=1, start={"good": 1.0}, stop=False, floor=0.0)
    order = sorted(names, key=lambda name: -request.rows[names.index(name), 0])
    assert best.chance(request, order[:3]) == 1.0
    assert best.chance(request, [order[1], order[0], order[2]]) == 0.0


def test_it_learns_what_each_pick_adds():
    """Truth: a good one earns .3, a cheap one nothing; each pick costs .05."""
    policy = linear(vector=0, temperature=0.02, floor=0.3)
    rng = np.random.default_rng(0)
    for number in range(400):
        request = Offered.of(
            [f"c{n}" for n in range(6)], None, (rng.random((6, 2)) < 0.5).astype(float)
        )
        found = policy.select(request, rng=rng)
        rows = [request.rows[request.names.index(name)] for name in found.picked]
        reward = sum(0.3 * row[0] for row in rows) - 0.05 * len(rows)
        policy.learn(found.x, "any", reward + 0.05 * rng.standard_normal(), bucket=number)
    greedy = SequenceLinear.from_state(policy.state())
    first = Offered.of(["bad", "good"], None, np.array([[0.0, 1.0], [1.0, 0.0]]))
    (step, *_) = greedy.along(first, ["good"])
    assert dict(zip(step.eligible, step.distribution, strict=True))["good"] > 0.79, (
        "the most that a floor of .3 leaves"
    )
    nothing = Offered.of(["bad", "worse"], None, np.array([[0.0, 1.0], [0.0, 1.0]]))
    (step, *_) = greedy.along(nothing, ["stop"])
    assert step.chance > 0.6, "nothing good is left, so it stops"


def test_revisions_and_withdrawals_are_exact_and_the_start_is_where_it_starts():
    rng = np.random.default_rng(1)
    policy = linear(start={"good": 0.4, "is_stop": -0.1})
    rows = [policy.select(offered(seed=n), rng=rng).x for n in range(6)]
    told = dict(zip(policy.form.columns, policy.scores(np.eye(10)), strict=True))
    assert {name: worth for name, worth in told.items() if worth} == {"good": 0.4, "is_stop": -0.1}
    for x in rows:
        policy.learn(x, "s", 0.5)
    twin = SequenceLinear.from_state(policy.state())
    batch = linear(start={"good": 0.4, "is_stop": -0.1})
    batch.learn_batch(np.array(rows), ["s"] * 6, [0.5] * 6)
    assert batch.state()["moment"] == pytest.approx(policy.state()["moment"])
    before = policy.state()
    policy.revise(rows[0], "s", 0.25)
    policy.revise(rows[0], "s", -0.25)
    policy.learn(rows[1], "t", 0.9)
    withdraw(policy, rows[1], "t", 0.9)
    for name in ("gram", "moment", "count"):
        assert policy.state()[name] == pytest.approx(before[name], abs=1e-12)
    twin.learn(rows[0], "s", 1.0)
    policy.merge([twin.delta(id="one")])
    assert policy.updates == 7


def test_trees_come_with_a_state_and_are_never_summed():
    policy = SequenceTrees(**FORM, start={"good": 1.0})
    request = offered(5)
    columns = len(policy.form.columns)
    rng = np.random.default_rng(0)
    assert policy.scores(np.eye(columns)).tolist() == [1.0] + [0.0] * (columns - 1)
    grown = policy.holding(TreeScorer.of_stumps(columns, [(1, 0.5, -4.0, 4.0)]))
    back = load_policy(grown.state())
    assert back.select(request, rng=np.random.default_rng(2)).steps == (
        grown.select(request, rng=np.random.default_rng(2)).steps
    )
    assert back.state().keys() == grown.state().keys() >= {"places", "values"}
    assert json.loads(back.state()["meta"].tobytes())["trees"] == 1
    cheap = request.rows[:, 1] > 0.5
    first = grown.select(request, rng=rng).picked[0]
    assert cheap[request.names.index(first)]
    with pytest.raises(StateError, match="columns"):
        policy.holding(TreeScorer.of_stumps(3, [(0, 0.5, 0.0, 1.0)]))
    with pytest.raises(MergeError, match="not sums"):
        back.delta()
    damaged = {**grown.state(), "kept": np.full((1, 15), 0.5)}
    del damaged["values"]
    with pytest.raises(StateError):
        SequenceTrees.from_state(damaged)


@pytest.mark.parametrize(
    ("start", "links", "rows", "message"),
    [
        (["a", "a"], None, np.zeros((2, 1)), "duplicate"),
        (["a", "stop"], None, np.zeros((2, 1)), "rename"),
        (["a"], {"a": ["stop"]}, np.zeros((1, 1)), "rename"),
        (["a"], {"b": ["a"]}, np.zeros((1, 1)), "or a linked candidate"),
        ([], None, np.zeros((0, 1)), "at least one candidate"),
        (["a", "b"], None, [[1.0], [1.0, 2.0]], "the candidates' rows must be numbers"),
        (["a", "b"], None, [["1"], ["2"]], "the candidates' rows must be numbers"),
        (["a", "b"], None, [[None], [1.0]], "the candidates' rows must be numbers"),
        (["a", "b"], None, {"a": 1}, "the candidates' rows must be numbers"),
        (["a", "b"], None, [[1j], [0]], "the candidates' rows must be numbers"),
        (["a", "b"], None, "ab", "the candidates' rows must be numbers"),
    ],
)
def test_offered_with_bad_candidates_or_rows_says_why(start, links, rows, message):
    with pytest.raises(InputError, match=message):
        Offered.of(start, links, rows)


def test_candidates_alike_share_what_there_is_and_huge_ones_are_refused():
    request = Offered.of(["a", "b", "c", "d"], None, np.ones((4, 4)))
    (step, *_) = linear(floor=0.1).along(request, ["a"])
    assert step.eligible == ("a", "b", "c", "stop")
    assert len(set(step.distribution[:3].tolist())) == 1
    policy = linear(start={"good": 1e9}, stop=False)
    for size, vector in ((2.3e5, 3e38), (2.34e5, 0.0)):  # 1e6 over three steps and √2
        rows = np.column_stack([np.full((4, 2), size), np.full((4, 2), vector)])
        huge = Offered.of(["a", "b", "c"], {"a": ["d"]}, rows)
        if vector:
            policy.learn(policy.select(huge, rng=np.random.default_rng(0)).x, "s", 1.0)
            continue
        with pytest.raises(InputError, match="good of 'a' is 234000"):
            policy.select(huge, rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="must have shape"):
        policy.learn(np.ones(4), "s", 1.0)
    with pytest.raises(InputError, match="expected 2 features"):
        policy.select(Offered.of(["a"], None, np.ones((1, 3))), rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_steps": 0},
        {"vector": -1},
        {"features": ["hop"]},
        {"features": ["a", "a"]},
        {"leading": 0},
        {"temperature": -1.0},
        {"start": {"speed": 1.0}},
        {"start": {"good": math.nan}},
        {"start": ["good"]},
        {"start": []},
        {"start": 0.0},
        {"floor": 1.0},
    ],
)
def test_arguments_out_of_their_range_are_refused(wrong):
    for make in (SequenceLinear, SequenceTrees):
        with pytest.raises(InputError):
            make(**{**FORM, **wrong})
    with pytest.raises(InputError, match="come with each request"):
        SequenceLinear(["a"], **FORM)


@pytest.mark.parametrize("make", [SequenceLinear, SequenceTrees])
def test_numbers_of_numpy_make_the_state_that_those_of_python_make(make):
    plain = make(**{**FORM, "start": {"good": 0.5, "hop": 2.0}})
    numpy = make(
        **{
            **FORM,
            "start": {"good": np.float32(0.5), "hop": np.int64(2)},
            "leading": np.uint8(3),
            "max_steps": np.int64(3),
        }
    )
    assert numpy.state()["meta"].tobytes() == plain.state()["meta"].tobytes()
    drawn = [one.select(offered(), rng=np.random.default_rng(0)).steps for one in (numpy, plain)]
    assert drawn[0] == drawn[1]


def test_what_a_policy_of_choices_does_it_says_it_does_not():
    policy = linear()
    with pytest.raises(InputError, match="call select"):
        policy.decide(None, rng=np.random.default_rng(0), eligible=["a"])
    with pytest.raises(InputError, match="call select"):
        policy.distribution(None)
    for change in (policy.add_action, policy.remove_action):
        with pytest.raises(InputError, match="come with each request"):
            change("a")


@pytest.mark.parametrize("nothing", [0, None, random, np.random, "x", np.random.Generator])
def test_only_a_generator_draws(nothing):
    rule, scores = StepRule(), np.array([1.0, 0.0])
    for refused in (
        lambda: linear().select(offered(), rng=nothing),
        lambda: draw_step(["a", "b"], scores, rule, rng=nothing),
    ):
        with pytest.raises(InputError, match="rng must be a numpy Generator"):
            refused()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_candidate_of_no_number_is_told_as_such(value):
    unknown = Offered.of(["a", "b"], None, np.array([[0.0] * 4, [0.0, value, 0.0, 0.0]]))
    with pytest.raises(InputError, match=r"cheap of 'b' is .*; allowed: any finite number"):
        linear().select(unknown, rng=np.random.default_rng(0))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_candidate_whose_vector_is_no_number_is_told_before_anything_is_drawn(value):
    rows = np.zeros((3, 4))
    rows[2, 3] = value
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    with pytest.raises(InputError, match=r"vector\[1\] of 'c' is .*; allowed: any finite number"):
        linear().select(Offered.of(["a", "b", "c"], None, rows), rng=rng)
    assert rng.bit_generator.state == before


def test_rows_of_any_numbers_are_taken_as_floats():
    names, rows = ["a", "b"], [[1, 0, 2, 3], [0, 1, 1, 0]]
    wanted = Offered.of(names, None, np.array(rows, np.float64)).rows
    for numbers in (rows, tuple(rows), np.array(rows), np.array(rows, np.float32)):
        found = Offered.of(names, None, numbers).rows
        assert found.dtype == np.float64
        assert (found == wanted).all()
    huge = Offered.of(names, None, np.full((2, 4), 2**62))
    with pytest.raises(InputError, match=r"good of 'a' is 4.61169e\+18; the features"):
        linear().select(huge, rng=np.random.default_rng(0))
    mine = np.zeros((2, 4))
    shown = Offered.of(names, None, mine)
    mine += 1.0
    assert not shown.rows.any()


def test_the_name_that_stands_twice_is_found_at_once():
    names = [str(number) for number in range(200_000)]
    with pytest.raises(InputError, match="duplicate candidate '199999'"):
        offered_names([*names, "199999"], None)  # name by name it would take a quarter of an hour
