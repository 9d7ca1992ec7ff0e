"""Case and compatibility forms of letters evened out, in time that grows with the text alone."""

from __future__ import annotations

import re
from unicodedata import category, normalize

_JOINER = "\u034f"  # COMBINING GRAPHEME JOINER: seen nowhere, and nothing is sorted past it
_MOST_MARKS = 30
_VOICING = "\uff9e\uff9f"  # the only letters that NFKC makes marks of
_MANY_MARKS = re.compile(rf"(?:[^\w\s]|[{_VOICING}]){{{_MOST_MARKS + 1},}}")


def fold_text(text: str) -> str:
    """Return a text in NFKC and case folded.

    NFKC sorts the marks that follow one letter, in time that grows with the square of their number;
    twenty thousand on one letter would take half a second. After thirty in a row, more than any
    language writes, an invisible joiner begins a new row, as the source has it.

    Args:
        text: any text.

    Returns:
        The folded text; other texts may have it too, such as those that differ in case.

    >>> fold_text("Ｗhat's the ﬁrst PLAN?")
    "what's the first plan?"

    Source:
        Unicode Standard Annex 15, "Unicode normalization forms", section 13 (stream-safe text).
    """
    return normalize("NFKC", _MANY_MARKS.sub(_with_joiners, text)).casefold()


def _with_joiners(found: re.Match[str]) -> str:
    parts: list[str] = []
    marks = 0
    for sign in found[0]:
        marks = marks + 1 if sign in _VOICING or category(sign).startswith("M") else 0
        if marks > _MOST_MARKS:
            parts.append(_JOINER)
            marks = 1
        parts.append(sign)
    return "".join(parts)
