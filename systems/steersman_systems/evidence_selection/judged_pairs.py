"""Pairs of answers with human verdicts, and the verdicts of language models in both orders."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError
from steersman.providers.judges.agreement import Verdicts
from steersman.providers.judges.pairwise import Pair
from steersman_systems.evidence_selection.sets.files import entries, needed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from steersman.providers.judges.pairwise import Preference
    from steersman_systems.evidence_selection.sets.entry import Entry

_NUMBER: Mapping[str, int] = {"first": 1, "second": 2, "tie": 0}
_ORIGIN = (
    "github.com/princeton-nlp/LLMBar (llmbar*.jsonl) and github.com/WeOpenML/PandaLM "
    "(pandalm*.jsonl)"
)


@dataclass(frozen=True, slots=True)
class HumanPair:
    """Two answers with human and model verdicts.

    Attributes:
        pair: question and both answers.
        human: 1 or 2 for the better answer, 0 for a tie; the majority of three annotators.
        source: data set of the pair.
        judges: model name -> its verdicts in both orders, as the number of the winning answer; the
            second is None if only one order was asked.
    """

    pair: Pair
    human: int
    source: str
    judges: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)

    @property
    def lengths(self) -> tuple[int, int]:
        """Length of both answers, in characters."""
        return len(self.pair.first), len(self.pair.second)


def load_human_pairs(folder: Path) -> list[HumanPair]:
    """Read the pairs of LLMBar and PandaLM.

    Raises:
        DataError: neither is found, or a line does not match the published format.
    """
    if not folder.is_dir():
        message = f"human verdicts not found: {folder}"
        raise DataError(f"{message}; the originals are at {_ORIGIN}")
    found: list[HumanPair] = []
    for pattern, read in (("llmbar*.jsonl", _llmbar), ("pandalm*.jsonl", _pandalm)):
        if any(folder.glob(f"{pattern}*")):
            rows = entries(needed(folder, "pairs with verdicts", pattern))
            found += [pair for row in rows for pair in read(row)]
    if not found:
        message = f"{folder} has neither llmbar*.jsonl nor pandalm*.jsonl"
        raise DataError(f"{message}; the originals are at {_ORIGIN}")
    return found


def recorded(pairs: Sequence[HumanPair], judge: str) -> list[Verdicts]:
    """Return human verdicts with a model's recorded verdicts in both orders.

    >>> one = HumanPair(Pair("q", "long", "s"), 2, "made", {"m": (1, 2), "n": (1, None)})
    >>> recorded([one], "m"), recorded([one], "n")
    ([Verdicts(human=2, orig=1, swapped=2, lengths=(4, 1))], [])
    """
    return [
        Verdicts(one.human, *one.judges[judge], one.lengths, one.pair.question)
        for one in pairs
        if judge in one.judges and one.judges[judge][1] is not None
    ]


def beside_people(pairs: Sequence[HumanPair], preferences: Sequence[Preference]) -> list[Verdicts]:
    """Return human verdicts with those of a live judge."""
    found = []
    for one, preference in zip(pairs, preferences, strict=True):
        shown = [None if won is None else _NUMBER[won] for won in preference.shown]
        found.append(Verdicts(one.human, shown[0], shown[1], one.lengths, one.pair.question))
    return found


def _llmbar(row: Entry) -> Iterator[HumanPair]:
    pair = Pair(row.text("input"), row.text("output_1"), row.text("output_2"))
    judges = {}
    for name in row.inner("judges").fields if "judges" in row.fields else ():
        said = row.inner("judges").inner(name)
        judges[name] = (_number(said, "orig"), _number(said, "swapped"))
    human = _number(row, "label")
    if human is None:
        raise row.wrong("label", "1 or 2")
    yield HumanPair(pair, human, f"LLMBar/{row.text('subset', default='')}", judges)


def _pandalm(row: Entry) -> Iterator[HumanPair]:
    votes = Counter(row.whole(f"annotator{place}") for place in (1, 2, 3))
    human, count = votes.most_common(1)[0]
    if count < 2:
        return
    asked = "\n".join(filter(None, (row.text("instruction"), row.text("input", default=""))))
    judges: dict[str, tuple[int | None, int | None]] = {
        name: (_number(row, field), None)
        for name, field in (("gpt-3.5-turbo", "gpt35"), ("PandaLM-7B", "pandalm7b"))
        if field in row.fields
    }
    yield HumanPair(
        Pair(asked, _answer(row, "response1"), _answer(row, "response2")), human, "PandaLM", judges
    )


def _answer(row: Entry, field: str) -> str:
    """Return an answer as text; a few are published as numbers or booleans."""
    value = row.fields.get(field)
    if value is None or isinstance(value, list | dict):
        raise row.wrong(field, "an answer")
    return str(value)


def _number(row: Entry, field: str) -> int | None:
    """Return a verdict: 0, 1 or 2; None for any other model output."""
    value: Any = row.fields.get(field)
    told = str(value).strip().lower()
    return {"0": 0, "tie": 0, "1": 1, "2": 2}.get(told)
