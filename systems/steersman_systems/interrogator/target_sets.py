"""Target sets of the interrogator: real requests, questions and claims in English.

============ ================================== =============================================
set          texts                              from
============ ================================== =============================================
bfcl         1,311 requests to tools            the assistant's catalogue and its recording
clapnq       300 questions                      ``DIR/clapnq/questions.jsonl``
scifact      1,109 scientific claims            ``DIR/scifact/queries.jsonl``
metatool     20,614 requests to plugins         ``DIR/metatool/metatool_single.parquet``
============ ================================== =============================================

Other folders of ``DIR`` can be used if they have ``questions.jsonl`` (field ``question``) or
``queries.jsonl`` (field ``text``), optionally compressed (``.gz``).

The warm start uses a part of bfcl only, see `part_of`. All other texts are for evaluation; texts of
other sets that equal one of the warm start are left out.

bfcl needs no model: its embeddings are in the shipped recording. The user gives the directory of
the others (``--data`` or ``STEERSMAN_DATA``); none is shipped.
"""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman_systems.assistant.recorded_engines import Recording
from steersman_systems.assistant.requests import load_catalogue
from steersman_systems.assistant.routers import load_router
from steersman_systems.interrogator.targets import (
    Target,
    normalised,
    part_of,
    place_of,
    unit_vector,
    without_repeats,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder
    from steersman_systems.interrogator.targets import Part

_CAP = 50_000_000
_ORIGINALS = {
    "clapnq": "CLAPNQ, github.com/primeqa/clapnq",
    "scifact": "SciFact, github.com/allenai/scifact, as BEIR has it",
    "metatool": "MetaTool, github.com/HowieHwong/MetaTool",
}
SETS = ("bfcl", *_ORIGINALS)


def load_targets(
    names: Sequence[str] = ("bfcl",),
    *,
    part: Part | None = None,
    most: int | None = None,
    data: Path | None = None,
    embedder: Embedder | None = None,
    home: Path | None = None,
) -> tuple[Target, ...]:
    """Return the targets of some sets; equal texts of all sets are one target in one part.

    Args:
        most: Targets of each set, ≥ 1, chosen by the hash of their texts; ``None`` for all.

    Raises:
        InputError: An unknown set, ``most`` below 1, or no embedder where one is needed.
        DataError: A file is missing or of another format, or pyarrow is not installed.
    """
    if most is not None and most < 1:
        message = f"most is {most}; allowed: 1 or more; omit it for all targets"
        raise InputError(message)
    seen: list[Target] = []
    for name in names:
        if not is_set(name, data):
            message = f"unknown targets {name!r}; allowed: {', '.join(SETS)}"
            raise InputError(f"{message}, and folders of the data directory")
        seen += _bfcl(home) if name == "bfcl" else _texts(name, data)
    chosen = list(without_repeats(seen))
    if part is not None:
        learned = _learned(home)
        wanted = part == "warm"
        chosen = [one for one in chosen if (normalised(one.text or "") in learned) == wanted]
    kept = _sample(chosen, names, most, by_row=part == "warm")
    return tuple(_embedded(target, embedder) for target in kept)


def is_set(name: str, data: Path | None) -> bool:
    """Return whether a name is a known set, or an existing folder of the data directory.

    >>> is_set("bfcl", None), is_set("squad", None)
    (True, False)
    """
    return name in SETS or (data is not None and (data / name).is_dir())


def recorded_vectors() -> NDArray[np.float64]:
    """Return the vectors of all bfcl requests; the shipped log's targets are its rows.

    Returns:
        (1311, 384) unit vectors, bit-identical to those of `load_targets`.

    Raises:
        DataError: The assistant's recording is missing or damaged.

    >>> recorded_vectors().shape
    (1311, 384)
    """
    return np.array([unit_vector(vector) for vector in Recording.load().request_embedding])


def _learned(home: Path | None) -> frozenset[str]:
    """Return the normalised texts that the log may contain."""
    texts = (request.text for request in load_catalogue(home).requests)
    return frozenset(normalised(text) for text in texts if part_of(text) == "warm")


def _sample(
    targets: list[Target], names: Sequence[str], most: int | None, *, by_row: bool
) -> list[Target]:
    kept: list[Target] = []
    for name in names:
        own = [target for target in targets if target.name.startswith(f"{name}:")]
        first = sorted(own, key=lambda target: place_of(f"{target.text} sample"))[:most]
        kept += sorted(first, key=lambda target: target.row) if by_row else first
    return kept


def _embedded(target: Target, embedder: Embedder | None) -> Target:
    if target.vector.size:
        return target
    if embedder is None:
        message = f"{target.name} has no embedding; give an embedder, or use bfcl alone"
        raise InputError(message)
    # Rounded like the answers' vectors, so that a target's text reaches similarity 1.
    vector = embedder.encode([target.text or ""])[0].astype(np.float16)
    return Target.of_vector(vector, name=target.name, text=target.text, row=target.row)


def _bfcl(home: Path | None) -> list[Target]:
    requests = load_catalogue(home).requests
    vectors = Recording.load().request_embedding
    return [
        Target.of_vector(vector, name=f"bfcl:{request.id}", text=request.text, row=row)
        for row, (request, vector) in enumerate(zip(requests, vectors, strict=True))
    ]


def _texts(name: str, data: Path | None) -> list[Target]:
    folder = None if data is None else data / name
    if folder is None or not folder.is_dir():
        where = f"{folder} is missing" if folder else f"{name} needs a directory of data"
        original = _ORIGINALS.get(name, "it")
        message = f"{where}; put {original} there, or give its parent with --data DIR"
        raise DataError(message)
    try:
        texts = _metatool(folder) if name == "metatool" else _asked(folder)
    except (OSError, EOFError, zlib.error, KeyError, TypeError, ValueError) as wrong:
        message = f"{folder} is not in the expected format: {wrong!r}; compare it with its original"
        raise DataError(message) from wrong
    unknown = np.zeros(0)
    return [Target(unknown, f"{name}:{row}", text, row) for row, text in enumerate(texts)]


def _asked(folder: Path) -> list[str]:
    """Return the texts of questions or queries in the folder."""
    for name, field in (("questions.jsonl", "question"), ("queries.jsonl", "text")):
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return [_text(row[field]) for row in _lines(path)]
    message = f"{folder} holds neither questions.jsonl nor queries.jsonl (or .gz)"
    raise DataError(f"{message}; put one there")


def _metatool(folder: Path) -> list[str]:
    return list(load_router("metatool", folder.parent).texts)


def _lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(_CAP + 1)
    if len(content) > _CAP:
        message = f"{path} unpacks to more than {_CAP} bytes"
        raise DataError(message)
    # Not splitlines: a text may hold line separators of Unicode, which JSON need not escape.
    return [json.loads(line) for line in content.decode("utf-8-sig").split("\n") if line.strip()]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        message = f"a text is {value!r}"
        raise TypeError(message)
    return value
