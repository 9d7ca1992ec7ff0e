"""Linear reward model, distilled from a judge's preferences, with a length baseline.

A model can imitate a judge by preferring longer answers. So reports compare it with answer length
and give the difference with its interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize

from steersman.errors import InputError
from steersman.retrieval.bm25 import query_terms
from steersman_systems.evidence_selection.evaluate import folds_of
from steersman_systems.evidence_selection.paired import mean_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.providers.judges.pairwise import Pair
    from steersman.retrieval.dense import Embedder
    from steersman_systems.evidence_selection.paired import Estimate

    Floats = NDArray[np.float64]

TRAITS = (
    "length", "words_of_question", "copied_from_question", "in_contexts", "distinct_words",
    "sentences", "digits", "refusal", "lines", "near_question",
)  # fmt: skip
"""Traits of an answer. length: ln(1 + words). words_of_question: share of the question's terms
in it. copied_from_question: share of its terms in the question. in_contexts: share of its terms
in the contexts; 0 without any. distinct_words: distinct over all words. sentences, lines: ln(1 +
count). digits: share of its characters. refusal: whether it declines to answer. near_question:
cosine with the question; 0 without an embedder."""
_REFUSING = ("i cannot", "i can't", "i'm sorry", "as an ai", "i do not know", "i don't know")


@dataclass(frozen=True, slots=True)
class Preferred:
    """Pair of answers with a preference.

    Args:
        pair: both answers.
        better: 1 or 2.
    """

    pair: Pair
    better: int

    def __post_init__(self) -> None:
        if self.better not in {1, 2}:
            raise InputError(f"better is {self.better!r}; allowed: 1 and 2; remove ties")


@dataclass(frozen=True, slots=True, eq=False)
class RewardModel:
    """Linear score of an answer's traits; a difference of scores is the log-odds of a preference.

    Args:
        weights: (traits,) weights of `TRAITS`, on standardised differences.
        scales: (traits,) divisors of the differences, > 0.
    """

    weights: Floats
    scales: Floats

    def log_odds(self, rows: Floats) -> Floats:
        """Return the log-odds that the first answer of each pair is preferred."""
        return np.asarray(rows / self.scales @ self.weights, np.float64)


@dataclass(frozen=True, slots=True)
class DistillationReport:
    """Accuracy of a reward model on held-out pairs.

    Attributes:
        model: share of pairs whose better answer the model prefers.
        length: the same for a baseline that sees only the length, and learned its sign from the
            judge.
        ahead: paired difference, model minus length.
        judge: the same share for the judge, if known; else None.
        pairs: number of held-out pairs.
    """

    model: Estimate
    length: Estimate
    ahead: Estimate
    judge: Estimate | None
    pairs: int

    def __str__(self) -> str:
        judge = "" if self.judge is None else f"; its judge {self.judge}"
        return (
            f"right on {self.model} of {self.pairs} held-out pairs, the length baseline on "
            f"{self.length}, difference {self.ahead}{judge}"
        )


def trait_differences(pairs: Sequence[Pair], embedder: Embedder | None = None) -> Floats:
    """Return the traits of each first answer minus those of the second.

    Args:
        embedder: for similarity to the question; None: that trait is 0.

    Returns:
        (pairs, traits) float64.

    >>> from steersman.providers.judges.pairwise import Pair
    >>> trait_differences([Pair("Who?", "She did it well.", "She")])[0, 0].round(3)
    np.float64(0.916)
    """
    rows = np.zeros((len(pairs), len(TRAITS)))
    for place, one in enumerate(pairs):
        rows[place] = _traits(one, one.first) - _traits(one, one.second)
    if embedder is not None and pairs:
        texts = [text for one in pairs for text in (one.question, one.first, one.second)]
        vectors = np.asarray(embedder.encode(texts), np.float64).reshape(len(pairs), 3, -1)
        rows[:, -1] = np.einsum("ns,ns->n", vectors[:, 0], vectors[:, 1] - vectors[:, 2])
    return rows


def distil(rows: Floats, better: NDArray[np.int64], *, ridge: float = 1.0) -> RewardModel:
    """Return the model with the highest penalised likelihood of the preferences.

    Args:
        rows: (n, traits) of `trait_differences`, n ≥ 2.
        better: (n,) 1 or 2.
        ridge: L2 penalty of the weights, > 0.

    Raises:
        InputError: fewer than two pairs, or the ridge is not above 0.

    Source: Bradley & Terry, Rank Analysis of Incomplete Block Designs (1952), with scores linear in
    traits. They have no intercept, so swapping two answers reverses the verdict.
    """
    if len(rows) < 2 or not ridge > 0:
        raise InputError(f"{len(rows)} pairs with ridge {ridge!r}; give two or more, and ridge > 0")
    scales = np.maximum(np.sqrt((rows**2).mean(axis=0)), 1e-9)
    signed = rows / scales * np.where(better == 1, 1.0, -1.0)[:, None]

    def loss(weights: Floats) -> tuple[float, Floats]:
        margins = signed @ weights
        value = np.logaddexp(0.0, -margins).sum() + 0.5 * ridge * float(weights @ weights)
        slope = -(signed.T @ (1.0 / (1.0 + np.exp(np.clip(margins, -500, 500)))))
        return float(value), slope + ridge * weights

    found = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B")
    return RewardModel(np.asarray(found.x, np.float64), scales)


def distilled_report(
    judged: Sequence[Preferred | None],
    human: Sequence[Preferred],
    *,
    groups: Sequence[str] | None = None,
    embedder: Embedder | None = None,
    folds: int = 5,
    seed: int = 0,
) -> DistillationReport:
    """Distil a judge and compare the model with people, by cross-validation.

    Args:
        judged: the judge's preference per pair; None if it abstained or called a tie.
        groups: groups of pairs that are held out and resampled together; None: by prompt.
        folds: 2 to the smaller of 20 and the number of groups.

    Raises:
        InputError: unequal numbers, or too few pairs or groups.
    """
    if len(judged) != len(human) or not 2 <= folds <= len(human) // 2:
        raise InputError(f"{len(judged)} judged and {len(human)} human pairs in {folds} folds; "
                         "give equally many, at least two a fold")  # fmt: skip
    rows = trait_differences([one.pair for one in human], embedder)
    right = np.array([one.better for one in human])
    taught = np.array([0 if one is None else one.better for one in judged])
    of = [one.pair.question for one in human] if groups is None else groups
    if len(of) != len(human):
        raise InputError(f"{len(of)} groups for {len(human)} pairs; give one for each")
    fold = folds_of(of, folds, seed)
    odds, by_length = np.zeros(len(human)), np.zeros(len(human))
    for own in range(folds):
        train, held = (fold != own) & (taught > 0), fold == own
        odds[held] = distil(rows[train], taught[train]).log_odds(rows[held])
        alone = distil(rows[train, :1], taught[train])
        by_length[held] = alone.log_odds(rows[held, :1])
    model, length = (_right(score, right) for score in (odds, by_length))
    judge = np.where(taught > 0, (taught == right).astype(np.float64), 0.5)
    return DistillationReport(
        model=mean_of(model, of, within=(0.0, 1.0), seed=seed),
        length=mean_of(length, of, within=(0.0, 1.0), seed=seed),
        ahead=mean_of(model - length, of, within=(-1.0, 1.0), seed=seed),
        judge=mean_of(judge, of, within=(0.0, 1.0), seed=seed),
        pairs=len(human),
    )


def _right(odds: Floats, better: NDArray[np.int64]) -> Floats:
    """Return 1 if the better answer is preferred, ½ on a tie."""
    signed = odds * np.where(better == 1, 1.0, -1.0)
    return np.where(signed > 0, 1.0, np.where(signed < 0, 0.0, 0.5))


def _traits(pair: Pair, answer: str) -> Floats:
    words, own = answer.split(), set(query_terms(answer))
    asked = set(query_terms(pair.question))
    told = {one for text in pair.contexts for one in query_terms(text)}
    small = answer.lower()
    ends = sum(answer.count(mark) for mark in ".!?")
    return np.array(
        [
            np.log1p(len(words)),
            len(own & asked) / max(len(asked), 1),
            len(own & asked) / max(len(own), 1),
            len(own & told) / max(len(own), 1),
            len({one.lower() for one in words}) / max(len(words), 1),
            np.log1p(ends),
            sum(one.isdigit() for one in answer) / max(len(answer), 1),
            float(any(one in small for one in _REFUSING)),
            np.log1p(answer.count("\n")),
            0.0,
        ]
    )
