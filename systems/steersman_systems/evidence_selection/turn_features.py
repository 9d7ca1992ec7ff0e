"""Context of the decision point for query forms, from a turn before the search."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from steersman.retrieval.bm25 import query_terms, stem, words
from steersman_systems.evidence_selection.query_forms import said_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman_systems.evidence_selection.pool import Pool
    from steersman_systems.evidence_selection.question import Question

_LOOKED_AT = 5
_POINTING_WORDS = """
it its they them their theirs this that these those he she his her him there one ones such same
other others else more
"""
_POINTING = frozenset(_POINTING_WORDS.split())
_OPENING = ("and", "but", "or", "so", "also", "what about", "how about", "then", "ok", "yes", "no")


def turn_features(question: Question, first: Pool | None = None) -> Mapping[str, float | str]:
    """Return the context of a turn for the decision point.

    Args:
        first: search results of the last turn alone; their confidence is the strongest predictor of
            whether another form is needed. None: these fields are missing.

    >>> from steersman_systems.evidence_selection.question import Question, Turn
    >>> told = turn_features(Question("q", "And where was she born?", (Turn("user", "Who?"),)))
    >>> told["turns"], told["pointing"], told["opening"]
    (1, 0.2, 'and')
    """
    found = words(question.text)
    users = said_by(question, "user")
    before = {stem(word) for text in users for word in words(text)}
    telling = query_terms(question.text)
    small = question.text.lower().strip()
    names = [part for part in question.text.split()[1:] if part[:1].isupper()]
    return _searched(first) | {
        "turns": len(users),
        "question_words": len(found),
        "pointing": sum(word in _POINTING for word in found) / max(len(found), 1),
        "told_before": sum(one in before for one in telling) / max(len(telling), 1),
        "names": len(names),
        "history_words": sum(len(turn.text.split()) for turn in question.history),
        "opening": next((one for one in _OPENING if re.match(rf"{one}\b", small)), "other"),
    }


def _searched(first: Pool | None) -> dict[str, float | str]:
    if first is None or len(first) < _LOOKED_AT:
        return {}
    near = np.sort(first.dense)[::-1][:_LOOKED_AT]
    words_score = np.sort(first.lexical)[::-1][:_LOOKED_AT] * first.query.lexical.highest
    return {
        "nearest": float(near[0]),
        "near": float(near.mean()),
        "near_lead": float(near[0] - near[-1]),
        "words_score": float(np.log1p(words_score[0])),
        "words_lead": float(words_score[0] - words_score[-1]),
        "known_terms": len(first.query.terms),
    }
