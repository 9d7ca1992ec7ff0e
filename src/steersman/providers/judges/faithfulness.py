"""Faithfulness: share of an answer's statements that its contexts support."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from steersman.providers.judges.scores import Score, Statement, Tally, Undefined
from steersman.providers.prompts import MalformedAnswer, Prompt, ask_for, shaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.providers.judges.judge import Judge
    from steersman.providers.judges.scores import Case

MAX_STATEMENTS = 100
AT_ONCE = 10
_MAX_WHY = 500

EXTRACT = Prompt(
    task=(
        "Take the answer to a question apart into statements. Write every claim that the answer "
        "makes as one short sentence that can be understood without the others and without the "
        "question: put names in the place of pronouns. Add nothing that the answer does not "
        "claim, leave no claim out, and judge none of them. If the answer claims nothing, as when "
        "it only says that it does not know, the list is empty."
    ),
    example='{"statements": ["Marie Curie was born in Warsaw.", "Marie Curie was a chemist."]}',
    version="statements/1",
    max_tokens=4096,
)
VERIFY = Prompt(
    task=(
        "Decide for every statement whether it can be inferred from the contexts. Give first the "
        "grounds in one short sentence, then true if the contexts say so or it follows from what "
        "they say, else false: also where it is true but the contexts do not say so. Use no other "
        "knowledge. Give one verdict for every statement, by its number."
    ),
    example=(
        '{"verdicts": [{"number": 1, "grounds": "The first context names Warsaw.", "supported": '
        'true}, {"number": 2, "grounds": "No context names a profession.", "supported": false}]}'
    ),
    version="verdicts/1",
    max_tokens=2048,
)


class _Statements(msgspec.Struct, forbid_unknown_fields=True):
    statements: list[str]


class _Verdict(msgspec.Struct, forbid_unknown_fields=True):
    number: int
    grounds: str
    supported: bool


class _Verdicts(msgspec.Struct, forbid_unknown_fields=True):
    verdicts: list[_Verdict]


class Faithfulness:
    """Faithfulness of an answer: |supported statements| / |statements|.

    The score is undefined (never 0) if the answer makes no statements or judging failed. Without
    contexts, an answer with statements scores 0. Maximum 100 statements; more are malformed.

    Args:
        judge: judge that extracts the statements and decides on each.

    Source: Es, James, Espinosa-Anke & Schockaert, RAGAS: Automated Evaluation of Retrieval
    Augmented Generation (2023), section 3, "Faithfulness". Departures: the prompts are ours;
    answers are JSON; statements are judged ten at a time, so that the verdicts of a long answer fit
    too; numbers assign verdicts to statements.
    """

    name = "faithfulness"
    version = f"{EXTRACT.version} {VERIFY.version}"
    """Prompt versions that the scores depend on."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def __call__(self, case: Case) -> Score:
        """Return the score of an answer.

        Args:
            case: answer to score; an empty one is undefined, without a request.

        Raises:
            DataError: the judge cache is damaged.
        """
        tally = Tally()
        try:
            statements = self._judged(case, self._extracted(case, tally), tally)
        except Undefined as why:
            return Score.undefined(why, tally)
        share = sum(one.supported for one in statements) / len(statements)
        return Score(share, statements=statements, calls=tally.calls, cached=tally.cached)

    def _extracted(self, case: Case, tally: Tally) -> list[str]:
        if not case.answer.strip():
            raise Undefined("no_statements", "the answer is empty")
        data = {"question": case.question, "answer": case.answer}
        found = ask_for(self._judge, EXTRACT, data, _read_statements, tally)
        if not found:
            raise Undefined("no_statements", "the judge found no statement in the answer")
        return found

    def _judged(self, case: Case, texts: Sequence[str], tally: Tally) -> tuple[Statement, ...]:
        if not any(context.strip() for context in case.contexts):
            return tuple(Statement(text, supported=False, why="no contexts") for text in texts)
        found: list[Statement] = []
        for begin in range(0, len(texts), AT_ONCE):
            some = texts[begin : begin + AT_ONCE]
            numbered = [{"number": n, "statement": text} for n, text in enumerate(some, 1)]
            data = {"contexts": case.contexts, "statements": numbered}
            reading = partial(_read_verdicts, count=len(some))
            verdicts = ask_for(self._judge, VERIFY, data, reading, tally)
            pairs = zip(some, verdicts, strict=True)
            found += [Statement(text, v.supported, v.grounds[:_MAX_WHY]) for text, v in pairs]
        return tuple(found)


def _read_statements(answer: str) -> list[str]:
    found = [text.strip() for text in shaped(answer, _Statements).statements]
    if not all(found):
        raise MalformedAnswer("a statement is empty")
    if len(found) > MAX_STATEMENTS:
        raise MalformedAnswer(f"{len(found)} statements, the maximum is {MAX_STATEMENTS}")
    return found


def _read_verdicts(answer: str, count: int) -> list[_Verdict]:
    found = sorted(shaped(answer, _Verdicts).verdicts, key=lambda verdict: verdict.number)
    numbers = [verdict.number for verdict in found]
    if numbers != list(range(1, count + 1)):
        raise MalformedAnswer(f"verdicts for {numbers[:20]}, expected 1 to {count}")
    return found
