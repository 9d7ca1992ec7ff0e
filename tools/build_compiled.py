"""What the build does beyond copying: compile ``gaussian_choice.c``, where there is a compiler.

pip runs this when it builds or installs the package (hatchling's custom build hook). The library is
plain C that ctypes loads: it needs no headers of Python, and one file serves all versions of it.
Without a compiler the package is the same but for that file, and numpy does that work slower.

``python -m tools.build_compiled`` compiles it anew in this checkout, after a change to the C.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "steersman" / "policies" / "gaussian_choice.c"
LIBRARY = SOURCE.with_name("_gaussian_choice.so")  # by this name on every system: ctypes loads it
# Without the last two the compiler must keep traps and errno, and makes no vectors.
FLAGS = ["-O3", "-fPIC", "-shared", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
SIMD = ["-fopenmp-simd"]  # sums and products in any order, where the source says so


def compile_library() -> str | None:
    """Compile the library, or say why not; an old one is gone in any case.

    Returns:
        None, or what was missing or failed.
    """
    LIBRARY.unlink(missing_ok=True)
    wanted = shlex.split(os.environ.get("CC", "cc"))
    if not wanted or shutil.which(wanted[0]) is None:
        return f"no C compiler ({' '.join(wanted) or 'CC is empty'})"
    with tempfile.TemporaryDirectory(dir=LIBRARY.parent) as folder:
        made = Path(folder) / LIBRARY.name
        said = ""
        for flags in ([*FLAGS, *SIMD], FLAGS):
            command = [*wanted, *flags, str(SOURCE), "-o", str(made), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                made.replace(LIBRARY)
                return None
            said = said or (done.stderr.strip().splitlines() or ["no word"])[0]
    return f"{' '.join(wanted)} failed: {said}"


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # compiling by hand needs no hatchling
    pass
else:

    class CompiledBuildHook(BuildHookInterface[Any]):
        """Puts the library into the wheel, which is then for one kind of system."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Compile before files are collected; ``version`` is "standard" or "editable"."""
            if self.target_name != "wheel":
                return
            if why := compile_library():
                self.app.display_warning(f"steersman: pure Python, as there is {why}")
                return
            build_data["artifacts"].append(LIBRARY.relative_to(ROOT).as_posix())
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform()}"


def _platform() -> str:
    """Return the last part of a wheel's name: the system the library is for."""
    from packaging.tags import platform_tags  # noqa: PLC0415 - hatchling's, not ours

    return next(iter(platform_tags()))


if __name__ == "__main__":
    if failed := compile_library():
        sys.exit(f"build_compiled: {failed}; install one, or name it with CC=")
