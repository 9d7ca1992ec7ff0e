"""Build hook: adds the configuration files of the systems to the sdist and the wheel.

They are in ``configs`` of the checkout, beside this folder. An sdist already holds them inside the
package, so a wheel built from an sdist finds them there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CONFIGS = ("assistant", "evidence", "interrogator", "pipelines", "rag", "rl")


class ConfigsBuildHook(BuildHookInterface[Any]):
    """Build hook that adds the configuration files of a checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folders, unless this is an unpacked sdist."""
        del version
        if (Path(self.root) / "PKG-INFO").exists():
            return
        for name in CONFIGS:
            folder = Path(self.root).parent / "configs" / name
            build_data["force_include"][str(folder)] = f"steersman_systems/configs/{name}"
