"""Manifest of a data set: origin, content and hashes."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from datetime import date  # noqa: TC003 (pydantic reads it)
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from ruamel.yaml import YAML

from steersman.errors import DataError, InputError
from steersman.spec.base import Declared
from steersman.spec.yaml_files import read_declared
from steersman_systems.rag_tuner.judged_collections import load_judged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from steersman_systems.rag_tuner.judged_collections import JudgedCollection

NAME = "manifest.yaml"
_FORMATS = ("corpus.jsonl", "queries.jsonl", "qrels.tsv", "passages.jsonl", "questions.jsonl")
_SPLIT_JUDGEMENTS = ("qrels/dev.tsv", "qrels/test.tsv", "qrels/train.tsv")
"""Read if ``qrels.tsv`` is missing."""
_Text = Annotated[str, Field(min_length=1, max_length=2000)]
_Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Meta(Declared):
    """Metadata of a data set."""

    categories: Annotated[tuple[str, ...], Field(strict=False, max_length=1000)] = ()
    """Kinds of questions, in alphabetic order; empty if unknown."""
    updated_at: Annotated[date, Field(strict=False)]
    """When its data were last changed."""
    filters: Annotated[tuple[_Text, ...], Field(strict=False, max_length=100)] = ()
    """What was left out of the source, one sentence each."""


class Manifest(Declared):
    """Manifest of a data set, with the hashes of its files."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
    """Its name and version."""
    source: _Text
    """Where it came from: a URL, a bucket, a paper."""
    commit: _Text
    """Which state of the source."""
    size: _Count
    """Questions that have an answer."""
    splits: dict[str, _Count]
    """Questions of each split; "" holds those without one."""
    meta: Meta
    """What else is known."""
    files: Annotated[dict[str, _Sha256], Field(min_length=1)]
    """SHA-256 of each of its files, as they lie there."""

    @property
    def sha256(self) -> str:
        """Hex digest of the manifest; identifies the data of a run."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def describe(
    folder: Path,
    *,
    id: str,  # noqa: A002 (as the file calls it)
    source: str,
    commit: str,
    updated_at: date,
    filters: Sequence[str] = (),
) -> Manifest:
    """Return the manifest of the data set in a folder.

    Args:
        id: Name and version: lower-case letters, digits, ``.``, ``_``, ``-``.

    Raises:
        DataError: The folder holds no collection, or a damaged one.
        InputError: A text is missing or too long.
    """
    collection = load_judged(folder)
    try:
        return Manifest(
            id=id,
            source=source,
            commit=commit,
            size=len(collection.questions),
            splits=_splits(collection),
            meta=Meta(
                categories=_categories(collection), updated_at=updated_at, filters=tuple(filters)
            ),
            files=_hashes(folder),
        )
    except ValueError as error:
        raise InputError(f"invalid manifest: {error}") from None


def write_manifest(manifest: Manifest, file: Path) -> None:
    """Write a manifest as YAML."""
    yaml, text = YAML(), io.StringIO()
    yaml.dump(manifest.model_dump(mode="json"), text)
    file.write_text(text.getvalue(), encoding="utf-8")


def load_manifest(file: Path) -> Manifest:
    """Return the manifest in a file.

    Args:
        file: UTF-8, at most 256 KiB.

    Raises:
        SpecError: The file cannot be read or is invalid; lists all problems, one per line.
    """
    return read_declared(file, Manifest)[0]


def check(manifest: Manifest, folder: Path) -> JudgedCollection:
    """Return the data set if it matches its manifest.

    Raises:
        DataError: It does not match; lists all differences, one per line.
    """
    wrong = list(_file_problems(manifest, folder))
    if not wrong:
        collection = load_judged(folder)
        wrong = list(_count_problems(manifest, collection))
        if not wrong:
            return collection
    raise DataError(
        f"{folder} is not {manifest.id}:\n"
        + "\n".join(f"- {one}" for one in wrong)
        + "\nget the data of the manifest, or describe this data as another data set"
    )


def _file_problems(manifest: Manifest, folder: Path) -> Iterator[str]:
    there = _hashes(folder)
    for name, wanted in manifest.files.items():
        found = there.pop(name, None)
        if found is None:
            yield f"{name} is missing"
        elif found != wanted:
            yield f"{name} has the SHA-256 {found}; the manifest says {wanted}"
    for name in there:
        yield f"{name} is there, and the manifest does not name it"


def _count_problems(manifest: Manifest, collection: JudgedCollection) -> Iterator[str]:
    found = {
        "size": len(collection.questions),
        "splits": _splits(collection),
        "categories": list(_categories(collection)),
    }
    said = {
        "size": manifest.size,
        "splits": manifest.splits,
        "categories": list(manifest.meta.categories),
    }
    for name, value in found.items():
        if value != said[name]:
            yield f"{name} is {value!r}; the manifest says {said[name]!r}"


def _splits(collection: JudgedCollection) -> dict[str, int]:
    return dict(sorted(Counter(one.split for one in collection.questions).items()))


def _categories(collection: JudgedCollection) -> tuple[str, ...]:
    return tuple(sorted({one.category for one in collection.questions} - {""}))


def _hashes(folder: Path) -> dict[str, str]:
    found = _there(folder, _FORMATS)
    if not {"qrels.tsv", "qrels.tsv.gz"} & found.keys():
        found |= _there(folder, _SPLIT_JUDGEMENTS)
    return {name: _hash(file) for name, file in found.items()}


def _there(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    written = [f"{name}{end}" for name in names for end in ("", ".gz")]
    return {name: folder / name for name in written if (folder / name).is_file()}


def _hash(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}; check its permissions") from None
