"""A holdout has the last word once."""

import multiprocessing
from datetime import UTC, datetime, timedelta

import pytest

from steersman.errors import DataError
from steersman_systems.rag_tuner.holdout import Holdout

NOW = datetime(2026, 11, 21, 20, 0, tzinfo=UTC)


def test_the_second_is_refused_and_told_who_was_first(tmp_path):
    holdout = Holdout(tmp_path / "holdouts")
    assert holdout.used("abc", "test") is None
    first = holdout.use("abc", "test", "run 1", at=NOW)
    assert (first.by, first.at) == ("run 1", "2026-11-21T20:00:00+00:00")
    with pytest.raises(
        DataError, match=r"judged run 1 on 2026-11-21T20:00:00\+00:00.*can be used once"
    ):
        holdout.use("abc", "test", "run 2", at=NOW)
    holdout.use("abc", "dev", "run 2", at=NOW)
    holdout.use("other", "test", "run 2", at=NOW)


def test_one_that_was_interrupted_goes_on(tmp_path):
    first = Holdout(tmp_path).use("abc", "test", "run 1", at=NOW)
    later = NOW + timedelta(hours=1)
    assert Holdout(tmp_path).use("abc", "test", "run 1", at=later) == first


def test_a_damaged_record_still_refuses(tmp_path):
    holdout = Holdout(tmp_path)
    holdout.use("abc", "test", "run 1", at=NOW)
    (file,) = tmp_path.iterdir()
    file.write_text("{")
    with pytest.raises(DataError, match="restore it"):
        holdout.use("abc", "test", "run 1", at=NOW)


def _try(folder, number):
    try:
        Holdout(folder).use("abc", "test", f"run {number}", at=NOW)
    except DataError:
        return 0
    return 1


@pytest.mark.slow
def test_of_many_at_once_one_is_first(tmp_path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert sum(pool.starmap(_try, [(tmp_path, number) for number in range(8)])) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_names_that_no_file_can_have_are_told_apart(tmp_path):
    holdout = Holdout(tmp_path)
    for split in ("test 1", "test_1", "test/1", "x" * 200, "x" * 201):
        assert holdout.used("data", split) is None
        assert holdout.use("data", split, f"run {split}", at=NOW).split == split


def test_a_record_of_before_such_names_were_told_apart_still_refuses(tmp_path):
    holdout = Holdout(tmp_path)
    holdout.use("data", "test 1", "run 1", at=NOW)
    (file,) = tmp_path.iterdir()
    file.rename(tmp_path / "data-test_1.json")
    with pytest.raises(DataError, match="judged run 1"):
        holdout.use("data", "test 1", "run 2", at=NOW)
