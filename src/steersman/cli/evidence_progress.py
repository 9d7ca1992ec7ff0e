"""How far a long evaluation is: bars at a terminal, lines where nobody sees bars."""

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

    from steersman.retrieval import Embedder

_MANY = 100
"""Texts that take seconds to embed, and are told of."""


def progress_bar(*, quiet: bool) -> Progress:
    """Return a bar that people at a terminal see.

    Args:
        quiet: show nothing.
    """
    return Progress(console=Console(stderr=True), disable=quiet or not sys.stderr.isatty())


class Telling:
    """Says on standard error which part of the work is being done, and how much of it is.

    Args:
        quiet: say nothing.
    """

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
        """Begin a part; those before it are done, however many of them were left out.

        Args:
            text: what is done.
            total: of what there is to do; None: nobody knows.

        Returns:
            To be called with how many were just done.
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
        """Return an embedder that tells how many texts it has embedded, some hundreds at a time.

        Args:
            embedder: that does it.
        """
        return _Counted(embedder, self)

    def count(self, texts: int) -> None:
        """Tell that texts were embedded; of a few nothing is said.

        Args:
            texts: how many.
        """
        if texts >= _MANY:
            self._line(f"{texts} texts embedded, and kept")
            for task in self._bar.tasks[-1:]:
                self._bar.advance(task.id, texts)

    def _finish(self) -> None:
        for one in self._bar.tasks:
            done = max(one.completed, 1)
            self._bar.update(one.id, total=done, completed=done)

    def _line(self, text: str) -> None:
        if self._lines:
            click.echo(text, err=True)


class _Counted:
    """An embedder that tells how many texts it embedded."""

    def __init__(self, embedder: Embedder, telling: Telling) -> None:
        self.name, self.size = embedder.name, embedder.size
        self._embedder, self._telling = embedder, telling

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder`.

        Args:
            texts: any.
        """
        found = self._embedder.encode(texts)
        self._telling.count(len(texts))
        return found
