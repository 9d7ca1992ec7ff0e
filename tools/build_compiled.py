"""What the build does beyond copying: compile ``gaussian_choice.c``, where there is a compiler.

pip runs this when it builds or installs the package (hatchling's custom build hook). The library is
plain C that ctypes loads: it needs no headers of Python, and one file serves all versions of it.
Without a compiler the package is the same but for that file, and numpy does that work slower.

``python -m tools.build_compiled`` compiles it again in this checkout, after a change to the C.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
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
    """Compile the library into this checkout, or say why not; none of an older source stays then.

    The old one is there until the new one is: programs that start meanwhile load it.

    Returns:
        None, or what was missing or failed.
    """
    beside = LIBRARY.with_name(LIBRARY.name + ".new")
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / LIBRARY.name
            if failed := compile_to(made):
                LIBRARY.unlink(missing_ok=True)
                return failed
            content = made.read_bytes()
        try:
            with beside.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())  # half a library would crash the process that loads it
            beside.replace(LIBRARY)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        return f"{LIBRARY.parent} cannot be written: {error}"
    return None


def compile_to(made: Path) -> str | None:
    """Compile the library to a place, or say why not.

    Args:
        made: Where it is written, in a directory that is there.

    Returns:
        None, or what was missing or failed.
    """
    wanted = shlex.split(os.environ.get("CC", "cc"))
    if not wanted or shutil.which(wanted[0]) is None:
        return f"no C compiler ({' '.join(wanted) or 'CC is empty'})"
    said: list[str] = []
    for flags in ([*FLAGS, *SIMD], FLAGS):
        command = [*wanted, *flags, str(SOURCE), "-o", str(made), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return None
        said += done.stderr.strip().splitlines()
    why = next((line for line in said if "error" in line), said[0] if said else "no word")
    return f"{' '.join(wanted)} failed: {why}"


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # compiling by hand needs no hatchling
    pass
else:

    class CompiledBuildHook(BuildHookInterface[Any]):
        """Puts the library into the wheel, which is then for one kind of system.

        A wheel for elsewhere leaves the checkout as it is; an editable one loads what is there.
        """

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Compile before files are collected; ``version`` is "standard" or "editable"."""
            if self.target_name != "wheel":
                return
            self._folder = tempfile.TemporaryDirectory()  # until the wheel is written
            made = Path(self._folder.name) / LIBRARY.name
            failed = compile_library() if version == "editable" else compile_to(made)
            if failed:
                self.app.display_warning(f"steersman: pure Python, as there is {failed}")
            elif version != "editable":
                place = LIBRARY.relative_to(ROOT / "src").as_posix()
                build_data["force_include"][str(made)] = place
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{_platform()}"

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            """Take away what was compiled for the wheel."""
            del version, build_data, artifact_path
            if self.target_name == "wheel":
                self._folder.cleanup()


def _platform() -> str:
    """Return the last part of a wheel's name: the system the library is for."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


if __name__ == "__main__":
    if failed := compile_library():
        sys.exit(f"build_compiled: {failed}; install one, or name it with CC=")
