"""Words as people look for them in corpora: names whole and in parts, in every script.

Recordings and published figures were made with `steersman.retrieval.words`, which stays as it was.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import pairwise

_WORD = re.compile(r"[^\W_]+")
# As for `words`, but a small s behind capitals is their plural: APIs are no "AP Is".
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?![A-Z]s(?![a-z]))")
_PLURAL = re.compile(r"[A-Z]{2,}s")
# Soft hyphens, joiners, marks of direction: in a text to shape it, and never typed.
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0001\U000e0020-\U000e007f]"
)
# Chinese and Japanese, which put no space between words.
_UNSPACED = "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_RUN = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_LAST_SCRIPT = 0x1F000
"""No script has combining marks behind it, but for selectors of variants, which shape."""


def searched_words(text: str) -> list[str]:
    """Return what a text is found by: its words in small letters.

    A name with inner capitals is there in its parts and as a whole, so that whoever types it in
    small letters finds it. What looks the same is the same (NFKC), and what cannot be seen is
    nothing. Marks of vowels belong to their word. Of Chinese and Japanese each character is there
    and each two beside each other.

    Args:
        text: any text; a passage or a query.

    Returns:
        Words in their order, repeats kept.

    >>> searched_words("JavaScript reads PDFs")
    ['java', 'script', 'javascript', 'reads', 'pdf', 'pdfs']
    >>> searched_words("水泵响"), searched_words("Pum\u00adpe हिन्दी")
    (['水', '泵', '响', '水泵', '泵响'], ['pumpe', 'हिन्दी'])
    """
    if text.isascii():
        return [word for token in _WORD.findall(text) for word in _of(token)]
    plain = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    tokens = (run for token in _marked_word().findall(plain) for run in _RUN.findall(token))
    return [
        word
        for token in tokens
        for word in (_characters(token) if _IS_UNSPACED.match(token) else _of(token))
    ]


def _of(token: str) -> list[str]:
    """Return a word's parts, and behind them the whole of it."""
    lower = token.lower()
    if token[1:] == lower[1:]:
        return [lower]
    found = []
    for part in _HUMP.split(token):
        if _PLURAL.fullmatch(part):
            found.append(part[:-1].lower())
        found.append(part.lower())
    return found if found[-1] == lower else [*found, lower]


def _characters(run: str) -> list[str]:
    return [*run, *(one + other for one, other in pairwise(run))]


@cache
def _marked_word() -> re.Pattern[str]:
    """Words whose combining marks belong to them; looked up once, when a text asks for it."""
    marks = "".join(
        character
        for character in map(chr, range(0x300, _LAST_SCRIPT))
        if unicodedata.category(character) in {"Mn", "Mc"}
    )
    return re.compile(rf"[^\W_](?:[^\W_]|[{marks}])*")
