"""Progress of a long evaluation: bars at a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    import numpy as np
    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder

_MANY = 100
"""Number of texts that take seconds to embed; fewer are not reported."""


def progress_bar(*, quiet: bool) -> Progress:
    """Return a progress bar for people at a terminal."""
    return Progress(console=Console(stderr=True), disable=quiet or not sys.stderr.isatty())


class ProgressReport:
    """Progress reports on standard error: the current part of the work, and its share done."""

    def __init__(self, *, quiet: bool) -> None:
        self._bar = progress_bar(quiet=quiet)
        self._lines = not quiet and not sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None:
            self._finish()
        self._bar.stop()

    def part(self, text: str, total: int | None = None) -> Callable[[int], None]:
        """Begin a part of the work, and finish the earlier parts.

        `total` is the number of items; None: unknown. Call the result with the number of new items.
        """
        self._finish()
        task, done = self._bar.add_task(text, total=total), 0
        self._line(text)

        def advance(count: int) -> None:
            nonlocal done
            before, done = done, done + count
            self._bar.advance(task, count)
            if total and 10 * done // total > 10 * before // total:
                self._line(f"{text}: {100 * done // total} %")

        return advance

    def embedded(self, embedder: Embedder) -> Embedder:
        """Return an embedder that reports the number of embedded texts."""
        return _CountingEmbedder(embedder, self)

    def count(self, texts: int) -> None:
        """Report embedded texts, if there are many."""
        if texts >= _MANY:
            self._line(f"{texts} texts embedded and cached")
            for task in self._bar.tasks[-1:]:
                self._bar.advance(task.id, texts)

    def _finish(self) -> None:
        for one in self._bar.tasks:
            done = max(one.completed, 1)
            self._bar.update(one.id, total=done, completed=done)

    def _line(self, text: str) -> None:
        if self._lines:
            click.echo(text, err=True)


class _CountingEmbedder:
    """Embedder that reports the number of embedded texts."""

    def __init__(self, embedder: Embedder, telling: ProgressReport) -> None:
        self.name, self.size = embedder.name, embedder.size
        self._embedder, self._telling = embedder, telling

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder`."""
        found = self._embedder.encode(texts)
        self._telling.count(len(texts))
        return found
