"""Proximal policy optimisation over mixed actions; needs the extra ``rl``."""

from __future__ import annotations

from steersman.errors import DataError
from steersman.errors.installing import how_to_install

try:
    import torch  # noqa: F401 - checked once, with an install hint
except ImportError as missing:
    _MESSAGE = "PPO needs the package torch; install it with: "
    raise DataError(_MESSAGE + how_to_install("rl")) from missing

from steersman.learn.ppo.advantages import advantages
from steersman.learn.ppo.agent import PPO, Steps, Update
from steersman.learn.ppo.parts import Drawn, Part, draw
from steersman.learn.ppo.rllib import Updated, train_rllib
from steersman.learn.ppo.settings import Settings
from steersman.learn.ppo.stage import Stage

__all__ = [
    "PPO",
    "Drawn",
    "Part",
    "Settings",
    "Stage",
    "Steps",
    "Update",
    "Updated",
    "advantages",
    "draw",
    "train_rllib",
]
