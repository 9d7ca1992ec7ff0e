"""Code where torch is not installed, as in a fresh checkout."""

from __future__ import annotations

import subprocess
import sys

_BLOCKED = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
"""


def without_torch(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that cannot import torch, and return what it said."""
    return subprocess.run(
        [sys.executable, "-c", _BLOCKED + code], capture_output=True, text=True, check=False
    )
