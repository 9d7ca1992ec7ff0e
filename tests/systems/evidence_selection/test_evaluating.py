"""Policies are measured on questions they did not learn from; every figure against a count."""

import math
import pickle
import re
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest

from steersman.errors import BackendUnavailableError, DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.providers.judges.judge import Judge, Retry
from steersman.providers.spending_limit import Budget
from steersman_systems.evidence_selection.answer_model import Answerer
from steersman_systems.evidence_selection.baselines import Oracle, TopK
from steersman_systems.evidence_selection.contenders import (
    BASELINE,
    NETWORK,
    LinearlyCloned,
    NeurallyCloned,
    contenders,
)
from steersman_systems.evidence_selection.environment import Environment, Limits, Selection
from steersman_systems.evidence_selection.evaluate import Fixed, _fold_of, evaluate, folds_of
from steersman_systems.evidence_selection.paired import mean_of
from tests.systems.evidence_selection.bands import bands


def tick():
    return 0.0


FULL = Environment(Limits(picks=3, expanding="always", may_stop=False))


class Fold:
    """A selector that tells what it was asked, and draws."""

    name = "remembering"

    def __init__(self):
        self.asked = set()

    def select(self, pool, *, rng):
        self.asked.add(pool.question.id)
        return Selection((pool.candidates[0].id,), propensity=float(rng.random()))


class Remembering:
    """A contender that tells which questions it was trained on and measured on."""

    name = "remembering"

    def __init__(self):
        self.known, self.folds = [], []

    def fitted(self, pools):
        self.known.append({pool.question.id for pool in pools})
        self.folds.append(Fold())
        return self.folds[-1]

    @property
    def asked(self):
        return [fold.asked for fold in self.folds]


class Lacking:
    """A contender whose extra is not installed."""

    name = "lacking"

    def fitted(self, pools):
        raise DataError("torch is not installed")


class Echo:
    """A model that answers with the last words of the first passage it was shown."""

    name = "echo"

    def __init__(self):
        self.prompts = []

    def complete(self, prompt, *, max_tokens, timeout_s):
        self.prompts.append(prompt)
        if "Yes" in prompt.splitlines()[0]:
            raise BackendUnavailableError("busy")
        return "Answer: 3 bridges."


class Renamed:
    """The baseline under another name."""

    name = "the same"

    def select(self, pool, *, rng):
        return TopK("fused", FULL).select(pool, rng=rng)


class Idle:
    """A selector that picks nothing."""

    name = "idle"

    def select(self, pool, *, rng):
        return Selection(())


@pytest.fixture(scope="module")
def prepared():
    return bands()


def test_gold_found_is_counted_and_compared(prepared):
    best, worst = Fixed(Oracle(FULL)), Fixed(TopK("fused", FULL))
    found = evaluate("bands", prepared.pools, [worst, best], folds=3)
    assert found.column("oracle", "all_gold").tolist() == [1.0] * 6
    assert found.column("oracle", "recall").tolist() == [1.0] * 6
    before = found.column(worst.name, "all_gold")
    ahead = found.difference("oracle", worst.name, "all_gold")
    assert ahead.value == pytest.approx(1.0 - before.mean())
    assert [row.question for row in found.rows["oracle"]] == [f"q{n}" for n in range(6)]
    assert found.column("oracle", "holds_answer").tolist() == [1.0] * 6
    assert np.isnan(found.column("oracle", "f1")).all()
    share, short = found.ceiling()
    assert 0.5 <= share <= 1.0
    assert short == sum(
        not {*pool.question.gold} <= {one.id for one in pool.candidates} for pool in found.pools
    )


def test_nobody_is_measured_on_what_it_learned_from_nor_on_its_conversation(prepared):
    contender = Remembering()
    evaluate("bands", prepared.pools, [contender], groups=prepared.groups, folds=3)
    assert set.union(*contender.asked) == {f"q{n}" for n in range(6)}
    for known, asked in zip(contender.known, contender.asked, strict=True):
        talks = {prepared.groups[one] for one in known}
        assert talks.isdisjoint(prepared.groups[one] for one in asked)


def test_draws_do_not_depend_on_who_else_takes_part(prepared):
    alone = evaluate("bands", prepared.pools, [Remembering()], folds=3, seed=4)
    other = Fixed(Oracle(FULL))
    beside = evaluate("bands", prepared.pools, [other, Remembering()], folds=3, seed=4)
    assert [row.selection for row in alone.rows["remembering"]] == [
        row.selection for row in beside.rows["remembering"]
    ]
    again = evaluate("bands", prepared.pools, [Remembering()], folds=3, seed=5)
    assert alone.rows["remembering"][0].selection != again.rows["remembering"][0].selection


def test_who_cannot_be_trained_is_told_and_the_others_are_measured(prepared):
    best = Fixed(Oracle(FULL))
    found = evaluate("bands", prepared.pools, [Lacking(), best], folds=3, absent={"x": "gone"})
    assert dict(found.absent) == {"x": "gone", "lacking": "torch is not installed"}
    assert list(found.rows) == ["oracle"]
    with pytest.raises(DataError, match="lacking: torch is not installed"):
        evaluate("bands", prepared.pools, [Lacking()], folds=3)


def test_what_travels_to_a_cluster_is_whole_without_its_embedder(prepared):
    work = partial(_fold_of, [prepared.pools], folds_of([*"abcdef"], 2, 0), 0, tick)
    part = (LinearlyCloned("clone", FULL.limits), 0, 1)
    here = work(part)
    copied = pickle.loads(pickle.dumps(work))  # noqa: S301
    assert copied.args[0][0][0].collection.embedder is None
    assert here == copied(pickle.loads(pickle.dumps(part)))  # noqa: S301
    assert len(here) == 3


def test_answers_are_scored_and_those_that_failed_are_told(prepared):
    model = Echo()
    judge = Judge(model, retry=Retry(tries=1))
    found = evaluate(
        "bands", prepared.pools, [Fixed(Oracle(FULL))], folds=3, answerer=Answerer(judge)
    )
    rows = found.rows["oracle"]
    assert found.column("oracle", "em")[[0, 1, 3, 4, 5]].tolist() == [1.0, 0, 0, 0, 0]
    assert rows[1].values["f1"] == 0.5
    assert found.column("oracle", "attributed")[[0, 1, 3, 4, 5]].tolist() == [1.0, 0, 0, 0, 0]
    for measure in ("em", "f1", "attributed", "faithful", "answer_contained", "citation_accuracy"):
        assert np.isnan(found.column("oracle", measure)[2]), measure
    assert found.column("oracle", "unanswered").tolist() == [0, 0, 1.0, 0, 0, 0]
    assert found.mean("oracle", "f1").count == 5
    assert rows[0].values["citation_accuracy"] == rows[0].values["faithful"] == 1.0
    assert (rows[2].answered.text, rows[2].answered.failed) == ("", "busy")
    assert len(model.prompts) == 6


def test_in_a_conversation_what_was_searched_for_is_asked():
    """The last turn by itself may ask of nothing that can be named: and where was she born?"""
    talking, model = bands(history=True), Echo()
    talking = [replace(one, query=replace(one.query, text=f"{one.question.text} Tell me of it."))
               for one in talking.pools]  # fmt: skip
    judged = []

    class Noting:
        value = 1.0

        def __call__(self, case):
            judged.append(case.question)
            return self

    evaluate("bands", talking, [Fixed(Oracle(FULL))], folds=3, judge=Noting(),
             answerer=Answerer(Judge(model, retry=Retry(tries=1))))  # fmt: skip
    assert all("Tell me of it." in prompt.splitlines()[0] for prompt in model.prompts)
    assert judged
    assert all(one.endswith("Tell me of it.") for one in judged)
    alone = bands().pools[0]
    assert replace(alone, query=replace(alone.query, text="else")).asked == alone.question.text


def test_a_budget_that_ends_ends_for_all_alike_and_makes_nobody_worse(prepared):
    model = Echo()
    judge = Judge(model, budget=Budget(max_calls=5))
    both = [Fixed(TopK("fused", FULL)), Fixed(Renamed())]
    done = []
    found = evaluate("bands", prepared.pools, both, folds=3, answerer=Answerer(judge),
                     done=done.append)  # fmt: skip
    assert len(done) == 12
    unanswered = [found.column(one, "unanswered").tolist() for one in found.rows]
    assert unanswered == [[0, 0, 1.0, 1, 1, 1], [0, 0, 1.0, 1, 1, 1]]
    ahead = found.difference("the same", BASELINE, "f1")
    assert (ahead.value, ahead.count) == (0.0, 2)


def test_a_yes_or_a_no_stands_in_no_passage():
    prepared = bands()
    asked = [replace(one, question=replace(one.question, answers=("Yes",)))
             for one in prepared.pools]  # fmt: skip
    judge = Judge(Echo(), retry=Retry(tries=1))
    found = evaluate("bands", asked, [Fixed(Oracle(FULL))], folds=3, answerer=Answerer(judge))
    for measure in ("holds_answer", "attributed", "citation_accuracy", "faithful"):
        assert np.isnan(found.column("oracle", measure)).all(), measure
    assert found.mean("oracle", "f1").count == 5


def test_who_picks_nothing_has_answered_nothing_right(prepared):
    judge = Judge(Echo())
    found = evaluate("bands", prepared.pools, [Fixed(Idle())], folds=3, answerer=Answerer(judge))
    assert found.column("idle", "f1").tolist() == [0.0] * 6
    assert found.column("idle", "unanswered").tolist() == [0.0] * 6


def test_nothing_to_pick_from_is_measured_as_nothing_found():
    prepared = bands(size=1)
    found = evaluate("bands", prepared.pools, [Fixed(TopK("fused", FULL))], folds=2)
    assert found.column(BASELINE, "passages").tolist() == [1.0] * 6
    assert found.column(BASELINE, "recall").tolist() == [0.5] * 6
    assert found.ceiling() == (0.5, 6)


def test_folds_hold_whole_groups_and_are_of_nearly_equal_size():
    groups = [f"c{n // 3}" for n in range(30)]
    folds = folds_of(groups, 5, 0)
    assert all(len({folds[place] for place in range(30) if groups[place] == one}) == 1
               for one in groups)  # fmt: skip
    assert sorted(np.bincount(folds)) == [6] * 5
    with pytest.raises(
        InputError, match="folds is 11; allowed: 2 to 20, and at most the number of"
    ):
        folds_of(groups, 11, 0)


def test_contenders_are_named_the_baseline_first(prepared):
    with pytest.raises(InputError, match="unknown policy 'magic'; allowed: top-k, fused"):
        contenders(["magic"])
    names = [one.name for one in contenders("all")]
    assert names[0] == BASELINE
    assert {"+BC", "+BC+RAFT", "+BC+RAFT+PPO", "pointwise", "oracle"} <= {*names}
    assert NETWORK not in names
    assert [one.name for one in contenders([NETWORK])] == [BASELINE, NETWORK]
    with pytest.raises(InputError, match="one or more with different names"):
        evaluate("bands", prepared.pools, [Fixed(TopK("fused", FULL))] * 2, folds=2)


@pytest.mark.slow
def test_a_network_is_cloned_or_said_to_need_its_extra(prepared):
    pytest.importorskip("lightgbm", reason="the extra evidence")
    contender = NeurallyCloned("network", FULL.limits, updates=60, learning_rate=1e-2)
    if find_spec("torch") is None:
        with pytest.raises(DataError, match=re.escape(how_to_install("rl"))):
            contender.fitted(prepared.pools)
        return
    made = contender.fitted(prepared.pools[1:])
    picked = made.select(prepared.pools[0], rng=np.random.default_rng(0)).picked
    assert {"b0", "t0"} <= {*picked}


# -- intervals ------------------------------------------------------------------------------------


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        found = mean_of(rng.binomial(1, 0.3, size=60).astype(float), resamples=400, seed=trial)
        hits += found.low <= 0.3 <= found.high
    assert 0.90 <= hits / 300 <= 0.985


@pytest.mark.slow
def test_intervals_of_a_family_cover_all_together():
    """Of five policies that are all as good as the baseline, one looks better often; not here."""
    rng = np.random.default_rng(0)
    alone = together = 0
    for trial in range(200):
        tried = [rng.normal(size=80) for _ in range(5)]
        alone += any(mean_of(one, resamples=500, seed=trial).low > 0 for one in tried)
        together += any(mean_of(one, family=5, resamples=500, seed=trial).low > 0 for one in tried)
    assert alone / 200 > 0.07
    assert together / 200 <= 0.05
    assert mean_of(np.arange(9.0), family=5).family == 5
    with pytest.raises(InputError, match="resamples is 400 for a family of 5"):
        mean_of(np.arange(9.0), family=5, resamples=400)


def test_where_all_are_alike_the_interval_covers_as_often_as_it_says():
    """A share of 5 % that fails is missed by twelve questions often; it is not ruled out."""
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        values = rng.binomial(1, 0.95, size=12).astype(float)
        found = mean_of(values, within=(0.0, 1.0), resamples=300, seed=trial)
        hits += found.low <= 0.95 <= found.high
    assert hits / 300 >= 0.9
    same = mean_of(np.zeros(20), within=(-1.0, 1.0))
    assert (round(same.low, 3), round(same.high, 3)) == (-0.168, 0.168)
    assert mean_of(np.zeros(20), within=(-1.0, 1.0), family=4).high > same.high
    assert mean_of(np.zeros(20)).high == 0.0


def test_turns_of_one_conversation_count_together():
    values = np.repeat([0.0, 1.0, 1.0, 0.0, 1.0, 0.0], 10)
    groups = [f"c{place // 10}" for place in range(60)]
    alone, together = mean_of(values), mean_of(values, groups)
    assert alone.value == together.value == 0.5
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_questions_without_a_value_are_left_out_of_the_mean():
    found = mean_of(np.array([1.0, math.nan, 0.0]))
    assert (found.value, found.count) == (0.5, 2)
    nothing = mean_of(np.array([math.nan]))
    assert (nothing.count, math.isnan(nothing.value)) == (0, True)
    one = mean_of(np.array([1.0]))
    assert (one.value, math.isnan(one.low)) == (1.0, True)
    with pytest.raises(InputError, match="2 groups for 1 values"):
        mean_of(np.array([1.0]), ["a", "b"])
