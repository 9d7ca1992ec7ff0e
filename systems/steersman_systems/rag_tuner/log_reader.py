"""Reader of evaluation logs: one line per question, or per episode of a run.

A line has a question, a configuration and the results:

    {"question": "q17", "configuration": {"variant": "bm25", "k": 5}, "latency_ms": 41.0,
     "quality": {"faithfulness": 0.9, "relevancy": 0.8}, "cost": 0.02, "propensity": 0.125}

If the configuration was chosen by the question, easy and hard questions have different
configurations. If lines have the propensity of their configuration, lines are dropped at random
until every question has the same probability. Without propensities this bias is unknown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from steersman.errors import DataError, InputError
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.logged import EvaluationLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_MOST = 2_000_000
_THINNED = 9
"""Separates these draws from other draws with the same seed."""

_Unit = Annotated[float, Meta(ge=0, le=1)]
_Spent = Annotated[float, Meta(ge=0, le=1e12)]
_Named = Annotated[str, Meta(min_length=1, max_length=512)]


class LoggedConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configuration of a line; attributes as in `Configuration`.

    Attributes:
        variant: Search method.
        k: Number of passages.
        rerank: Whether passages were reranked.
        fusion_weight: Weight of the dense scores.
        expansion: Whether linked passages were added.
        prompt: Id of the prompt template.
    """

    variant: str
    k: int
    rerank: bool = False
    fusion_weight: float = 0.5
    expansion: bool = False
    prompt: str = "plain"


class LogLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Result of one question under one configuration.

    Attributes:
        question: Question id, equal on all lines of the question.
        configuration: Configuration of the search.
        quality: Two measures by name, the same two on all lines; None: not defined.
        latency_ms: Latency of search and answer in milliseconds.
        cost: Cost in units of the reference cost of one query.
        propensity: Probability of this configuration for this question.
        failed: Whether the answer is missing.
        violation: Whether the answer has forbidden content.
        unstable: Whether repeated answers differ.
        category: Category of the question.
        split: Split of the question.
        conversation: Conversation of the question.
    """

    question: _Named
    configuration: LoggedConfiguration
    quality: Annotated[dict[str, _Unit | None], Meta(min_length=2, max_length=2)]
    latency_ms: _Spent
    cost: _Spent
    propensity: Annotated[float, Meta(gt=0, le=1)] | None = None
    failed: bool = False
    violation: bool = False
    unstable: bool = False
    category: str = ""
    split: str = ""
    conversation: str = ""


def read_log(files: Sequence[Path], name: str, *, seed: int = 0) -> EvaluationLog:
    """Return a log of evaluations, as a world for tuning.

    Raises:
        DataError: A file cannot be read, or a line is invalid (the message names it); two lines
            disagree on measures or a question; or only some lines of a configuration have a
            propensity.
    """
    read = _ReadState()
    for file in files:
        for where, line in _lines(file):
            read.take(line, where)
    if not read.cells:
        named = ", ".join(map(str, files))
        raise DataError(f"{named}: no evaluations; write one JSON object for each question, as "
                        "docs/how-to/tune-retrieval.md shows")  # fmt: skip
    kept = _thinned(read, np.random.default_rng([seed, _THINNED]))
    about = {
        "evaluations": len(kept),
        "asked_again": read.again,
        "thinned_out": len(read.cells) - len(kept),
        "propensities": "logged" if any(one.propensity for one in read.cells.values()) else "none",
    }
    return _logged(read, kept, name, about)


@dataclass
class _ReadState:
    """Content read so far."""

    cells: dict[tuple[Configuration, str], LogLine] = field(default_factory=dict)
    about: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    measures: tuple[str, ...] = ()
    again: int = 0

    def take(self, line: LogLine, where: str) -> None:
        try:
            one = Configuration.of(msgspec.structs.asdict(line.configuration)).canonical()
        except InputError as error:
            raise DataError(f"{where}: {error}") from None
        self.measures = self.measures or tuple(line.quality)
        if set(line.quality) != set(self.measures):
            known, other = " and ".join(self.measures), " and ".join(line.quality)
            raise DataError(f"{where}: measures are {other}, but {known} before; log the same two")
        said = line.category, line.split, line.conversation
        before = self.about.setdefault(line.question, said)
        if before != said:
            raise DataError(
                f"{where}: category, split, conversation of {line.question!r:.80} are {said!r}, "
                f"but {before!r} before; use the same for all lines of a question"
            )
        if self.cells.setdefault((one, line.question), line) is not line:
            self.again += 1
        if len(self.cells) > _MOST:
            raise DataError(f"{where}: more than {_MOST:,} evaluations; split the log")


def _lines(file: Path) -> Iterator[tuple[str, LogLine]]:
    try:
        with file.open("rb") as lines:
            for number, text in enumerate(lines, 1):
                if text.strip():
                    where = f"{file}:{number}"
                    for line in _parsed(text, where):
                        yield where, line
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}; give a file of JSON lines") from None


def _parsed(text: bytes, where: str) -> Iterable[LogLine]:
    try:
        row = json.loads(text, parse_constant=_no_number)
        if isinstance(row, dict) and "of_query" in row:
            return [msgspec.convert(one, LogLine) for one in _of_episode(row)]
        return [msgspec.convert(row, LogLine)]
    except (ValueError, KeyError, TypeError, RecursionError, msgspec.ValidationError) as error:
        raise DataError(
            f"{where}: {error!s:.200}; write one JSON object for each question, or each episode of "
            "a run"
        ) from None


def _no_number(said: str) -> float:
    raise ValueError(f"{said} is not a JSON number; use null for an undefined value")


def _of_episode(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the lines of an episode; all its questions share one drawn configuration."""
    of, none = row["of_query"], [False] * len(row["queries"])
    names = tuple(row["measures"])
    columns = (
        *(row["queries"], of["quality"], of["latency_ms"], of["cost"], of["failed"]),
        *(of["violations"], of.get("unstable", none)),
    )
    for place, quality, latency_ms, cost, failed, violation, unstable in zip(*columns, strict=True):
        yield {
            "question": str(place),
            "configuration": row["configuration"],
            "quality": dict(zip(names, quality, strict=True)),
            "latency_ms": latency_ms,
            "cost": cost,
            "failed": failed,
            "violation": violation,
            "unstable": unstable,
        }


def _thinned(read: _ReadState, rng: np.random.Generator) -> list[tuple[Configuration, str]]:
    """Return the lines that are kept for equal question probabilities per configuration.

    Rejection sampling: a line is kept with the minimum propensity of its configuration over its
    own. Then every question has this minimum probability.
    """
    of: dict[Configuration, list[tuple[Configuration, str]]] = {}
    for key in read.cells:
        of.setdefault(key[0], []).append(key)
    kept = []
    for one, keys in of.items():
        each = [read.cells[key].propensity for key in keys]
        known = [value for value in each if value is not None]
        if known and len(known) < len(each):
            raise DataError(
                f"{len(known)} of {len(each)} lines of {one} have a propensity; log it for all "
                "or for none"
            )
        draws = rng.random(len(keys))
        least = min(known, default=1.0)
        kept += [
            key
            for key, value, draw in zip(keys, each, draws, strict=True)
            if value is None or draw < least / value
        ]
    return kept


def _logged(
    read: _ReadState, kept: Sequence[tuple[Configuration, str]], name: str, about: Mapping[str, Any]
) -> EvaluationLog:
    questions = sorted({question for _, question in kept})
    configurations = sorted({one for one, _ in kept})
    place = {question: number for number, question in enumerate(questions)}
    row = {one: number for number, one in enumerate(configurations)}
    cells = sorted((row[one], place[question], key) for key in kept for one, question in [key])
    lines = [read.cells[key] for _, _, key in cells]
    first, second = read.measures
    undefined = [[np.nan if one.quality[m] is None else one.quality[m] for m in (first, second)]
                 for one in lines]  # fmt: skip
    categories, splits, talks = zip(*(read.about[one] for one in questions), strict=True)
    return EvaluationLog(
        collection=name,
        queries=tuple(questions),
        categories=categories,
        splits=splits,
        groups=talks if any(talks) else (),
        configurations=tuple(configurations),
        cells=np.array([(one, two) for one, two, _ in cells], np.intp),
        quality=np.array(undefined, np.float64),
        latency_ms=np.array([one.latency_ms for one in lines]),
        cost=np.array([one.cost for one in lines]),
        failed=np.array([one.failed for one in lines]),
        violations=np.array([one.violation for one in lines]),
        unstable=np.array([one.unstable for one in lines]),
        measures=(first, second),
        about=dict(about),
    )
