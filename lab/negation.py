"""Negation of English statements, for models that detect contradictions."""

from __future__ import annotations

import re

_NOT = re.compile(
    r"\b(is|are|was|were|can|could|may|does|do|did|has|have|had|will|should|would) not\b"
)
_CANNOT = re.compile(r"\b(?:cannot|can['’]t)\b")
_CONTRACTED = re.compile(
    r"\b(is|are|was|were|could|does|do|did|has|have|had|should|would|must|need)n['’]t\b"
)
_WONT = re.compile(r"\bwon['’]t\b")
_AUXILIARY = re.compile(r"\b(is|are|was|were|can|could|may|will|should|would|has|have)\b")
_WORDS = re.compile(r"(\W+)")
_PAIRS = """
increase decrease, increases decreases, increased decreased, increasing decreasing,
higher lower, high low, more less, greater smaller, longer shorter, better worse, stronger weaker,
strong weak, promotes prevents, promote prevent, causes prevents, cause prevent,
activates inhibits, activate inhibit, activation inhibition, induces suppresses, induce suppress,
enhances reduces, enhance reduce, enhanced reduced, improves worsens, improve worsen,
raises lowers, protects harms, positive negative, positively negatively,
upregulates downregulates, upregulated downregulated, up-regulated down-regulated,
effective ineffective, beneficial harmful, present absent, presence absence
"""
_ONE_WAY = {"without": "with", "no": "all"}
"""Words whose opposites usually mean something else."""


def _opposites() -> dict[str, str]:
    found = dict(_ONE_WAY)
    for pair in _PAIRS.split(","):
        one, other = pair.split()
        found.setdefault(one, other)
        found.setdefault(other, one)
    return found


_OPPOSITES = _opposites()


def denial_of(statement: str) -> str:
    """Return the negation of one English sentence; it may be slightly ungrammatical.

    The first applicable rule: drop a negation; replace the first word of direction (*increases*) by
    its opposite; negate the first auxiliary verb; put *it is not true that* before the sentence.

    >>> denial_of("Aspirin lowers the risk.")
    'Aspirin raises the risk.'
    >>> denial_of("Valves are not stuck.")
    'Valves are stuck.'
    >>> denial_of("The museum opens at nine.")
    'It is not true that the museum opens at nine.'
    """
    for pattern, instead in (
        *((_NOT, r"\1"), (_CANNOT, "can")),
        *((_CONTRACTED, r"\1"), (_WONT, "will")),
    ):
        if pattern.search(statement):
            return pattern.sub(instead, statement, count=1)
    words = _WORDS.split(statement)
    for place, word in enumerate(words):
        opposite = _OPPOSITES.get(word.lower())
        if opposite is not None:
            words[place] = opposite.capitalize() if word[0].isupper() else opposite
            return "".join(words)
    if _AUXILIARY.search(statement):
        return _AUXILIARY.sub(r"\1 not", statement, count=1)
    return f"It is not true that {statement[0].lower()}{statement[1:]}"
