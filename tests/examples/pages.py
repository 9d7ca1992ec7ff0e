"""Pages whose commands are typed one after the other into a shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path


def commands(page: Path, *, but: tuple[str, ...] = ("export ",)) -> list[str]:
    """Return what a page says to type, without the lines that begin so."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.DOTALL)
    typed: list[str] = []
    for line in "\n".join(blocks).splitlines():
        if line.startswith("$ "):
            typed.append(line[2:])
        elif typed and typed[-1].endswith("\\"):
            typed[-1] = typed[-1][:-1] + line.strip()
    return [command for command in typed if not command.startswith(but)]


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return this process's environment for a shell that works with a home."""
    own = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    path = f"{Path(sys.executable).parent}:{own['PATH']}"
    return {**own, "PATH": path, "STEERSMAN_HOME": str(home), **more}


def type_in(command: str, environment: dict[str, str], folder: Path | None = None) -> str:
    """Type a command into a shell; return what it said."""
    ran = subprocess.run(
        [shutil.which("bash") or "bash", "-c", command],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
    return ran.stdout
