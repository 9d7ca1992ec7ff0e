"""Publishes and kills itself at its n-th step; run as a process of its own by the tests of faults.

Usage: publish_and_die.py REGISTRY KEYS KEEP. For each line VERSION STEP SECONDS of its input it
forks (starting Python anew would take most of the time), publishes in the child, and writes the
child's exit status. A step is the time before or after one operation on the place, or in the midst
of a write, when a draft is there; there the child kills itself, or else after SECONDS, wherever it
is then: by signals that let nothing be cleaned up. 0 is never.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.registry.storage import DirectoryPlace
from tests.registry.conftest import Clock, snapshot_of


class Deadly(DirectoryPlace):
    """A directory whose user is killed before, within or after one of its operations."""

    def __init__(self, root, step):
        super().__init__(root)
        self.left = step

    def write_new(self, path, data):
        return self._between(super().write_new, path, data)

    def replace(self, path, data, *, expected_tag):
        return self._between(super().replace, path, data, expected_tag=expected_tag)

    def remove(self, path):
        self._between(super().remove, path)

    def _between(self, method, *given, **further):
        self._step()
        done = method(*given, **further)
        self._step()
        return done

    @contextmanager
    def _writing(self, target, data):
        with super()._writing(target, data) as draft:
            self._step()
            yield draft

    def _step(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main():
    registry, keys, keep = sys.argv[1:]
    for line in sys.stdin:
        version, step, seconds = line.split()
        child = os.fork()
        if child == 0:
            signal.setitimer(signal.ITIMER_REAL, float(seconds))  # nobody handles its signal
            place = Deadly(registry, int(step))
            publisher = Publisher(place, Keys(keys), clock=Clock(), keep=int(keep))
            publisher.publish(*snapshot_of(version))
            os._exit(0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
