"""What is looked up for a query among passages: the stems of those words that tell something.

The assistant's tools are found by whole words (`words`), as was recorded; passages by stems. This
was chosen on the training questions of scifact and hotpotqa: nDCG@10 of BM25 is .671 and .763 with
words, .670 and .766 without function words, .686 and .768 without plural endings as well, and .697
and .780 with stems and function words left out of queries alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.retrieval.bm25 import words
from steersman.retrieval.stemmer import stem

if TYPE_CHECKING:
    from collections.abc import Callable

_SPOKEN = """
a about after all also an and any are as at be been before between but by can could did do does
during for from had has have he her his how i if in into is it its may might more most no not
of on only or other our over she should so some such than that the their then there these they
this to under was we were what when where which who whom whose why will with would you your
"""
_FUNCTION_WORDS = frozenset(_SPOKEN.split())


def query_terms(text: str, split: Callable[[str], list[str]] = words) -> list[str]:
    """Return what is looked up for a query: its stems without words that hold sentences together.

    These are common in questions and tell nothing of what is asked. A query of nothing else keeps
    them, so that "To be or not to be" can be found.

    >>> query_terms("What lifts the wings?"), query_terms("Who?")
    (['lift', 'wing'], ['who'])
    """
    found = split(text)
    telling = [word for word in found if word not in _FUNCTION_WORDS]
    return [stem(word) for word in telling or found]
