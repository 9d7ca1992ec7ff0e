"""Policies on questions: what each picked, how good that is, and what was answered from it."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Protocol

import numpy as np

from steersman.errors import DataError, InputError
from steersman.learn import spread
from steersman.policies.sequence import EXPAND
from steersman.retrieval import all_gold_at, ndcg_at, recall_at
from steersman.systems.leadr import answers, measures
from steersman.systems.leadr.paired import mean_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.llm import Measure
    from steersman.systems.leadr.answering import Answered, Answerer
    from steersman.systems.leadr.collection import Collection
    from steersman.systems.leadr.environment import Selection, Selector
    from steersman.systems.leadr.paired import Estimate
    from steersman.systems.leadr.pool import Candidate, Pool

    Floats = NDArray[np.float64]

MEASURES = (
    "recall", "ndcg", "all_gold", "holds_answer", "redundancy", "repetition", "passages",
    "tokens", "latency_ms", "calls", "cost", "em", "f1", "answer_contained", "citation_accuracy",
    "attributed", "faithful",
)  # fmt: skip
"""recall, ndcg, all_gold: of the gold passages among those picked. holds_answer: whether a picked
passage holds a right answer. redundancy: how near each passage is to the nearest before it;
repetition: share of its runs of words said before. tokens: of the context. latency_ms: of selecting
alone. calls: searches and expansions; cost: calls × tokens. em, f1, answer_contained: of the answer
that a model gave from them. citation_accuracy: share of the passages it can be traced to that are
gold; attributed: whether any is. faithful: whether what was shown bears it out: by a judge, or,
without one, whether it stands there word for word. NaN where a question has none of it."""

Timer = Callable[[], float]


class Contender(Protocol):
    """A policy that takes part: ready made, or made anew from each fold's training questions."""

    @property
    def name(self) -> str:
        """Its name in reports."""

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the selector to be measured.

        Args:
            pools: of the questions it may learn from; those it is measured on are not among them.
        """


@dataclass(frozen=True, slots=True)
class Fixed:
    """A contender that learns nothing.

    Args:
        selector: that is measured.
    """

    selector: Selector

    @property
    def name(self) -> str:
        """The selector's."""
        return self.selector.name

    def fitted(self, pools: Sequence[Pool]) -> Selector:
        """Return the selector itself.

        Args:
            pools: not looked at.
        """
        return self.selector


@dataclass(frozen=True, slots=True)
class Row:
    """One policy on one question.

    Attributes:
        policy: its name.
        question: id of the question.
        group: its conversation, or the question's own id.
        fold: in which it was held out.
        selection: what was picked, with its steps.
        values: measure -> value; NaN where it has none.
        picked: the passages, in order.
        answered: what a model answered; None: it was not asked.
    """

    policy: str
    question: str
    group: str
    fold: int
    selection: Selection
    values: Mapping[str, float]
    picked: tuple[Candidate, ...] = field(repr=False)
    answered: Answered | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Evaluation:
    """All rows of one set.

    Attributes:
        name: of the set.
        pools: as they were retrieved, in the order of the questions.
        rows: policy -> one row a question, in that order.
        absent: policy -> why it did not take part.
        seed: of folds and draws.
    """

    name: str
    pools: tuple[Pool, ...] = field(repr=False)
    rows: Mapping[str, tuple[Row, ...]] = field(repr=False)
    absent: Mapping[str, str]
    seed: int

    def column(self, policy: str, measure: str) -> Floats:
        """Return (n,) a measure of a policy, question by question; NaN where it has none.

        Args:
            policy: one of `rows`.
            measure: one of `MEASURES`.
        """
        return np.array([row.values.get(measure, nan) for row in self.rows[policy]])

    def mean(self, policy: str, measure: str) -> Estimate:
        """Return a measure's mean with its interval.

        Args:
            policy: one of `rows`.
            measure: one of `MEASURES`.
        """
        return mean_of(self.column(policy, measure), self._groups(policy), seed=self.seed)

    def difference(self, policy: str, other: str, measure: str) -> Estimate:
        """Return the mean of one policy less another's on the same questions, with its interval.

        Args:
            policy: one of `rows`.
            other: one of `rows`.
            measure: one of `MEASURES`.
        """
        paired = self.column(policy, measure) - self.column(other, measure)
        return mean_of(paired, self._groups(policy), seed=self.seed)

    def ceiling(self) -> tuple[float, int]:
        """Return the share of gold that is in the pools as retrieved, and how often some is not.

        What is not there cannot be picked without expanding.
        """
        shares = [
            len({*pool.question.gold} & {one.id for one in pool.candidates})
            / len(pool.question.gold)
            for pool in self.pools
            if pool.question.gold
        ]
        return (float(np.mean(shares)) if shares else nan, sum(one < 1.0 for one in shares))

    def _groups(self, policy: str) -> list[str]:
        return [row.group for row in self.rows[policy]]


def evaluate(
    name: str,
    pools: Sequence[Pool],
    contenders: Sequence[Contender],
    *,
    groups: Mapping[str, str] | None = None,
    folds: int = 5,
    seed: int = 0,
    answerer: Answerer | None = None,
    judge: Measure | None = None,
    absent: Mapping[str, str] | None = None,
    done: Callable[[int], None] | None = None,
    address: str | None = None,
    clock: Timer = time.perf_counter,
) -> Evaluation:
    """Measure policies on questions, each on those it did not learn from.

    Args:
        name: of the set.
        pools: one a question; at least as many as folds.
        contenders: at least one, of different names.
        groups: question id -> its conversation, which is held out as a whole.
        folds: 2 to 20.
        seed: of folds and draws: a policy draws the same on a question whoever else takes part.
        answerer: of questions from what was picked; None: nothing is answered.
        judge: of an answer's faithfulness; None: whether it stands in what was shown.
        absent: policy -> why it does not take part, to be told.
        done: called with 1 after each question of each policy.
        address: of a Ray cluster that trains and selects, a fold of a policy at a time; answers are
            asked from here. None: all of it here.
        clock: seconds.

    Returns:
        One row for each policy and question; whoever needs an extra that is not installed is among
        the absent, with that reason.

    Raises:
        DataError: nobody could take part.
        InputError: too few questions or groups, folds out of range, or two contenders of one name.

    No doctest: it needs pools; ``tests/systems/leadr/test_evaluating.py`` shows it.
    """
    names = [one.name for one in contenders]
    if not names or len(set(names)) < len(names):
        raise InputError(f"contenders are {names}; give one or more, each of another name")
    kept = dict(groups or {})
    of = [kept.get(pool.question.id, pool.question.id) for pool in pools]
    fold_of = folds_of(of, folds, seed)
    left_out = dict(absent or {})
    travelling = pools if address is None else _without_embedders(pools)
    work = partial(_fold_of, travelling, fold_of, seed, clock)
    parts = [(one, fold) for one in contenders for fold in range(folds)]
    rows: dict[str, dict[int, Row]] = {name: {} for name in names}
    answering = _Answering(answerer, judge)
    for (contender, fold), told in zip(parts, spread(work, parts, address=address), strict=True):
        if isinstance(told, str):
            left_out[contender.name] = told
            continue
        for place, selection, took_ms in told:
            rows[contender.name][place] = answering.row(
                contender.name, pools[place], selection, took_ms, of[place], fold
            )
            if done is not None:
                done(1)
    whole = {
        name: tuple(own[place] for place in range(len(pools)))
        for name, own in rows.items()
        if name not in left_out
    }
    if not whole:
        raise DataError("; ".join(f"{one}: {why}" for one, why in left_out.items()))
    return Evaluation(name, tuple(pools), whole, left_out, seed)


def folds_of(groups: Sequence[str], folds: int, seed: int) -> NDArray[np.intp]:
    """Return the fold of each question, all of one group in one fold.

    Args:
        groups: (n,) of each question.
        folds: 2 to 20, at most as many as there are groups.
        seed: of the draw.

    Raises:
        InputError: `folds` is out of its range.

    >>> folds_of(["a", "a", "b"], 2, 0).tolist() in ([0, 0, 1], [1, 1, 0])
    True
    """
    names, place = np.unique(np.asarray(groups), return_inverse=True)
    if not 2 <= folds <= min(20, len(names)):
        message = f"folds is {folds!r}; allowed are 2 to 20, and no more than the {len(names)}"
        raise InputError(f"{message} conversations or single questions there are")
    order = np.random.default_rng([seed, 16]).permutation(len(names))
    return np.asarray(order % folds, np.intp)[place]


def _fold_of(
    pools: Sequence[Pool],
    fold_of: NDArray[np.intp],
    seed: int,
    clock: Timer,
    part: tuple[Contender, int],
) -> list[tuple[int, Selection, float]] | str:
    """Return (place, selection, ms) of a fold's questions; or which extra its policy lacks."""
    contender, fold = part
    try:
        selector = contender.fitted([pools[place] for place in np.flatnonzero(fold_of != fold)])
    except DataError as missing:
        return str(missing)
    found = []
    for place in np.flatnonzero(fold_of == fold).tolist():
        rng = np.random.default_rng([seed, 17, place])
        start = clock()
        selection = selector.select(pools[place], rng=rng)
        found.append((place, selection, 1e3 * (clock() - start)))
    return found


def _without_embedders(pools: Sequence[Pool]) -> list[Pool]:
    """Return pools that can travel: nobody embeds a query after it was retrieved."""
    bare: dict[int, Collection] = {}
    for pool in pools:
        if id(pool.collection) not in bare:
            bare[id(pool.collection)] = copy(pool.collection)
            bare[id(pool.collection)].embedder = None
    return [replace(pool, collection=bare[id(pool.collection)]) for pool in pools]


@dataclass(frozen=True, slots=True)
class _Answering:
    answerer: Answerer | None
    judge: Measure | None

    def row(
        self, policy: str, pool: Pool, selection: Selection, took_ms: float, group: str, fold: int
    ) -> Row:
        picked = tuple(_candidate(pool, one) for one in selection.picked)
        values = _selected(pool, selection, picked) | {"latency_ms": took_ms}
        answered = None
        if self.answerer is not None:
            answered = self.answerer(pool.question.text, picked)
            values |= _answered(pool, answered, self.judge)
        return Row(
            policy, pool.question.id, group, fold, selection, values,
            picked=picked, answered=answered,
        )  # fmt: skip


def _candidate(pool: Pool, name: str) -> Candidate:
    return pool.collection.candidates[pool.collection.place_of[name]]


def _selected(pool: Pool, selection: Selection, picked: Sequence[Candidate]) -> dict[str, float]:
    question = pool.question
    positions = [one.position for one in picked]
    vectors = pool.collection.vectors
    texts = [f"{one.title} {one.text}" for one in picked]
    tokens = float(pool.collection.tokens[positions].sum()) if positions else 0.0
    expansions = sum(step.action == EXPAND for step in selection.steps)
    # Where expanding is no action, every pick that is followed is one.
    calls = 1.0 + (expansions or len(picked) * bool(selection.brought))
    found = {
        "redundancy": (
            measures.word_redundancy(texts)
            if vectors is None
            else measures.redundancy(vectors[positions])
        ),
        "repetition": measures.repetition(texts),
        "passages": float(len(picked)),
        "tokens": tokens,
        "calls": calls,
        "cost": calls * tokens,
    }
    if question.answers:
        found["holds_answer"] = float(
            any(answers.contains(text, question.answers) for text in texts)
        )
    return found | _gold(selection.picked, question.gold)


def _gold(picked: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    if not gold:
        return {}
    gains, places = dict.fromkeys(gold, 1.0), max(len(picked), 1)
    return {
        "recall": recall_at(picked, gains, places),
        "ndcg": ndcg_at(picked, gains, max(places, len(gold))),
        "all_gold": all_gold_at(picked, gains, places),
    }


def _answered(pool: Pool, answered: Answered, judge: Measure | None) -> dict[str, float]:
    question, text = pool.question, answered.text
    citations = measures.cited(text, dict(answered.shown))
    found = {"faithful": _faithful(question.text, answered, citations, judge)}
    if question.gold:
        found["citation_accuracy"] = measures.citation_accuracy(citations, question.gold)
        found["attributed"] = measures.attributed(citations, question.gold)
    if question.answers:
        found["em"] = answers.exact_match(text, question.answers)
        found["f1"] = answers.f1(text, question.answers)
        found["answer_contained"] = float(answers.contains(text, question.answers))
    return found


def _faithful(
    question: str, answered: Answered, citations: Iterable[str], judge: Measure | None
) -> float:
    if judge is None:
        return float(any(True for _ in citations))
    from steersman.llm import Case  # noqa: PLC0415 (only where a judge is asked)

    value = judge(Case(question, answered.text, tuple(text for _, text in answered.shown))).value
    return nan if value is None else value
