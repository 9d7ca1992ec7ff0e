"""Training checkpoints: retention, completeness and rejection of other runs."""

import numpy as np
import pytest

from steersman.errors import DataError
from steersman_systems.evidence_selection.training.checkpoints import Checkpoints
from tests.faults.harness import small_disk


def test_the_last_round_comes_back_and_old_ones_go(tmp_path):
    folder = tmp_path / "new" / "run"
    kept = Checkpoints(folder, {"seed": 1}, kept=2)
    assert kept.last() is None
    for number in range(4):
        kept.save(number, {"a": np.array([number, 7.0])})
    assert kept.numbers() == [2, 3]
    number, arrays = Checkpoints(folder, {"seed": 1}).last()
    assert (number, arrays["a"].tolist()) == (3, [3.0, 7.0])
    assert not list(folder.glob("*.new"))


def test_what_differs_from_the_run_before_is_named(tmp_path):
    Checkpoints(tmp_path, {"seed": 1, "tasks": ["a"], "log": None})
    with pytest.raises(
        DataError, match=r"with other settings: log was null and is 3, seed was 1 and"
    ):
        Checkpoints(tmp_path, {"seed": 2, "tasks": ["a"], "log": 3})
    (tmp_path / "run.json").write_text("torn")
    with pytest.raises(DataError, match=r"its run\.json is torn"):
        Checkpoints(tmp_path, {"seed": 1})


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match="choose another folder"):
        Checkpoints(tmp_path / "file", {})


def test_a_damaged_round_is_named(tmp_path):
    kept = Checkpoints(tmp_path, {})
    kept.save(5, {"a": np.zeros(3)})
    (tmp_path / "round-000005.safetensors").write_bytes(b"torn")
    with pytest.raises(DataError, match="delete it"):
        kept.last()


def test_a_round_for_which_there_is_no_room_leaves_those_before_it(tmp_path):
    with small_disk(tmp_path / "disk", 1):
        kept = Checkpoints(tmp_path / "disk", {})
        kept.save(0, {"a": np.zeros(50_000)})
        with pytest.raises(DataError, match=r"cannot save round 1 in .*free space there and run"):
            kept.save(1, {"a": np.zeros(150_000)})
        assert not list((tmp_path / "disk").glob("*.new"))
        assert Checkpoints(tmp_path / "disk", {}).last()[0] == 0
        kept.save(1, {"a": np.ones(50_000)})
        assert kept.last()[0] == 1


def test_an_old_round_that_cannot_go_is_named_and_the_new_one_is_kept(tmp_path):
    kept = Checkpoints(tmp_path, {}, kept=1)
    (tmp_path / "round-000001.safetensors").mkdir()
    with pytest.raises(
        DataError, match=r"round-000001.* .*delete it and run this again; round 9 was saved"
    ):
        kept.save(9, {"a": np.zeros(3)})
    assert kept.last()[0] == 9
