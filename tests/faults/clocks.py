"""Clocks that tests set: each group of processes gets one of its own, as machines have."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("stepped_clock.c")


class Clocks:
    """The clocks of an installation; all tell the true time until they are set.

    Args:
        folder: For the library and the offsets; whoever runs the server can read it.
        groups: A name for each clock.
    """

    def __init__(self, folder, groups):
        self.groups = groups
        self._library = _compiled(folder / "stepped_clock.so")
        self._files = {name: folder / f"{name}.offset" for name in groups}
        self.step(0)

    def environment(self, group):
        """Return what a process is started with to live by a clock."""
        return {"LD_PRELOAD": str(self._library), "STEPPED_CLOCK": str(self._files[group])}

    def step(self, offset_s, *groups):
        """Set clocks to whole seconds from the true time; all of them if none is named."""
        for name in groups or self.groups:
            file = os.open(self._files[name], os.O_WRONLY | os.O_CREAT, 0o644)
            os.write(file, offset_s.to_bytes(8, "little", signed=True))
            os.close(file)


def _compiled(library):
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if not compiler or shutil.which(compiler[0]) is None:
        message = "there is no C compiler to make clocks that can be set"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    command = [*compiler, "-O2", "-Wall", "-fPIC", "-shared", _SOURCE, "-o", library, "-ldl"]
    subprocess.run(command, check=True)
    return library
