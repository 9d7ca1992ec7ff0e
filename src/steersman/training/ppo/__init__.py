"""Proximal policy optimisation over mixed actions; needs the extra ``rl``."""

from __future__ import annotations

from steersman.errors import DataError
from steersman.errors.install_hint import how_to_install

try:
    import torch  # noqa: F401 - the import fails here, with the command that installs it
except ImportError as missing:
    _MESSAGE = "PPO needs the package torch; install it with: "
    raise DataError(_MESSAGE + how_to_install("rl")) from missing
