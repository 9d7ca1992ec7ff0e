"""Requests of the assistant: 1,311 real requests with their right tools.

They are the parts live_simple and live_multiple of the Berkeley Function-Calling Leaderboard: real
requests of users, each with the call that answers it. There, every request has a short list of
tools (four on average). Here, all requests use **one catalogue**: every tool of these two parts
and, as distractors, of live_irrelevance, 729 in all. A repeated name keeps its first definition.

Source: Patil et al., The Berkeley Function Calling Leaderboard (2025); Apache-2.0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError
from steersman.platform.wheel_files import PinnedWheel
from steersman.retrieval.bm25 import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

WHEEL = PinnedWheel(
    project="bfcl-eval",
    version="2026.3.23",
    filename="bfcl_eval-2026.3.23-py3-none-any.whl",
    sha256="3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a",
    size=1_925_664,
    licence="Apache-2.0",
)
_MEMBER_CAP = 8_000_000
_ASKED = ("live_simple", "live_multiple")
_DISTRACTORS = "live_irrelevance"


@dataclass(frozen=True, slots=True)
class Tool:
    """Tool of the catalogue.

    Args:
        name: Name, unique in the catalogue.
        text: Search text: the words of the name, the description, and names, descriptions and
            allowed values of all parameters.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """Request with its right answer.

    Args:
        id: Id in the source.
        text: Text of the user.
        tool: Index of the right tool in the catalogue.
        answer: The right call with its arguments, as canonical JSON. Requests with equal answers
            may share a cached result.
    """

    id: str
    text: str
    tool: int
    answer: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All requests and the tools to choose from.

    Args:
        requests: Requests in the order of the source.
        tools: Tools in the order of their first definition in the source.
    """

    requests: tuple[Request, ...]
    tools: tuple[Tool, ...]


def load_catalogue(home: Path | None = None, *, fetch: bool = True) -> Catalogue:
    """Return the requests and tools of the pinned wheel.

    Returns:
        The catalogue: 1,311 requests, 729 tools.

    Raises:
        DataError: The wheel cannot be downloaded or read.
    """
    if fetch:
        WHEEL.fetch(home)
    parts = (*_ASKED, _DISTRACTORS)
    members = [_questions(part) for part in parts] + [_answers(part) for part in _ASKED]
    content = WHEEL.read(dict.fromkeys(members, _MEMBER_CAP), home)
    try:
        return _build({name: list(_json_lines(raw)) for name, raw in content.items()})
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as wrong:
        message = f"{WHEEL.filename} is not in the expected format: {wrong!r}"
        raise DataError(message) from wrong


def _questions(part: str) -> str:
    return f"bfcl_eval/data/BFCL_v4_{part}.json"


def _answers(part: str) -> str:
    return f"bfcl_eval/data/possible_answer/BFCL_v4_{part}.json"


def _json_lines(raw: bytes) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in raw.decode().splitlines() if line.strip())


def _build(rows: dict[str, list[dict[str, Any]]]) -> Catalogue:
    definitions: dict[str, dict[str, Any]] = {}
    for part in (*_ASKED, _DISTRACTORS):
        for row in rows[_questions(part)]:
            for tool in row["function"]:
                definitions.setdefault(tool["name"], tool)
    position = {name: index for index, name in enumerate(definitions)}
    requests = []
    for part in _ASKED:
        truth = {row["id"]: row["ground_truth"][0] for row in rows[_answers(part)]}
        requests += [_request(row, truth[row["id"]], position) for row in rows[_questions(part)]]
    return Catalogue(tuple(requests), tuple(map(tool_of, definitions.values())))


def _request(row: dict[str, Any], call: dict[str, Any], position: dict[str, int]) -> Request:
    said = (turn["content"] for turn in row["question"][0] if turn["role"] == "user")
    (name,) = call
    answer = json.dumps(call, sort_keys=True, ensure_ascii=False)
    return Request(row["id"], "\n".join(said), position[name], answer)


def tool_of(definition: dict[str, Any]) -> Tool:
    """Return a tool from its definition.

    >>> tool_of({"name": "get_weather", "description": "Tells it.", "parameters": {}}).text
    'get weather. Tells it.'
    """
    name = definition["name"]
    parts = [" ".join(words(name)) + ".", definition["description"]]
    parts += _parameter_texts(definition["parameters"])
    return Tool(name, " ".join(parts))


def _parameter_texts(schema: dict[str, Any]) -> Iterable[str]:
    for name, parameter in schema.get("properties", {}).items():
        # Some definitions hold a bare string where a parameter's schema belongs.
        if isinstance(parameter, dict):
            yield name
            yield parameter.get("description", "")
            yield from map(str, parameter.get("enum", ()))
            yield from _parameter_texts(parameter)
