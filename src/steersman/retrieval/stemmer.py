"""English words without their endings, so that ``connected`` finds ``connections``."""

from __future__ import annotations

import re
from functools import lru_cache

_VOWELS = "aeiouy"
_REGION = re.compile(f"[{_VOWELS}][^{_VOWELS}]")
_SPECIAL_REGION = re.compile("arsen|commun|emerg|gener|inter|later|organ|past|univers")
_VOWEL = re.compile(f"[{_VOWELS}]")
# Not as in add, egg and odd.
_DOUBLE = re.compile(r"(?<!^[aeo])(bb|dd|ff|gg|mm|nn|pp|rr|tt)$")
# A vowel between consonants, the last not w, x or a consonant y; or a vowel that begins the word.
_SHORT_END = re.compile(f"([^{_VOWELS}][{_VOWELS}][^{_VOWELS}wxY]|^[{_VOWELS}][^{_VOWELS}])$")
_CONSONANT_Y = re.compile(f"(?<=[{_VOWELS}])y|^y")
_ENGLISH = re.compile(r"[a-z]{3,40}")

_WHOLE = {
    "skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "idly": "idl",
    "gently": "gentl", "ugly": "ugli", "early": "earli", "only": "onli", "singly": "singl",
    "sky": "sky", "news": "news", "howe": "howe", "atlas": "atlas", "cosmos": "cosmos",
    "bias": "bias", "andes": "andes",
}  # fmt: skip
_AFTER_PLURAL = frozenset(
    ["inning", "outing", "canning", "herring", "earring", "evening", "proceed", "exceed", "succeed"]
)
_STEP_2 = {
    "ational": "ate", "fulness": "ful", "iveness": "ive", "ization": "ize", "ousness": "ous",
    "biliti": "ble", "lessli": "less", "tional": "tion", "alism": "al", "aliti": "al",
    "ation": "ate", "entli": "ent", "fulli": "ful", "iviti": "ive", "ousli": "ous", "abli": "able",
    "alli": "al", "anci": "ance", "ator": "ate", "enci": "ence", "izer": "ize", "bli": "ble",
    "ogist": "og", "ogi": "og", "li": "",
}  # fmt: skip
_STEP_3 = {
    "ational": "ate", "tional": "tion", "alize": "al", "ative": "", "icate": "ic", "iciti": "ic",
    "ical": "ic", "ness": "", "ful": "",
}  # fmt: skip
_STEP_4 = (
    "ement", "able", "ance", "ence", "ible", "ment", "ant", "ate", "ent", "ion", "ism", "iti",
    "ive", "ize", "ous", "al", "er", "ic",
)  # fmt: skip


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """Return a word without its ending.

    Args:
        word: in lower case; what is not of 3 to 40 letters a to z is given back as it is.

    >>> [stem(word) for word in ("connections", "connected", "flies", "wing", "v2")]
    ['connect', 'connect', 'fli', 'wing', 'v2']

    Source: Porter, the English (Porter2) stemmer, snowballstem.org, without its step for
    apostrophes, which no word has here; ``tests/retrieval/test_stemming.py`` holds its examples.
    """
    if not _ENGLISH.fullmatch(word):
        return word
    if word in _WHOLE:
        return _WHOLE[word]
    # A y that is a consonant is written as a capital, as in the source.
    marked = _CONSONANT_Y.sub("Y", word)
    first, second = _regions(word)
    marked = _plural(marked)
    if marked in _AFTER_PLURAL:
        return marked
    marked = _final_y(_past(marked, first))
    marked = _derived(marked, first, second)
    return _last(marked, first, second).lower()


def _regions(word: str) -> tuple[int, int]:
    """Return where an ending must begin at the earliest, for most and for some endings."""
    special = _SPECIAL_REGION.match(word)
    marked = _CONSONANT_Y.sub("Y", word)
    first = special.end() if special else _behind(marked, 0)
    return first, _behind(marked, first)


def _behind(word: str, start: int) -> int:
    found = _REGION.search(word, start)
    return found.end() if found else len(word)


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _VOWEL.search(word[:-2]):
        return word[:-1]
    return word


def _past(word: str, first: int) -> str:
    for ending in ("eedly", "eed"):
        if word.endswith(ending):
            return word[: -len(ending)] + "ee" if len(word) - len(ending) >= first else word
    ending = next((one for one in ("ingly", "edly", "ing", "ed") if word.endswith(one)), "")
    base = word[: len(word) - len(ending)]
    if not ending or not _VOWEL.search(base):
        return word
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if _DOUBLE.search(base):
        return base[:-1]
    short = len(base) <= first and _SHORT_END.search(base)
    return base + "e" if short else base


def _final_y(word: str) -> str:
    ends = word.endswith(("y", "Y")) and len(word) > 2 and word[-2] not in _VOWELS
    return word[:-1] + "i" if ends else word


def _derived(word: str, first: int, second: int) -> str:
    ending = next((one for one in _STEP_2 if word.endswith(one)), "")
    base = word[: len(word) - len(ending)]
    fits = {"ogi": base.endswith("l"), "li": base.endswith(tuple("cdeghkmnrt"))}
    if ending and len(base) >= first and fits.get(ending, True):
        word = base + _STEP_2[ending]
    ending = next((one for one in _STEP_3 if word.endswith(one)), "")
    base = word[: len(word) - len(ending)]
    if ending and len(base) >= (second if ending == "ative" else first):
        word = base + _STEP_3[ending]
    return word


def _last(word: str, first: int, second: int) -> str:
    ending = next((one for one in _STEP_4 if word.endswith(one)), "")
    base = word[: len(word) - len(ending)]
    if ending and len(base) >= second and (ending != "ion" or base.endswith(("s", "t"))):
        word = base
    if word.endswith("e"):
        base = word[:-1]
        if len(base) >= second or (len(base) >= first and not _SHORT_END.search(base)):
            return base
    elif word.endswith("ll") and len(word) - 1 >= second:
        return word[:-1]
    return word
