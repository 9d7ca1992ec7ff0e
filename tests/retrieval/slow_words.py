"""An embedder that takes its time, refuses a text or dies of one."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.retrieval.hashed_words import HashedWords


class SlowWords(HashedWords):
    """`HashedWords`, and what may go wrong; every text that was embedded is written into a file.

    With a folder of `starts`, the one that is made as number `dies_at` dies before it is ready.
    """

    def __init__(
        self, seconds=0.0, refuses=None, dies_of=None, told=None, starts=None, dies_at=None
    ):
        super().__init__()
        if starts is not None and _number_of_start(Path(starts)) == dies_at:
            os._exit(9)
        self.seconds, self.refuses, self.dies_of = seconds, refuses, dies_of
        self.told = None if told is None else Path(told)

    def encode(self, texts):
        if self.dies_of in texts:
            os._exit(9)
        if self.refuses in texts:
            raise ValueError(f"no {self.refuses} words")
        time.sleep(self.seconds)
        if self.told is not None:
            with self.told.open("a") as file:
                file.writelines(f"{text}\n" for text in texts)
        return super().encode(texts)


def _number_of_start(folder):
    """Whichever process makes a file first has its number."""
    number = 1
    while True:
        try:
            (folder / str(number)).touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return number
