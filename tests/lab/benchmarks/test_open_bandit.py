"""Logs of the Open Bandit Dataset: any campaign, and nothing passed over in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import ope, policies, service
from benchmarks.open_bandit import load_log
from benchmarks.report import Options
from steersman.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

HEADINGS = ",timestamp,item_id,position,click,propensity_score"


def write(data: Path, policy: str, rows: str, *, campaign: str = "women", items: int = 5) -> Path:
    folder = data / "obd_small" / policy / campaign
    folder.mkdir(parents=True, exist_ok=True)
    affinities = "".join(f",user-item_affinity_{item}" for item in range(items))
    (folder / f"{campaign}.csv").write_text(f"{HEADINGS}{affinities}\n{rows}", encoding="utf-8")
    context = "item_id\n" + "".join(f"{item}\n" for item in range(7))
    (folder / "item_context.csv").write_text(context, encoding="utf-8")
    return data / "obd_small"


def rows_of(count: int, *, propensity: str = "0.2") -> str:
    return "".join(f"{i},t,{i % 5},1,{int(i % 7 == 0)},{propensity}\n" for i in range(count))


def test_a_campaign_has_as_many_items_as_its_log_or_its_items_say(tmp_path: Path) -> None:
    folder = write(tmp_path, "random", "0,t,4,1,1,0.2\n")
    log = load_log(folder, "random", "women")
    assert (log.actions, log.items.tolist(), log.clicks.tolist()) == (5, [4], [1.0])
    assert log.items.dtype == np.int64
    write(tmp_path, "random", "0,t,6,1,1,0.2\n", items=0)
    assert load_log(folder, "random", "women").actions == 7


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("", "holds no row"),
        ("0,t,5,1,0,0.2\n", "row 1 below the headings: item_id '5'.*items 0 to 4"),
        ("0,t,1.5,1,0,0.2\n", "item_id '1.5'"),
        ("0,t,,1,0,0.2\n", "item_id ''"),
        ("0,t,1,1,2,0.2\n", "click '2'"),
        ("0,t,1,1,0,nan\n", "propensity_score 'nan'"),
        ("0,t,1,1,0,0\n", r"propensity_score '0'; .*propensities in \(0, 1\]"),
        ("0,t,1\n", "click 'absent'"),
    ],
)
def test_what_cannot_be_is_named_by_row(tmp_path: Path, row: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        load_log(write(tmp_path, "random", row), "random", "women")


def test_an_empty_file_and_one_without_a_column_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path, "random", "")
    file = folder / "random" / "women" / "women.csv"
    file.write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=r"women\.csv is empty"):
        load_log(folder, "random", "women")
    file.write_text("item_id,click\n1,0\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no column propensity_score"):
        load_log(folder, "random", "women")


def test_any_campaign_can_be_named_and_one_that_is_absent_is_told(tmp_path: Path) -> None:
    for policy in ("random", "bts"):
        write(tmp_path, policy, rows_of(1000))
    options = Options(data=tmp_path, sets=("women",), quick=True)
    ((name, pair),) = ope._logs(options).items()
    figures = {one.name: one for one in ope._open_bandit(name, *pair)}
    assert set(figures) == {f"{one}, obd_small women, random -> bts"
                            for one in ("ips", "snips", "dm", "dr")}  # fmt: skip
    assert all(one.holds for one in figures.values())
    with pytest.raises(DataError, match=r"men\.csv is missing"):
        next(ope.run(Options(data=tmp_path, sets=("women", "men"), quick=True)))
    with pytest.raises(DataError, match="no data directory was named"):
        next(ope.run(Options(sets=("women",), quick=True)))


def test_a_log_that_is_refused_is_told_with_its_reasons(tmp_path: Path) -> None:
    for policy in ("random", "bts"):
        write(tmp_path, policy, rows_of(40))
    ((name, pair),) = ope._logs(Options(data=tmp_path, sets=("women",))).items()
    (figure,) = ope._open_bandit(name, *pair)
    assert "refused, Too little overlap" in figure.name
    assert np.isnan(figure.value)


def test_closed_forms_are_only_told_of_logs_that_draw_alike(tmp_path: Path) -> None:
    for policy in ("random", "bts"):
        write(tmp_path, policy, rows_of(1000, propensity="0.21"))
    ((name, pair),) = ope._logs(Options(data=tmp_path, sets=("women",))).items()
    for figure in ope._open_bandit(name, *pair):
        assert (figure.goal, figure.holds) == (None, None)


def test_sets_that_no_benchmark_knows_are_refused() -> None:
    with pytest.raises(DataError, match="unknown set 64x4; known are 64x3, 256x50, 64x1000"):
        next(policies.run(Options(sets=("64x4",))))
    with pytest.raises(DataError, match="unknown set nope; known are single"):
        service.main(Options(sets=("nope",)))
