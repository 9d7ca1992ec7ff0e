"""Processes of tests, forked from one that has imported everything: ready in a tenth of the time.

They are processes of their own all the same, to be killed, stopped and left alone. That programs
start from nothing is shown where they are: `tests/cli/test_up.py`, `tests/api/test_server.py`.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.process import BaseProcess

_CONTEXT = multiprocessing.get_context("forkserver")
_IMPORTED = [
    "scipy.stats",  # what they judge with imports it when it is first used: a second for each
    "tests.faults.learner",
    "tests.faults.service",
    "tests.learning.learning_process",
    "tests.learning.publishing_process",
    "tests.rollouts.controlling_process",
]


@dataclass(frozen=True)
class Process:
    """A process, with the words of `subprocess.Popen`."""

    forked: BaseProcess

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.forked.pid is not None
        return self.forked.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status, -N if signal N ended it, None as long as it runs."""
        return self.forked.exitcode

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        status = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        return status.rpartition(")")[2].split()[0] == "T"

    def poll(self) -> int | None:
        """Return its exit status."""
        return self.forked.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        """Return its exit status once it has ended, None if it has not by then."""
        self.forked.join(timeout)
        return self.forked.exitcode

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.forked.terminate()

    def kill(self) -> None:
        """Kill it."""
        self.forked.kill()

    def kill_group(self) -> None:
        """Kill it with all that it started, and wait until it has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.kill()  # if it did not lead a group yet
        self.wait()


def call(target: Callable[..., None], *arguments: Any) -> Process:
    """Call a function in a process of its own."""
    _CONTEXT.set_forkserver_preload(_IMPORTED)  # when the first is asked for, it begins
    return _started(_CONTEXT.Process(target=target, args=arguments, daemon=True))


def call_in_a_copy(target: Callable[[], None]) -> Process:
    """Call a function in a copy of this very process, with all that it holds open."""
    return _started(multiprocessing.get_context("fork").Process(target=target, daemon=True))


def _started(forked: BaseProcess) -> Process:
    forked.start()
    return Process(forked)


def run_module(module: str, *arguments: Any, output: Path = Path(os.devnull)) -> Process:
    """Run a module as ``python -m`` does; what it says goes to the end of a file."""
    return call(_main, module, tuple(map(str, arguments)), output)


def _main(module: str, arguments: tuple[str, ...], output: Path) -> None:
    os.setsid()
    with output.open("ab") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)  # it is executed anew, as if nobody had imported it
    runpy.run_module(module, run_name="__main__")
