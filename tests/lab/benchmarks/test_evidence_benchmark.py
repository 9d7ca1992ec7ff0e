"""The benchmark of evidence selection says of seeds, goals and intervals what they came to."""

import numpy as np
import pytest

pytest.importorskip("bm25s", reason="the extra rag")

from benchmarks.evidence import (
    APART,
    FIVE,
    FOLDS,
    LOOKED_AT,
    RAFT,
    SEEDS,
    SetResults,
    _differences,
    _first,
    _quality,
)
from steersman.policies.network_scorer import NetworkScorer
from steersman_systems.evidence_selection.features import FEATURES
from steersman_systems.evidence_selection.raft_training import feedback
from steersman_systems.evidence_selection.tasks import EvidenceTask
from tests.systems.evidence_selection.bands import bands

OTHERS = ("clone of gold", "start, no gold", "top-k, fused", "pointwise", "MMR, λ 0.8")


def _judged(name, raft, *, count=300):
    """A set on which the clone of gold finds all of .9, what starts of .8, RAFT what is told."""
    judged = SetResults(name, [None] * count)
    shares = {"clone of gold": 0.9, "start, no gold": 0.8, RAFT: raft}
    for other in (*OTHERS, RAFT):
        found = (np.arange(count) < round(shares.get(other, 0.5) * count)).astype(np.float64)
        judged.whole[other], judged.recall[other] = found, found
    judged.by_seed = dict.fromkeys(SEEDS, judged.whole[RAFT])
    return judged


def _rows(figures):
    return {one.name: one for one in figures}


@pytest.mark.parametrize(("raft", "holds", "shown"), [(0.9, True, 1.0), (0.88, True, 0.0),
                                                     (0.87, False, 0.0)])  # fmt: skip
def test_behind_by_two_points_is_told_apart_from_shown_to_be(raft, holds, shown):
    rows = _rows(_differences(_judged("hotpotqa", raft), "hotpotqa"))
    near = rows["hotpotqa, RAFT, no gold over clone of gold: all gold found"]
    assert near.holds is holds
    assert near.goal == ">= -0.02, by the estimate"
    assert near.peers == pytest.approx({f"seed {seed}": raft - 0.9 for seed in SEEDS})
    told = next(one for name, one in rows.items() if "lower end" in name)
    assert told.value == near.low
    assert told.peers == {"shown (1) or not (0)": shown}
    assert told.holds is None, "no goal of its own"
    assert near.low < near.value or raft == 0.9
    assert near.low > APART[0]


@pytest.mark.parametrize(("raft", "holds"), [(0.84, True), (0.82, False), (0.8, False)])
def test_ahead_of_the_start_by_three_points_and_surely(raft, holds):
    rows = _rows(_differences(_judged("musique", raft), "musique"))
    assert rows["musique, RAFT, no gold over start, no gold: all gold found"].holds is holds


def test_questions_by_whose_gold_less_was_chosen_have_rows_of_their_own():
    judged = _judged("musique", 0.84)
    less_seen = int((~np.isin(judged.fold, LOOKED_AT)).sum())
    rows = _rows(_differences(judged, "musique"))
    name = f"musique, the {less_seen} questions less looked at, RAFT, no gold over start, no gold"
    assert less_seen == 180
    assert rows[f"{name}: all gold found"].holds is None


@pytest.mark.slow
def test_alike_on_every_question_is_not_certain():
    rows = _rows(_quality(_judged("hotpotqa", 0.9)))
    found = rows["hotpotqa (300 questions), five passages, RAFT, no gold over clone of gold: "
                 "all gold found"]  # fmt: skip
    assert found.low < found.value == 0.0 < found.high


def test_what_seeds_find_is_meant_question_by_question():
    pools = bands().pools
    judged = SetResults("bands", pools)
    ahead, behind = (
        NetworkScorer.linear(sign * np.eye(len(FEATURES))[FEATURES.index("fused")])
        for sign in (1.0, -1.0)
    )
    every = range(len(pools))
    judged.add_seeds([ahead, behind, behind], every)
    assert judged.whole[RAFT] == pytest.approx(np.mean(list(judged.by_seed.values()), axis=0))
    assert list(judged.by_seed) == list(SEEDS)
    assert judged.by_seed[1].tolist() == judged.by_seed[2].tolist()


def test_of_a_log_the_first_of_each_question_are_what_a_shorter_log_had():
    tasks = [EvidenceTask(pool, FIVE) for pool in bands().pools]
    whole, short = feedback(tasks, each=9), feedback(tasks, each=4)
    few = _first(whole, 4)
    assert [(one.task, one.reward, one.propensity) for one in few] == [
        (one.task, one.reward, one.propensity) for one in short
    ]


def test_the_turns_of_a_conversation_are_held_out_together_and_resampled_together():
    count = 60
    alone = SetResults("alone", [None] * count)
    of_one = SetResults("of one", [None] * count, [f"talk {place}" for place in range(count)])
    assert of_one.fold.tolist() == alone.fold.tolist()
    talks = [f"talk {place // 6}" for place in range(count)]
    turns = SetResults("turns", [None] * count, talks)
    assert all(len(set(turns.fold[place : place + 6])) == 1 for place in range(0, count, 6))
    assert set(turns.fold) == set(range(FOLDS))
    found = np.repeat(np.random.default_rng(0).integers(0, 2, 10), 6).astype(float)
    wide, narrow = (one.mean(found, (0.0, 1.0)) for one in (turns, alone))
    assert wide.value == narrow.value
    assert wide.high - wide.low > 1.8 * (narrow.high - narrow.low)
    some = np.arange(count) < 30
    assert turns.mean(found[some], (0.0, 1.0), among=some).count == 30
