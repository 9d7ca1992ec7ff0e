"""Question set for the demo: requests that need two or more tools of one catalogue.

The requests are parallel_multiple and live_parallel_multiple of the Berkeley Function-Calling
Leaderboard. There, each request lists its tools and one or two others. Here, all requests search
all tools of these parts and of the assistant's catalogue, about 1,200.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError
from steersman_systems.assistant.requests import WHEEL, load_catalogue, tool_of
from steersman_systems.evidence_selection.question import Question
from steersman_systems.evidence_selection.sets.set_builder import SetBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet

_PARTS = ("parallel_multiple", "live_parallel_multiple")
_MEMBER_CAP = 8_000_000
_MOST_TOOLS = 5


def load_two_tools(home: Path | None = None) -> EvidenceSet:
    """Return the set; the wheel is fetched once.

    Raises:
        DataError: the wheel cannot be fetched or read.
    """
    catalogue = load_catalogue(home)
    members = [name for part in _PARTS for name in (_asked(part), _answers(part))]
    content = WHEEL.read(dict.fromkeys(members, _MEMBER_CAP), home)
    try:
        rows = {name: [json.loads(line) for line in raw.decode().splitlines() if line.strip()]
                for name, raw in content.items()}  # fmt: skip
        return _gathered({one.name: one.text for one in catalogue.tools}, rows)
    except (KeyError, IndexError, TypeError, ValueError) as wrong:
        message = f"{WHEEL.filename} is not in the expected format: {wrong!r}"
        raise DataError(message) from wrong


def _asked(part: str) -> str:
    return f"bfcl_eval/data/BFCL_v4_{part}.json"


def _answers(part: str) -> str:
    return f"bfcl_eval/data/possible_answer/BFCL_v4_{part}.json"


def _gathered(tools: dict[str, str], rows: dict[str, list[dict[str, Any]]]) -> EvidenceSet:
    for part in _PARTS:
        for row in rows[_asked(part)]:
            for definition in row["function"]:
                tools.setdefault(definition["name"], tool_of(definition).text)
    found = SetBuilder("tools", at_most=len(tools))
    for name, text in tools.items():
        found.passage(WHEEL.filename, name, text)
    for part in _PARTS:
        right = {row["id"]: row["ground_truth"] for row in rows[_answers(part)]}
        for row in rows[_asked(part)]:
            needed = tuple(dict.fromkeys(name for call in right[row["id"]] for name in call))
            if 2 <= len(needed) <= _MOST_TOOLS:
                said = [one["content"] for one in row["question"][0] if one["role"] == "user"]
                question = Question(row["id"], "\n".join(said), gold=needed, category=part)
                found.ask(row["id"], question)
    return found.done(WHEEL.filename)
