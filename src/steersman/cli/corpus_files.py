"""Reads files and folders into documents, with a progress bar."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from steersman.errors import DataError, InputError
from steersman.retrieval.documents.parser_process import BoundedParser
from steersman.retrieval.documents.read import files, printable, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from steersman.retrieval.add_documents import Added
    from steersman.retrieval.documents.document import Document

_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")


class Reading:
    """The documents of files and folders, in order.

    Args:
        paths: files, and folders that are searched for files of known kinds.

    Attributes:
        files: number of files.
        read: number of files read so far.
        failed: error messages by path.
        doc_ids: ids of all documents read.

    Raises:
        DataError: a folder has no readable file, or cannot be read itself.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.read = 0
        self.failed: dict[str, str] = {}
        self.doc_ids: set[str] = set()
        self._files = [one for path in paths for one in _below(path)]

    @property
    def files(self) -> int:
        """Number of files to read."""
        return len(self._files)

    def documents(self) -> Iterator[Document]:
        """Yield the documents; skip an unreadable file and record it in `failed`."""
        with BoundedParser() as parser:
            for path, doc_id in self._files:
                try:
                    found = read(path, doc_id=doc_id, parser=parser)
                except (DataError, InputError, OSError) as error:
                    self.failed[printable(str(path))] = str(error)
                    continue
                finally:
                    self.read += 1
                self.doc_ids.update(one.doc_id for one in found)
                yield from found


def _below(path: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield files with the id of their only document; None: a file of JSON lines."""
    for one in files(path) if path.is_dir() else [path]:
        inner = one.relative_to(path).as_posix() if path.is_dir() else one.name
        yield one, None if one.name.lower().endswith(_LINES) else printable(inner)


@contextmanager
def watched(reading: Reading, *, as_json: bool) -> Iterator[Callable[[Added], None]]:
    """Give a callback that shows the progress of `Reading` at a terminal."""
    if as_json or not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    more = TextColumn("{task.fields[more]}")
    with Progress(*columns, more, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("reading and embedding", total=reading.files, more="")

        def tell(done: Added) -> None:
            texts = f"{done.embedded:,} texts embedded, {done.known:,} known"
            bar.update(task, completed=reading.read, more=texts)

        yield tell


@contextmanager
def indexing(*, as_json: bool) -> Iterator[Callable[[int], None]]:
    """Give a callback that shows how many vectors an index has, at a terminal."""
    if as_json or not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True).status("indexing") as status:
        yield lambda count: status.update(
            f"indexing: {count:,} vectors loaded; the graph comes next"
        )
