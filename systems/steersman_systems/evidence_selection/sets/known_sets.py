"""Registry of question sets, read in their published formats.

`load` finds a set by its name under a directory. A folder in this project's format
(``passages.jsonl``, ``questions.jsonl``) or in BEIR's can have any name. Other sets are identified
by name (`HotpotQA` is ``hotpotqa``) or by their files. The error for a missing set names its
origin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from steersman.errors import DataError, InputError
from steersman_systems.evidence_selection.sets import (
    beir,
    coral,
    hotpotqa,
    musique,
    natural_questions,
    or_quac,
    qrecc,
    shared_format,
    topiocqa,
    triviaqa,
)
from steersman_systems.evidence_selection.sets.evidence_set import EvidenceSet
from steersman_systems.evidence_selection.sets.files import find

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["AT_MOST", "KNOWN", "EvidenceSet", "KnownSet", "load"]

AT_MOST = 1_000_000
"""Maximum passages besides the gold ones; some collections have fifty times as many."""


@dataclass(frozen=True, slots=True)
class KnownSet:
    """Published set with a specific format.

    Attributes:
        about: short description.
        origin: address of the public original.
        read: reads a folder: (folder, name, maximum passages).
        files: globs that identify its folder; () for none.
        also: other names, in small letters and digits.
    """

    about: str
    origin: str
    read: Callable[[Path, str, int], EvidenceSet]
    files: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


KNOWN = {
    "coral": KnownSet("multi-turn questions over web pages, with citations",
                   "huggingface.co/datasets/ariya2357/CORAL", coral.load, coral.FILES),
    "qrecc": KnownSet("conversational questions with rewrites by people",
                   "zenodo.org/records/5115890 (SCAI-QReCC) and github.com/apple/ml-qrecc",
                   qrecc.load, qrecc.FILES),
    "topiocqa": KnownSet("conversations over Wikipedia whose topic shifts",
                      "github.com/McGill-NLP/topiocqa", topiocqa.load, topiocqa.FILES[:2]),
    "or_quac": KnownSet("questions of QuAC over all of Wikipedia",
                     "ciir.cs.umass.edu/downloads/ORConvQA", or_quac.load,
                     ("**/all_blocks.txt", "**/preprocessed/test.txt"), ("orquac", "orconvqa")),
    "hotpotqa": KnownSet("questions that take two passages", "hotpotqa.github.io", hotpotqa.load,
                      hotpotqa.HOTPOTQA, ("hotpot",)),
    "musique": KnownSet("questions of two to four hops", "github.com/StonyBrookNLP/musique",
                     musique.load, musique.FILES),
    "2wiki": KnownSet("questions of two to four hops over two Wikipedia pages and Wikidata",
                   "github.com/Alab-NII/2wikimultihop",
                   partial(hotpotqa.load, patterns=hotpotqa.TWO_WIKI),
                   also=("2wikimultihopqa", "2wikimultihop", "2wikimqa")),
    "nq": KnownSet("what people asked a search engine", "ai.google.com/research/NaturalQuestions",
                natural_questions.load, (*natural_questions.FILES, *natural_questions.DPR_FILES),
                ("naturalquestions",)),
    "triviaqa": KnownSet("quiz questions", "nlp.cs.washington.edu/triviaqa", triviaqa.load,
                      (*triviaqa.FILES, *triviaqa.DPR_FILES), ("trivia",)),
    "mtrag": KnownSet("multi-turn questions in four domains (in this project's format)",
                   "github.com/IBM/mt-rag-benchmark", shared_format.load),
    "clapnq": KnownSet("natural questions with long answers (in this project's format)",
                    "github.com/primeqa/clapnq", shared_format.load),
}  # fmt: skip
"""Name -> known set."""


def load(name: str, data_dir: Path, *, at_most: int = AT_MOST) -> EvidenceSet:
    """Read a set from its folder.

    Args:
        at_most: maximum passages besides the gold ones, ≥ 0; fewer passages make search easier.

    Raises:
        DataError: the set is missing, or a file is invalid; the message names file and line.
        InputError: `at_most` is negative.
    """
    if at_most < 0:
        raise InputError(f"at_most is {at_most!r}; allowed: 0 or more")
    folder = data_dir / name
    if not folder.is_dir():
        raise DataError(f"{_described(name)} is not in {data_dir}; {_advice(name)}")
    if shared_format.is_there(folder):
        return shared_format.load(folder, name, at_most)
    if beir.is_there(folder):
        return beir.load(folder, name, at_most)
    known = _by_name(name) or _by_files(folder)
    if known is None:
        raise DataError(f"{folder} has no set in a known format; {_advice(name)}")
    return known.read(folder, name, at_most)


def _by_name(name: str) -> KnownSet | None:
    plain = _plain(name)
    return next(
        (known for one, known in KNOWN.items() if plain in {_plain(one), *known.also}), None
    )


def _by_files(folder: Path) -> KnownSet | None:
    """Return the only set that matches the files of a folder."""
    fitting = [one for one in KNOWN.values() if find(folder, *one.files) is not None]
    return fitting[0] if len(fitting) == 1 else None


def _plain(name: str) -> str:
    return "".join(one for one in name.lower() if one.isalnum())


def _described(name: str) -> str:
    known = _by_name(name)
    return f"the set {name!r}" + (f" ({known.about})" if known else "")


def _advice(name: str) -> str:
    known = _by_name(name)
    if known:
        return f"put it there as a folder of that name; the original is at {known.origin}"
    return (
        "put passages.jsonl and questions.jsonl there, or corpus.jsonl, queries.jsonl and "
        f"qrels/test.tsv as BEIR has them, or name one of {', '.join(KNOWN)}"
    )
