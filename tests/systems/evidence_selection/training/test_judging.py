"""Off-policy estimates for sequence policies match their true reward."""

from dataclasses import replace

import numpy as np
import pytest

from lab.evidence_worlds import made_up
from steersman.db.logged_choices import StoredSelection
from steersman.errors import DataError, InputError
from steersman.ope import evaluate_sequences
from steersman.policies import SequenceTrees
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.offered import Offered
from steersman.policies.sequence import StepRule
from steersman_systems.evidence_selection.training.log_trees import apart, grown
from steersman_systems.evidence_selection.training.logged_selections import judge_selections
from steersman_systems.evidence_selection.training.off_policy_data import sequences_of
from steersman_systems.evidence_selection.training.task import along, walks

LOGGED, RULE = NetworkScorer.linear(np.array([2.0, 2, 1, 0, 0, 1, 0])), StepRule(20, 1.0, 0.2)
TARGET, OTHER_RULE = NetworkScorer.linear(np.array([3.0, 2.5, 1, 0, 0, 1.5, 0])), StepRule(20, 1.0)
TASKS = made_up(150, seed=1)


def _log(each=8, seed=3, tasks=TASKS):
    return walks(tasks, LOGGED, RULE, each=each, seed=seed)


@pytest.fixture(scope="module")
def truth():
    return float(np.mean([w.reward for w in walks(TASKS, TARGET, OTHER_RULE, each=80, seed=9)]))


@pytest.mark.slow
def test_estimates_from_a_log_hold_what_the_target_earns_when_it_selects(truth):
    log = _log()
    logged = np.mean([one.reward for one in log])
    found = evaluate_sequences(sequences_of(TASKS, log, TARGET, OTHER_RULE))
    assert not found.refused, found.reasons
    assert found.diagnostics.units == len(TASKS)
    for name in ("pdis", "wpdis", "dr"):
        one = found[name]
        assert one.low < truth < one.high, name
        assert not one.low < logged < one.high, "the log's own value is told from the target's"


@pytest.mark.slow
def test_intervals_cover_the_truth_and_the_model_takes_noise_out(truth):
    hits, widths = {"pdis": 0, "dr": 0}, {"pdis": 0.0, "dr": 0.0}
    for seed in range(8):
        data = sequences_of(TASKS, _log(each=4, seed=20 + seed), TARGET, OTHER_RULE)
        found = evaluate_sequences(data, estimators=("pdis", "dr"))
        for name in hits:
            one = found[name]
            hits[name] += one.low < truth < one.high
            widths[name] += one.high - one.low
    assert min(hits.values()) >= 7
    assert widths["dr"] < 0.9 * widths["pdis"]


@pytest.mark.slow
def test_along_its_own_log_a_policy_has_the_propensities_that_were_logged():
    log = _log(each=3)
    data = sequences_of(TASKS, log, LOGGED, RULE, folds=None)
    assert np.array_equal(data.target, data.propensities)
    assert np.prod(data.propensities, axis=1) == pytest.approx([one.propensity for one in log])
    assert data.rewards.sum(axis=1).tolist() == [one.reward for one in log]
    assert evaluate_sequences(data)["dr"].value is None


@pytest.mark.slow
def test_what_a_target_does_not_let_lead_has_no_chance_there():
    log = [one for one in _log(each=6) if one.task == TASKS[0].id]
    for one, told in zip(log, along(TASKS[0], log, TARGET, StepRule(1, 1.0)), strict=True):
        options = TASKS[0].options(TASKS[0].begin())
        best = options.names[int(TARGET.scores(options.rows[: options.candidates]).argmax())]
        assert (told.chances[0] > 0) == (one.taken[0].step.action in {best, "stop"})
        assert told.taken.shape == told.meant.shape == (len(one.taken), 7)


@pytest.mark.slow
def test_the_model_never_saw_the_question_it_predicts_for():
    """Changed rewards of one question change no prediction for its own selections."""
    log = _log(each=2)
    spoiled = [replace(w, reward=1.0 - w.reward) if w.task == TASKS[0].id else w for w in log]
    one, other = (sequences_of(TASKS, told, TARGET, OTHER_RULE) for told in (log, spoiled))
    own = np.array([w.task == TASKS[0].id for w in log])
    assert np.array_equal(one.q_hat[own], other.q_hat[own])
    assert np.array_equal(one.v_hat[own], other.v_hat[own])
    assert not np.array_equal(one.q_hat[~own], other.q_hat[~own])


def test_logs_of_other_questions_or_limits_are_refused():
    log = _log(each=1)
    with pytest.raises(DataError, match="not among the 149 questions"):
        sequences_of(TASKS[1:], log, TARGET, RULE)
    short = [replace(one, picks=2) for one in TASKS]
    with pytest.raises(DataError, match="limits"):
        sequences_of(short, log, TARGET, RULE)
    long = [replace(one, picks=9) for one in TASKS]
    with pytest.raises(DataError, match="continues"):
        sequences_of(long, log, TARGET, RULE)
    taken = log[0].taken[0]
    renamed = replace(taken, step=replace(taken.step, eligible=("x",), action="x"))
    with pytest.raises(DataError, match="stands"):
        sequences_of(TASKS, [replace(log[0], taken=(renamed,))], TARGET, RULE, folds=None)
    with pytest.raises(DataError, match="no step"):
        sequences_of(TASKS, [replace(log[0], taken=())], TARGET, RULE, folds=None)
    for wrong in ({"folds": 1}, {"folds": 151}, {"ridge": 0.0}):
        with pytest.raises(InputError):
            sequences_of(TASKS, log, TARGET, RULE, **wrong)
    with pytest.raises(InputError):
        sequences_of(TASKS, [], TARGET, RULE)


@pytest.mark.slow
def test_of_an_adaptive_log_models_know_the_past_and_other_units_alone(truth):
    log = _log(each=8)
    log = [log[place] for place in np.random.default_rng(0).permutation(len(log))]
    one = sequences_of(TASKS, log, TARGET, OTHER_RULE, adaptive=True)
    fold = np.arange(len(log)) * 5 // len(log)
    assert not one.q_hat[fold == 0].any()
    assert one.q_hat[fold == 1].any()
    both = zip(log, fold.tolist(), strict=True)
    later = [replace(w, reward=1.0 - w.reward) if stretch >= 2 else w for w, stretch in both]
    other = sequences_of(TASKS, later, TARGET, OTHER_RULE, adaptive=True)
    assert np.array_equal(one.q_hat[fold <= 2], other.q_hat[fold <= 2])
    assert not np.array_equal(one.q_hat[fold == 3], other.q_hat[fold == 3])
    found = evaluate_sequences(one, adaptive=True)
    assert found.adaptive
    assert found["dr"].low < truth < found["dr"].high


def test_trees_that_choose_as_what_served_did_are_not_shown_to_be_better():
    """Identical candidates cannot be split: one leaf, and the same draws."""
    declared = SequenceTrees(
        features=["score"], max_steps=2, stop=False, start={"score": 1.0}, floor=0.2
    )
    for seed in range(5):
        rng, log = np.random.default_rng(seed), []
        for number in range(800):
            names = [f"c{place}" for place in range(int(rng.integers(3, 7)))]
            offered = Offered.of(names, {}, np.full((len(names), 1), 0.5))
            drawn = declared.select(offered, rng=rng).steps
            steps = [{"eligible": list(t.eligible), "action": t.action, "p": t.p} for t in drawn]
            log.append(
                StoredSelection(str(number), f"u{number}", offered, steps, float(rng.random()))
            )
        learned, judged = apart(log)
        report = judge_selections(grown(declared, learned), judged)
        assert not report.refused
        assert (report["gain"].low, report["gain"].high) == (0.0, 0.0)
