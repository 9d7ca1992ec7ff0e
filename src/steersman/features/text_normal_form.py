"""Text normalization (NFKC, case folding, invisible characters) and word splitting."""

from __future__ import annotations

import re
from functools import cache
from unicodedata import category, normalize

_JOINER = "\u034f"  # COMBINING GRAPHEME JOINER: seen nowhere, and nothing is sorted past it
_MOST_MARKS = 30
_VOICING = "\uff9e\uff9f"  # the only letters that NFKC makes marks of
_MANY_MARKS = re.compile(rf"(?:[^\w\s]|[{_VOICING}]){{{_MOST_MARKS + 1},}}")
# Soft hyphens, joiners, fillers, marks of direction, variants: they shape a text and are not typed.
# Not the zero width space: Khmer, Thai and others part words by it.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0001\U000e0020-\U000e007f\U000e0100-\U000e01ef]"
)
_ASCII_WORD = re.compile(r"\w+", re.ASCII)
_LAST_SCRIPT = 0x1F000
"""No script has combining marks behind it, but for selectors of variants, which are invisible."""


def fold_text(text: str) -> str:
    """Return a text in NFKC, case folded, without invisible characters.

    NFKC sorts combining marks in quadratic time: 20,000 marks on one letter would take half a
    second. After 30 marks, an invisible joiner starts a new group (stream-safe text).

    Args:
        text: any text.

    Returns:
        The folded text.

    >>> fold_text("Ｗhat's the ﬁrst PL­AN?")
    "what's the first plan?"

    Source:
        The Unicode Standard, section 3.13 (NFKC_Casefold, but for the zero width space, which parts
        words and stays); Annex 15, "Unicode normalization forms", section 13 (stream-safe text).
    """
    if text.isascii():
        return text.lower()
    plain = _MANY_MARKS.sub(_with_joiners, without_invisible(text))
    # Case folding takes some letters apart into a letter and marks, which NFKC joins again.
    return normalize("NFKC", normalize("NFKC", plain).casefold())


def folded_words(text: str) -> list[str]:
    """Return the words of a text after `fold_text`: runs of letters, digits and ``_``.

    Combining marks belong to the letter before them, for example vowels in Hindi, Tamil or Thai.

    Args:
        text: any text.

    Returns:
        Words in order, with repeats.

    >>> folded_words("Der Weg, der WEG"), folded_words("की और का")
    (['der', 'weg', 'der', 'weg'], ['की', 'और', 'का'])
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _marked_word().findall(fold_text(text))


def without_invisible(text: str) -> str:
    """Return a text without invisible formatting characters, such as soft hyphens.

    Args:
        text: any text.

    Returns:
        The text without them. Ideographic variants and tag-based flags lose their distinction.

    >>> without_invisible("co­op"), without_invisible("m⁠n")
    ('coop', 'mn')

    Source:
        The Unicode Standard, section 5.21 (characters ignored for display).
    """
    return _INVISIBLE.sub("", text)


@cache
def combining_marks() -> str:
    """Return all combining marks, computed on first use."""
    signs = map(chr, range(0x300, _LAST_SCRIPT))
    return "".join(sign for sign in signs if category(sign) in {"Mn", "Mc"})


@cache
def _marked_word() -> re.Pattern[str]:
    return re.compile(rf"\w[\w{combining_marks()}]*")


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
