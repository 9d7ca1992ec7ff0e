"""The learning benchmark takes any routing set that is loaded, and knows which goal is whose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import learning
from benchmarks.report import Options
from steersman.errors import DataError
from steersman_systems.assistant.routers import RouterWorld

if TYPE_CHECKING:
    from pathlib import Path


def routing_set(name: str, *, priced: bool) -> RouterWorld:
    """Return 300 short texts whose first word tells which of two choices is right."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 2, 300)
    texts = tuple(f"{('sum', 'rhyme')[kind]} number {i % 7}" for i, kind in enumerate(kinds))
    rewards = np.eye(2)[kinds]
    return RouterWorld(
        name=name,
        texts=texts,
        contexts=tuple({"text": text} for text in texts),
        rewards=rewards,
        names=("calculator", "poet"),
        train=np.arange(300) < 100,
        costs_usd=np.zeros((300, 2)) if priced else None,
    )


@pytest.mark.parametrize(
    ("name", "priced", "unit", "holds"),
    [
        ("routerbench_subset", True, "score - 20 USD", True),
        ("llmrouter_dc", False, "score", None),
    ],
)
def test_a_routing_set_is_named_with_its_unit_and_its_goal(
    monkeypatch: pytest.MonkeyPatch, name: str, unit: str, *, priced: bool, holds: bool | None
) -> None:
    monkeypatch.setattr(learning, "_router", lambda name, _: routing_set(name, priced=priced))
    (figure,) = learning.run(Options(sets=(name,), quick=True))
    assert figure.name.startswith(f"{name}: ")
    assert (figure.unit, figure.holds) == (unit, holds)
    assert figure.low is not None
    assert figure.low > 0.2  # one fixed choice is right half of the time


def write_table(folder: Path, rows: dict[str, list[object]]) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import Table, parquet  # noqa: PLC0415 - an extra

    folder.mkdir()
    parquet.write_table(Table.from_pydict(rows), folder / "rows.parquet")


def test_folders_of_any_name_are_measured_by_the_format_they_are_in(tmp_path: Path) -> None:
    world = routing_set("own", priced=False)
    splits = ["train" if one else "test" for one in world.train]
    told: dict[str, list[object]] = {"question": list(world.texts), "task_name": ["x"] * 300}
    scores = {name: world.rewards[:, k].tolist() for k, name in enumerate(world.names)}
    (tmp_path / "held").mkdir()
    write_table(tmp_path / "held" / "mine", {"split": splits, **told, **scores})
    tools = [world.names[int(k)] for k in world.rewards.argmax(axis=1)]
    write_table(tmp_path / "plugins", {"query": list(world.texts), "tool": tools})
    options = Options(data=tmp_path, sets=("held/mine", "plugins"), quick=True)
    routed, chosen = learning.run(options)
    assert routed.name.startswith("mine: BoundedLinUCB")
    assert (routed.unit, routed.holds) == ("score", None)
    assert routed.value > 0.2
    assert chosen.name.startswith("plugins: JointSquareCB")
    assert chosen.value > 0.7
    assert set(chosen.peers) == {"last fifth of the stream"}


def test_a_name_that_is_neither_folder_nor_table_is_told(tmp_path: Path) -> None:
    (tmp_path / "uci").mkdir()
    with pytest.raises(DataError, match=r"neither a folder of .* nor a uci/nowhere\.csv"):
        list(learning.run(Options(data=tmp_path, sets=("nowhere",), quick=True)))
