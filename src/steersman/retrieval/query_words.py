"""Words as people look for them in corpora: names whole and in parts, in every script.

Recordings and published figures were made with `steersman.retrieval.bm25.words`, which stays as it
was.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from operator import add

from steersman.features import combining_marks, without_invisible

_WORD = re.compile(r"[^\W_]+")
# As for `words`, but a small s behind capitals is their plural: APIs is not "AP Is".
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?![A-Z]s(?![a-z]))")
_PLURAL = re.compile(r"[A-Z]{2,}s")
_ZERO_WIDTH = "\u200b"  # parts some words and is in the middle of others: of none here
# Chinese and Japanese put no space between words, many of which are one character.
_HAN = "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
# Nor do Thai and Lao, Myanmar, and Khmer, whose words are several letters with their marks.
_SYLLABLES = "\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff"
_RUN = re.compile(f"[{_HAN}]+|[{_SYLLABLES}]+|[^{_HAN}{_SYLLABLES}]+")
_IS_HAN = re.compile(f"[{_HAN}]")
_IS_SYLLABLES = re.compile(f"[{_SYLLABLES}]")


def searched_words(text: str) -> list[str]:
    """Return what a text is found by: its words in small letters.

    A name with inner capitals is kept in its parts and as a whole, so a query in small letters
    finds it. What looks the same is the same (NFKC), and what cannot be seen is
    nothing. Marks of vowels belong to their word.

    Scripts without spaces are taken apart in twos. Of Chinese and Japanese each character is there
    as well: many words are one character, a query of one would find it in no sentence otherwise,
    and it is the pairs that take the memory (see `opening`, which reckons with them). Of Thai, Lao,
    Khmer and Myanmar two letters beside each other are there, each with its marks; a letter alone
    is hardly ever a word, and is there where it stands alone.

    >>> searched_words("JavaScript reads PDFs")
    ['java', 'script', 'javascript', 'reads', 'pdf', 'pdfs']
    >>> searched_words("水泵响"), searched_words("Pum\u00adpe हिन्दी")
    (['水', '泵', '响', '水泵', '泵响'], ['pumpe', 'हिन्दी'])
    >>> searched_words("เสียงดัง")
    ['เสี', 'สีย', 'ยง', 'งดั', 'ดัง']
    """
    if text.isascii():
        return [word for token in _WORD.findall(text) for word in _of(token)]
    plain = without_invisible(unicodedata.normalize("NFKC", text)).replace(_ZERO_WIDTH, "")
    tokens = (run for token in _marked_word().findall(plain) for run in _RUN.findall(token))
    return [word for token in tokens for word in _in_script(token)]


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


def _in_script(token: str) -> list[str]:
    """Return the words of a token that is of one kind of script."""
    if _IS_HAN.match(token):
        return [*token, *map(add, token, token[1:])]
    if _IS_SYLLABLES.match(token):
        letters = _marked_letter().findall(token)
        return list(map(add, letters, letters[1:])) or letters
    return _of(token)


@cache
def _marked_word() -> re.Pattern[str]:
    """Words whose combining marks belong to them; looked up once, when a text asks for it."""
    return re.compile(rf"[^\W_](?:[^\W_]|[{combining_marks()}])*")


@cache
def _marked_letter() -> re.Pattern[str]:
    """A letter with its combining marks."""
    return re.compile(f".[{combining_marks()}]*")
