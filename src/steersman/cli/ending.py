"""How a command ends that is told to: by SIGTERM, or because its terminal is gone (SIGHUP).

Without this the process is gone at once, and what it had started stays: the embedded PostgreSQL of
a home runs on, and nobody stops it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def tidy_when_told() -> Iterator[None]:
    """Turn signals to end into an exit, as Ctrl-C is: what is open is closed on the way out.

    A signal that is ignored (`nohup`) or handled already is left as it is. The second one ends the
    process at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in _SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    process = os.getpid()

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() != process:  # a copy of this process has nothing to tidy: it is not the one
            os.kill(os.getpid(), number)
        sys.exit(128 + number)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            if signal.getsignal(number) is end:
                signal.signal(number, signal.SIG_DFL)
