"""Range checks reject non-numeric and fractional settings."""

import math

import numpy as np
import pytest

pytest.importorskip("torch")

from steersman.errors import InputError
from steersman.training.ppo.settings import Settings
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.training.behaviour_cloning import CloneSettings
from steersman_systems.evidence_selection.training.network import NetworkSettings
from steersman_systems.evidence_selection.training.ppo import PpoSettings
from steersman_systems.evidence_selection.training.raft import RaftSettings
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings

OUT_OF_RANGE = [
    (Settings, "epochs", 2.5, "whole numbers >= 1"),
    (Settings, "learning_rate", math.inf, "finite numbers > 0"),
    (Settings, "gamma", math.nan, r"finite numbers \[0, 1\]"),
    (PpoSettings, "minibatch", 0, "whole numbers >= 1"),
    (PpoSettings, "clip", 1.0, r"finite numbers \(0, 1\)"),
    (PpoSettings, "max_norm", math.inf, "finite numbers > 0"),
    (RaftSettings, "rounds", 1.5, "whole numbers >= 1"),
    (RaftSettings, "regression", math.inf, "finite numbers >= 0"),
    (RaftSettings, "held_out", 0.51, r"finite numbers \(0, 0.5\]"),
    (TreeSettings, "trees", True, r"whole numbers \[1, 2000\]"),
    (TreeSettings, "ridge", math.inf, "finite numbers >= 0"),
    (CloneSettings, "others", 2.5, "whole numbers >= 2"),
    (NetworkSettings, "updates", "many", "whole numbers >= 1"),
    (NetworkSettings, "learning_rate", None, "finite numbers > 0"),
    (Limits, "tokens", 10.5, "whole numbers >= 1"),
    (Limits, "picks", 9, r"whole numbers \[1, 8\]"),
    (Environment, "confident", math.nan, r"finite numbers \(0, 1\]"),
]


@pytest.mark.parametrize(
    ("kind", "numbers", "says"),
    [
        *(
            (kind, {field: value}, f"{field} is .*; allowed are {allowed}")
            for kind, field, value, allowed in OUT_OF_RANGE
        ),
        (Settings, {"clip": 2.0, "epochs": 0}, r"clip is 2.0; .*; epochs is 0; "),
        (RaftSettings, {"crossed": 1}, "crossed is 1"),  # one part judges nothing
    ],
)
def test_settings_with_bad_numbers_names_every_one(kind, numbers, says):
    with pytest.raises(InputError, match=says):
        kind(**numbers)


def test_numbers_of_arrays_are_numbers():
    assert Settings(epochs=np.int64(3), clip=np.float64(0.1)).epochs == 3
