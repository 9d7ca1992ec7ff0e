"""Selectors: baselines, the oracle and its ceiling, and learned ones with exact propensities."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.sequence import StepRule
from steersman_systems.evidence_selection.baselines import (
    LAMBDAS,
    Mmr,
    Oracle,
    Pointwise,
    TopK,
    ceiling,
)
from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.experts import GoldExpert, RankExpert
from steersman_systems.evidence_selection.features import FEATURES
from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.selectors import ScoredSelector
from steersman_systems.evidence_selection.tasks import EvidenceTask
from steersman_systems.evidence_selection.training.behaviour_cloning import CloneSettings, clone
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings

FIVE = Environment(Limits(picks=3, may_stop=False))


def _linear(**weights):
    found = np.zeros(len(FEATURES))
    for name, weight in weights.items():
        found[FEATURES.index(name)] = weight
    return NetworkScorer.linear(found)


@pytest.mark.parametrize("ranking", ["lexical", "dense", "fused"])
def test_top_k_takes_the_best_of_its_ranking(pool, rng, ranking):
    found = TopK(ranking, FIVE).select(pool, rng=rng)
    scores = dict(
        zip([one.id for one in pool.candidates], getattr(pool, ranking).tolist(), strict=True)
    )
    taken = [scores[name] for name in found.picked]
    assert taken == sorted(scores.values(), reverse=True)[:3]
    assert all(a >= b for a, b in pairwise(taken))
    assert [dict(one) for one in found.why] == [{ranking: score} for score in taken]


def test_mmr_is_the_formula_written_out(pool, rng):
    for weight in LAMBDAS:
        found = Mmr(weight, FIVE).select(pool, rng=rng)
        picked, vectors = [], pool.vectors.astype(float)
        for _ in range(3):
            scores = [
                -np.inf if place in picked
                else weight * pool.fused[place]
                - (1 - weight) * max(float(vectors[place] @ vectors[one]) for one in picked)
                if picked else pool.fused[place]
                for place in range(len(pool))
            ]  # fmt: skip
            picked.append(int(np.argmax(scores)))
        assert found.picked == tuple(pool.candidates[place].id for place in picked)


def test_the_oracle_reaches_what_links_lead_to(collection, question, rng):
    pool = collection.pool(question, size=2)
    assert set(question.gold) <= set(Oracle(FIVE).select(pool, rng=rng).picked)
    found = ceiling(pool, FIVE)
    assert (found.reachable, found.unknown) == (1.0, ())
    assert found.retrieved < 1.0
    never = ceiling(pool, Environment(Limits(expanding="never")))
    assert never.reachable == never.retrieved


def test_gold_behind_a_bridge_that_is_no_gold_is_within_reach(collection, rng):
    question = Question("q", "Which band from Canada made Counterparts?", gold=("neil",))
    pool = collection.pool(question, size=1)
    assert [one.id for one in pool.candidates] == ["band"]
    assert "neil" not in Oracle(Environment(Limits(picks=3))).select(pool, rng=rng).picked
    reached = [ceiling(pool, Environment(Limits(picks=picks))).reachable for picks in (1, 2, 3)]
    assert reached == [0.0, 0.0, 1.0]
    many = replace(pool, question=replace(question, gold=("band", "rush", "neil")))
    assert ceiling(many, Environment(Limits(picks=2))).reachable == 2 / 3


def test_gold_that_is_not_there_is_told_as_ceiling(collection):
    question = Question("q", "Who drummed on Counterparts?", gold=("band", "nowhere"))
    found = ceiling(collection.pool(question))
    assert (found.reachable, found.unknown) == (0.5, ("nowhere",))
    with pytest.raises(InputError, match="no gold"):
        ceiling(collection.pool(Question("q", "Who drummed?")))


def test_a_scorer_follows_links(collection, question, rng):
    pool = collection.pool(question, size=1)
    scorer = _linear(fused=1.0, named_by_selected=5.0, is_expand=10.0)
    found = ScoredSelector("linear", scorer, FIVE).select(pool, rng=rng)
    assert found.picked == ("band", "rush", "neil")
    assert [one.action for one in found.steps] == ["band", "expand", "rush", "expand", "neil"]
    assert set(found.brought) >= {"rush", "neil"}
    assert found.stopped == "steps"
    assert found.propensity == 1.0
    wider = ScoredSelector("linear", scorer, FIVE).select(
        collection.pool(question, size=4), rng=rng
    )
    assert wider.picked[:2] == ("band", "rush")
    assert next(iter(wider.why[1])) == "named_by_selected"


def test_every_step_is_logged_with_its_probability(pool):
    rule = StepRule(3, 1.0, 0.2)
    selector = ScoredSelector("soft", _linear(fused=2.0), Environment(), rule)
    for seed in range(20):
        found = selector.select(pool, rng=np.random.default_rng(seed))
        assert found.propensity == pytest.approx(np.prod([one.p for one in found.steps]))
        for step in found.steps:
            assert step.p >= 0.2 / len(step.eligible) - 1e-12
            assert "stop" in step.eligible
            assert len([name for name in step.eligible if name not in {"stop", "expand"}]) <= 3
        assert len(found.why) == len(found.steps)


def test_no_candidates_give_an_empty_selection(rng):
    pool = Collection.of_texts(ROWS_ALIKE).pool(Question("q", "xyzzy", gold=("p0",)))
    for selector in (
        TopK(), Mmr(), Oracle(), Pointwise(_linear(fused=1.0)),
        ScoredSelector("s", _linear(fused=1.0)),
    ):  # fmt: skip
        found = selector.select(pool, rng=rng)
        assert (found.picked, found.propensity, found.stopped) == ((), 1.0, "stop")


ROWS_ALIKE = [(f"p{i}", "", "the same words") for i in range(6)]


@pytest.mark.slow
def test_candidates_that_are_all_alike_are_picked_evenly():
    """A scorer that sees no difference draws each as often."""
    pool = Collection.of_texts(ROWS_ALIKE).pool(Question("q", "same words"))
    once = Environment(Limits(picks=1, may_stop=False))
    selector = ScoredSelector("s", _linear(coverage=1.0), once, StepRule(6, 0.0, 0.0))
    rng = np.random.default_rng(0)
    picked = [selector.select(pool, rng=rng) for _ in range(600)]
    assert {one.propensity for one in picked} == {1 / 6}
    _, counts = np.unique([one.picked[0] for one in picked], return_counts=True)
    assert len(counts) == 6
    assert counts.min() > 65


def test_experts_say_what_is_right(collection, question):
    pool = collection.pool(question, size=2)
    task, gold = EvidenceTask(pool, Environment()), GoldExpert()
    standing = task.begin()
    said = []
    while (options := task.options(standing)) is not None:
        labels = gold.labels(task, standing, options)
        said.append(options.names[int(labels.argmax())])
        standing = task.take(standing, int(labels.argmax()))
    assert set(said) == {"band", "rush", "neil", "expand", "stop"}
    assert said[-1] == "stop"

    rank = RankExpert(share=5.0)
    standing = task.begin()
    options = task.options(standing)
    first = options.names[int(rank.labels(task, standing, options).argmax())]
    assert first == pool.candidates[0].id
    standing = task.take(standing, 0)
    options = task.options(standing)
    if "expand" in options.names:
        assert options.names[int(rank.labels(task, standing, options).argmax())] == "expand"


def test_a_clone_of_gold_selects_gold(collection, question, rng):
    pytest.importorskip("lightgbm", reason="needs the extra evidence")
    pool = collection.pool(question, size=4)
    task = EvidenceTask(pool, Environment(Limits(expanding="always")))
    how = CloneSettings(rounds=3, trees=TreeSettings(trees=60, least=1, learning_rate=0.3))
    scorer = clone([task], GoldExpert(), how)
    selector = ScoredSelector("clone", scorer, Environment(Limits(expanding="always")))
    assert set(selector.select(pool, rng=rng).picked) == set(question.gold)


def test_names_and_numbers_that_cannot_be():
    with pytest.raises(InputError, match="ranking"):
        TopK("best")
    for weight in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="λ"):
            Mmr(weight)
