"""Other people's routing data in the world's shape; skipped where the data is not there."""

import os
from pathlib import Path

import numpy as np
import pytest

from steersman.errors import DataError, InputError
from steersman_systems.assistant.routers import load_router

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


FORMATS = {
    "routerbench_subset": {
        "prompt": ["ü", "b"], "eval_name": ["x", "x"], "split": ["train", "test"],
        "m|score": [1.0, 0.0], "m|cost": [0.01, 0.01],
    },
    "llmrouter_dc": {
        "split": ["train", "test"], "question": ["ü", "b"], "task_name": ["x", "y"],
        "m": [1.0, 0.0],
    },
    "metatool": {"query": ["ü", "b"], "tool": ["m", "m"]},
}  # fmt: skip


def write(folder, rows, name="rows.parquet"):
    folder.mkdir(exist_ok=True)
    parquet.write_table(Table.from_pydict(rows), folder / name)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_folder_of_another_name_is_read_by_its_columns(tmp_path, kind):
    write(tmp_path / "held_back", FORMATS[kind])
    world = load_router("held_back", tmp_path, usd_price=10.0)
    assert (world.name, world.names, world.texts) == ("held_back", ("m",), ("ü", "b"))
    assert world.rewards.shape == (2, 1)
    assert (world.costs_usd is not None) == (kind == "routerbench_subset")
    (tmp_path / kind).mkdir()
    with pytest.raises(DataError, match="is missing; copy it from"):
        load_router(kind, tmp_path)


@pytest.mark.parametrize(
    ("kind", "change", "told"),
    [
        ("routerbench_subset", {"prompt": ["a", None]}, "row 2 is None; expected a text"),
        ("routerbench_subset", {"m|score": [1.0, float("inf")]}, "infinite number in m.score"),
        ("llmrouter_dc", {"split": ["train", "train"]}, "all 2 rows are in the train split"),
        ("llmrouter_dc", {"split": ["dev", "test"]}, "all 2 rows are in the test split"),
        ("metatool", {"tool": ["m", None]}, "row 2 is None; expected a text"),
    ],
)
def test_what_cannot_be_learned_from_is_named(tmp_path, kind, change, told):
    write(tmp_path / "own", FORMATS[kind] | change)
    with pytest.raises(DataError, match=told):
        load_router("own", tmp_path)


def test_folders_that_hold_no_such_table_are_told_what_would_be_read(tmp_path):
    write(tmp_path / "own", {"a": [1]})
    with pytest.raises(DataError, match="a table with the columns a; expected the columns of"):
        load_router("own", tmp_path)
    write(tmp_path / "own", {"query": ["a"], "tool": ["m"]}, "more.parquet")
    with pytest.raises(DataError, match="has 2 Parquet files; expected one"):
        load_router("own", tmp_path)
    write(tmp_path / "empty", {"query": [], "tool": []})
    with pytest.raises(DataError, match="has no rows"):
        load_router("empty", tmp_path)
    (tmp_path / "empty" / "rows.parquet").write_bytes(b"PAR1" + bytes(50) + b"PAR1")
    with pytest.raises(DataError, match="is not a Parquet file"):
        load_router("empty", tmp_path)


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
