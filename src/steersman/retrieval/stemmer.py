"""English words without their endings, so that ``connected`` finds ``connections``."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

from steersman.platform.extras import extra

_ENGLISH = re.compile(r"[a-z]{3,40}")


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """Return a word without its ending, by Snowball's English stemmer (Porter2).

    Args:
        word: in lower case; anything but 3 to 40 letters a to z is returned unchanged.

    Raises:
        DataError: the extra ``rag`` is not installed.

    >>> [stem(word) for word in ("connections", "connected", "flies", "wing", "v2")]
    ['connect', 'connect', 'fli', 'wing', 'v2']
    """
    if not _ENGLISH.fullmatch(word):
        return word
    stemmed: str = _english().stemWord(word)
    return stemmed


@cache
def _english() -> Any:
    stemmer = extra("Stemmer", "rag").Stemmer("english")
    stemmer.maxCacheSize = 0  # `stem` has a cache, which is faster
    return stemmer
