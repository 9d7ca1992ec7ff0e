"""Pairwise judge: compares two answers in both orders, and abstains if the order decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from steersman.providers.judges.scores import Tally, Undefined
from steersman.providers.prompts import MalformedAnswer, Prompt, ask_for, shaped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.providers.judges.judge import Judge

Winner = Literal["first", "second", "tie"]

_MAX_WHY = 500
_SHOWN: Mapping[str, Winner] = {"1": "first", "2": "second", "tie": "tie"}
_SWAPPED: Mapping[Winner, Winner] = {"first": "second", "second": "first", "tie": "tie"}

COMPARE = Prompt(
    task=(
        "Decide which of two answers to a question is better. First compare them in at most three "
        "short sentences: which does what is asked, which is right, and, where contexts are given, "
        "which is borne out by them. A longer answer is not better for its length, and the order "
        "in which they stand says nothing. Then give the better one: 1, 2, or tie if neither is."
    ),
    example='{"grounds": "Answer 2 names the year; answer 1 evades.", "better": "2"}',
    version="pairwise/1",
    max_tokens=512,
)


class _Verdict(msgspec.Struct, forbid_unknown_fields=True):
    grounds: str
    better: Literal["1", "2", "tie", 1, 2]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one question.

    Attributes:
        question: question text.
        first: first answer.
        second: second answer.
        contexts: passages given for both answers; () for none.
    """

    question: str
    first: str
    second: str
    contexts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preference:
    """Verdict of a judge on a pair.

    Attributes:
        winner: better answer, or ``tie``; None: the judge abstains.
        reason: reason of the abstention: ``order`` if the two orders contradict each other, else as
            for scores (``malformed``, ``budget``, ``unavailable``, …); "" with a verdict.
        detail: explanation in words.
        shown: winner in each order; None: no readable verdict.
        rationale: reasons in each order, truncated to 500 characters.
        calls: number of requests, retries included.
        cached: number of answers found in the cache.
    """

    winner: Winner | None
    reason: str = ""
    detail: str = ""
    shown: tuple[Winner | None, Winner | None] = (None, None)
    rationale: tuple[str, str] = field(default=("", ""), repr=False)
    calls: int = 0
    cached: int = 0


class PairwiseJudge:
    """Compares two answers in both orders; it abstains unless both verdicts agree.

    Consistency in both orders is necessary but does not make a verdict right: length or style may
    still decide it. Report `Agreement` with human verdicts next to the results.

    Args:
        judge: judge with cache and budget.

    Source: Zheng et al., Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena (2023), section 3.4
    (swapping positions; reasons first). Departure: if the orders contradict each other, the judge
    abstains; the paper counts a tie.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    @property
    def name(self) -> str:
        """Name of the judge, to report with every verdict."""
        return self._judge.name

    def __call__(self, pair: Pair) -> Preference:
        """Return which answer is better.

        Raises:
            DataError: the judge cache is damaged.
        """
        if pair.first == pair.second:
            return Preference("tie", detail="both answers are the same", shown=("tie", "tie"))
        tally = Tally()
        verdicts: list[_Verdict] = []
        failed: Undefined | None = None
        try:
            verdicts.append(
                self._asked(pair.question, pair.first, pair.second, pair.contexts, tally)
            )
            verdicts.append(
                self._asked(pair.question, pair.second, pair.first, pair.contexts, tally)
            )
        except Undefined as why:
            failed = why
        return _preference(verdicts, failed, tally)

    def _asked(
        self, question: str, one: str, other: str, contexts: tuple[str, ...], tally: Tally
    ) -> _Verdict:
        data: dict[str, Any] = {"question": question, "answers": {"1": one, "2": other}}
        if contexts:
            data["contexts"] = contexts
        return ask_for(self._judge, COMPARE, data, _read, tally)


def abstentions(preferences: Sequence[Preference]) -> dict[str, int]:
    """Return the number of abstentions by reason.

    >>> abstentions([Preference("tie"), Preference(None, "order"), Preference(None, "order")])
    {'order': 2}
    """
    return dict(Counter(one.reason for one in preferences if one.winner is None))


def _read(answer: str) -> _Verdict:
    found = shaped(answer, _Verdict)
    if not found.grounds.strip():
        raise MalformedAnswer("the grounds are empty")
    return found


def _preference(verdicts: Sequence[_Verdict], failed: Undefined | None, tally: Tally) -> Preference:
    won: list[Winner | None] = [_SHOWN[str(one.better)] for one in verdicts]
    if len(won) == 2 and won[1] is not None:
        won[1] = _SWAPPED[won[1]]
    reasons = [one.grounds[:_MAX_WHY] for one in verdicts]
    shown = (won[0] if won else None, won[1] if len(won) == 2 else None)
    counts = {"calls": tally.calls, "cached": tally.cached}
    rationale = (reasons[0] if reasons else "", reasons[1] if len(reasons) == 2 else "")
    if failed is not None:
        return Preference(None, failed.reason, failed.detail, shown, rationale, **counts)
    if shown[0] != shown[1]:
        detail = f"{shown[0]} in one order, {shown[1]} in the other"
        return Preference(None, "order", detail, shown, rationale, **counts)
    return Preference(shown[0], "", "", shown, rationale, **counts)
