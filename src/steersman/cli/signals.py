"""Orderly exit of a command on SIGTERM, or on SIGHUP when its terminal closes.

Without it the process ends at once, and an embedded PostgreSQL that it started keeps running.
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
    """Turn signals to end into an exit like Ctrl-C, which closes what is open.

    A signal that is ignored (`nohup`) or handled already stays as it is. A second signal ends the
    process at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in _SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    process = os.getpid()

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() != process:  # a forked copy has nothing to close
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
