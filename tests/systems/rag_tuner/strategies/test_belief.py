"""What is believed is the same however it came to be told, and needs no paying twice."""

import numpy as np
import pytest

pytest.importorskip("torch")

from steersman_systems.rag_tuner.actions import Moves
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.lookahead import STEPS_K, Outlook, on_grid
from steersman_systems.rag_tuner.reward import reward_of
from steersman_systems.rag_tuner.strategies.belief import Belief
from tests.systems.rag_tuner.worlds import tuned, world

WORLD, CHEAP, DEAR = world(), tuned(gamma=0.05, delta=0.05), tuned(gamma=0.4, delta=0.4)
SPACE = CHEAP.space


def told(policy, queries=120, evaluations=12, offset=0):
    belief, rng = Belief(policy, queries), np.random.default_rng(0)
    for _ in range(evaluations):
        batch = WORLD.evaluate(SPACE.draw(rng), rng.choice(len(WORLD), 32, replace=False))
        batch.queries[:] += offset
        belief.learn(batch, reward_of(batch, policy))
        smaller = WORLD.smaller(batch) if not offset else []
        belief.learn_smaller(smaller)
    return belief


def test_told_again_it_is_as_if_it_had_been_told_so_at_first():
    again, first = told(CHEAP).retold(DEAR), told(DEAR)
    assert len(again) == len(first) == 12
    assert again.mean() == pytest.approx(first.mean(), abs=1e-9)
    back = again.retold(CHEAP)
    assert back.mean() == pytest.approx(told(CHEAP).mean(), abs=1e-9)


def test_room_is_found_for_more_queries():
    small = told(CHEAP, queries=2, offset=1_000)
    large = told(CHEAP, queries=2_000, offset=1_000)
    assert small.mean() == pytest.approx(large.mean(), abs=1e-9)


@pytest.mark.slow
def test_what_lies_ahead_is_the_difference_of_means_and_its_deviation_that_of_draws():
    belief = told(CHEAP)
    others = np.array([5, 700, 2_000])
    mean, deviation = belief.ahead(40, others)
    assert mean == pytest.approx(belief.mean()[others] - belief.mean()[40], abs=1e-9)
    draws = belief.draws(20_000, np.random.default_rng(1))
    assert deviation == pytest.approx((draws[others] - draws[40]).std(axis=1), rel=0.05)


def test_a_baseline_from_outside_the_space_is_left_out():
    belief = told(CHEAP, evaluations=3)
    before = belief.mean()
    batch = WORLD.evaluate(Configuration("rrf"), np.arange(32))
    belief.learn(batch, reward_of(batch, CHEAP))
    assert len(belief) == 3
    assert (belief.mean() == before).all()


def test_the_outlook_points_to_the_best_of_each_part():
    outlook, belief = Outlook(SPACE), told(CHEAP, evaluations=40)
    running = Configuration("hybrid", k=20, fusion_weight=0.6)
    found = dict(zip(outlook.names, outlook.of(belief, running), strict=True))
    mean, index = belief.mean(), SPACE.index
    here = mean[index[running]]
    steps = {step: Configuration("hybrid", k=min(max(20 + step, 3), 32), fusion_weight=0.6)
             for step in STEPS_K}  # fmt: skip
    best = max(steps, key=lambda step: mean[index[steps[step]]])
    assert found["best_step_k"] == pytest.approx((STEPS_K.index(best) - 5) / 5)
    assert found["gain_k"] == pytest.approx(mean[index[steps[best]]] - here, abs=1e-9)
    again = Configuration("hybrid", k=20, fusion_weight=0.6, rerank=True)
    assert found["gain_rerank=True"] == pytest.approx(mean[index[again]] - here, abs=1e-9)
    assert found["gain_rerank=False"] == found["unsure_rerank=False"] == 0
    assert found["told"] == pytest.approx(np.log(41))


def test_the_outlook_points_to_the_best_of_all_whatever_else_it_changes():
    """Followed over and over, the moves come to rest there, from wherever they begin."""
    outlook, belief, moves = Outlook(SPACE), told(CHEAP, evaluations=40), Moves(SPACE)
    best = SPACE.all[belief.best()]
    assert belief.best() == belief.mean().argmax()
    for running in (Configuration("bm25", k=3, rerank=True), Configuration("hybrid", k=32)):
        first = dict(zip(outlook.names, outlook.of(belief, running), strict=True))
        gain = belief.mean()[belief.best()] - belief.mean()[SPACE.index[running]]
        assert first["gain_best"] == pytest.approx(gain, abs=1e-9)
        at = running
        for _ in range(6):
            seen = dict(zip(outlook.names, outlook.of(belief, at), strict=True))
            at = moves.apply(at, [followed(part, seen) for part in moves.parts])
        assert at == best


def followed(part, seen):
    if part.ordered:
        middle = part.size // 2
        return round(middle + middle * seen[f"towards_{part.name}"])
    if part.name == "variant":
        return 1 + [seen[f"towards_variant={one}"] for one in SPACE.variants].index(1)
    return int(seen[f"towards_{part.name}"])


def test_a_drawn_world_has_a_best_of_its_own():
    belief = told(CHEAP)
    found = {belief.best(belief.drawn(np.random.default_rng(seed))) for seed in range(20)}
    assert len(found) > 3


def test_where_no_weight_is_used_no_step_of_it_leads_anywhere():
    outlook, belief = Outlook(SPACE), told(CHEAP)
    found = dict(zip(outlook.names, outlook.of(belief, Configuration("bm25", k=9)), strict=True))
    assert found["best_step_fusion_weight"] == found["gain_fusion_weight"] == 0
    assert found["unsure_fusion_weight"] == 0


def test_before_anything_is_told_there_is_no_outlook():
    outlook = Outlook(SPACE)
    for belief in (None, Belief(CHEAP)):
        assert outlook.of(belief, Configuration()) == [0.0] * len(outlook.names)


def test_a_fused_configuration_has_a_weight_of_the_grid():
    assert on_grid(SPACE, Configuration("hybrid", fusion_weight=0.52)).fusion_weight == 0.5
    assert on_grid(SPACE, Configuration("bm25", fusion_weight=0.9)) == Configuration("bm25")
