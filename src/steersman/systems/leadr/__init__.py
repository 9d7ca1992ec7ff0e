"""Evidence selection (system 001, LEADR): selects passages for a question, one by one.

A question has a pool of candidates. A selector picks from it until it stops, and may expand it with
passages linked from the picked ones. See README.md in this folder.
"""

from __future__ import annotations

from steersman.systems.leadr.collection import Collection
from steersman.systems.leadr.environment import (
    Environment,
    Limits,
    Selection,
    Selector,
    State,
)
from steersman.systems.leadr.pool import Candidate, Pool
from steersman.systems.leadr.question import Question, Turn

__all__ = [
    "Candidate",
    "Collection",
    "Environment",
    "Limits",
    "Pool",
    "Question",
    "Selection",
    "Selector",
    "State",
    "Turn",
]
