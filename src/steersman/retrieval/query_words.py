"""Tokenizer of corpora and queries: names whole and in parts, in every script.

Recordings and published figures use `steersman.retrieval.bm25.words`, which must not change.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from operator import add

from steersman.features import combining_marks, without_invisible

_WORD = re.compile(r"[^\W_]+")
# As for `words`, but a lower-case s after capitals is a plural: APIs is not "AP Is".
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?![A-Z]s(?![a-z]))")
_PLURAL = re.compile(r"[A-Z]{2,}s")
_ZERO_WIDTH = "\u200b"  # it separates some words and is inside others; ignored here
# Chinese and Japanese: no spaces between words, many words of one character.
_HAN = "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
# Thai, Lao, Myanmar and Khmer: no spaces either, words of several letters with marks.
_SYLLABLES = "\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff"
_RUN = re.compile(f"[{_HAN}]+|[{_SYLLABLES}]+|[^{_HAN}{_SYLLABLES}]+")
_IS_HAN = re.compile(f"[{_HAN}]")
_IS_SYLLABLES = re.compile(f"[{_SYLLABLES}]")


def searched_words(text: str) -> list[str]:
    """Return the search terms of a text, in lower case.

    A name with inner capitals gives its parts and the whole name, so a lower-case query finds it.
    Texts are normalised (NFKC), invisible characters are removed, and combining marks stay with
    their word.

    Scripts without spaces are split into bigrams. Chinese and Japanese also give single characters,
    because many words have one character. Thai, Lao, Khmer and Myanmar give bigrams of letters with
    their marks; a single letter is rarely a word, so it counts only when it stands alone.

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
    """Return the parts of a name, then the whole name."""
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
    """Return the terms of a token in one kind of script."""
    if _IS_HAN.match(token):
        return [*token, *map(add, token, token[1:])]
    if _IS_SYLLABLES.match(token):
        letters = _marked_letter().findall(token)
        return list(map(add, letters, letters[1:])) or letters
    return _of(token)


@cache
def _marked_word() -> re.Pattern[str]:
    """Return the pattern of a word with its combining marks; compiled on first use."""
    return re.compile(rf"[^\W_](?:[^\W_]|[{combining_marks()}])*")


@cache
def _marked_letter() -> re.Pattern[str]:
    """Return the pattern of a letter with its combining marks."""
    return re.compile(f".[{combining_marks()}]*")
