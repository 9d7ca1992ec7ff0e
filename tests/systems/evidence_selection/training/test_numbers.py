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


@pytest.mark.parametrize(
    ("kind", "field", "value", "allowed"),
    [
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
    ],
)
def test_a_number_that_is_none_or_out_of_range_is_named(kind, field, value, allowed):
    with pytest.raises(InputError, match=f"{field} is .*; allowed are {allowed}"):
        kind(**{field: value})


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(InputError, match=r"clip is 2.0; .*; epochs is 0; "):
        Settings(clip=2.0, epochs=0)


def test_numbers_of_arrays_are_numbers():
    assert Settings(epochs=np.int64(3), clip=np.float64(0.1)).epochs == 3


def test_one_part_judges_nothing():
    with pytest.raises(InputError, match="crossed is 1"):
        RaftSettings(crossed=1)
