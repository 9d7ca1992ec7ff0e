"""Build hook: compiles ``gaussian_choice.c`` if a compiler is available.

pip runs this when it builds or installs the package (hatchling's custom build hook). ctypes loads
the library: it is plain C without Python headers, so one file works with all versions of Python.
Without a compiler the file is missing, and numpy does its work slower.

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
LIBRARY = SOURCE.with_name("_gaussian_choice.so")  # the same name on every system, for ctypes
# The last two allow vector code, which traps and errno prevent.
FLAGS = ["-O3", "-fPIC", "-shared", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
SIMD = ["-fopenmp-simd"]  # sums and products in any order, where the source allows it


def compile_library() -> str | None:
    """Compile the library into this checkout; on failure delete an outdated one.

    The old library stays until the new one is ready, for programs that start meanwhile.

    Returns:
        None, or the reason of the failure.
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
                os.fsync(stream.fileno())  # an incomplete library would crash its users
            beside.replace(LIBRARY)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        return f"{LIBRARY.parent} cannot be written: {error}"
    return None


def compile_to(made: Path) -> str | None:
    """Compile the library to a path.

    Args:
        made: Output file in an existing directory.

    Returns:
            None, or the reason of the failure.
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
except ImportError:  # without hatchling, only for compiling by hand
    pass
else:

    class CompiledBuildHook(BuildHookInterface[Any]):
        """Build hook that adds the library to the wheel, which is then platform-specific.

        A normal wheel does not change the checkout; an editable one uses its library.
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
            """Delete the library compiled for the wheel."""
            del version, build_data, artifact_path
            if self.target_name == "wheel":
                self._folder.cleanup()


def _platform() -> str:
    """Return the platform tag of the wheel."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


if __name__ == "__main__":
    if failed := compile_library():
        sys.exit(f"build_compiled: {failed}; install one, or name it with CC=")
