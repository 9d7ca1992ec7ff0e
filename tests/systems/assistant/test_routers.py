"""Other people's routing data in the world's shape; skipped where the data is not there."""

import os
from pathlib import Path

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman.systems.assistant.routers import load_router

pytest.importorskip("pyarrow")

from pyarrow import Table, parquet


@pytest.fixture
def load():
    folder = os.environ.get("STEERSMAN_DATA")

    def loader(name, **options):
        if folder is None or not (Path(folder) / name).is_dir():
            pytest.skip(f"set STEERSMAN_DATA to a directory that holds {name}")
        return load_router(name, Path(folder), **options)

    return loader


def test_routerbench_has_the_figures_it_was_published_with(load):
    world = load("routerbench_subset", usd_price=0.0)
    test = world.rewards[~world.train]
    assert world.rewards.shape == (3178, 11)
    assert test[:, world.names.index(world.best_fixed())].mean() == pytest.approx(0.8741, abs=1e-4)
    assert world.oracle() == pytest.approx(0.9738, abs=1e-4)
    assert 1000 * world.costs_usd[~world.train].mean(axis=0).max() == pytest.approx(5.033, abs=1e-3)


def test_routerbench_charges_prices(load):
    free, priced = load("routerbench_subset", usd_price=0.0), load("routerbench_subset")
    np.testing.assert_allclose(free.rewards - priced.rewards, 20.0 * free.costs_usd)


def test_llmrouter_has_the_figures_it_was_published_with(load):
    world = load("llmrouter_dc")
    test = world.rewards[~world.train]
    assert len(test) == 500
    assert test[:, world.names.index(world.best_fixed())].mean() == pytest.approx(0.5626, abs=1e-4)
    assert world.oracle() == pytest.approx(0.7434, abs=1e-4)
    assert all(world.descriptions)


def test_metatool_knows_every_tool(load):
    world = load("metatool")
    assert world.rewards.shape == (20614, 199)
    assert (world.rewards.sum(axis=1) == 1).all()
    assert all(world.descriptions)
    assert 0.78 < world.train.mean() < 0.82


@pytest.fixture
def small(tmp_path):
    folder = tmp_path / "routerbench_subset"
    folder.mkdir()
    rows = {
        "prompt": ["a", "b", "c"],
        "eval_name": ["x", "x", "y"],
        "split": ["train", "train", "test"],
        "m1|score": [1.0, 1.0, None],
        "m1|cost": [0.01, 0.01, 0.01],
        "m2|score": [0.0, 0.5, 1.0],
        "m2|cost": [0.0, 0.0, 0.0],
    }
    parquet.write_table(Table.from_pydict(rows), folder / "routerbench_zs_subset.parquet")
    return tmp_path


def test_any_data_in_the_format_can_be_named(small):
    world = load_router("routerbench_subset", small, usd_price=10.0)
    np.testing.assert_allclose(world.rewards, [[0.9, 0.0], [0.9, 0.5], [-0.1, 1.0]])
    assert world.names == ("m1", "m2")
    assert world.best_fixed() == "m1"
    assert world.oracle() == 1.0
    assert world.contexts[2] == {"text": "c", "task": "y"}


def test_missing_and_damaged_data_say_what_to_do(small, tmp_path):
    with pytest.raises(DataError, match="repository of RouterDC"):
        load_router("routerbench_subset", tmp_path / "elsewhere")
    (small / "routerbench_subset" / "routerbench_zs_subset.parquet").write_bytes(b"no table")
    with pytest.raises(DataError, match="not a Parquet file"):
        load_router("routerbench_subset", small)


def test_other_columns_are_refused(small):
    path = small / "routerbench_subset" / "routerbench_zs_subset.parquet"
    parquet.write_table(Table.from_pydict({"other": [1]}), path)
    with pytest.raises(DataError, match="expected format"):
        load_router("routerbench_subset", small)


def test_unknown_names_and_prices_are_refused(small):
    with pytest.raises(InputError, match="allowed: routerbench_subset, llmrouter_dc, metatool"):
        load_router("other", small)
    with pytest.raises(InputError, match="usd_price"):
        load_router("routerbench_subset", small, usd_price=float("nan"))
