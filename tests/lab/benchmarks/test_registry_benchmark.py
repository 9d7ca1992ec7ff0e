"""The registry's benchmark: its peers do the same work, its parts can be named."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import registry, turns
from benchmarks.report import Options
from steersman.snapshots.merge import merge_states


def test_its_peers_merge_the_same() -> None:
    base, deltas = registry._deltas(4, 3, 6)
    merged, one_by_one = merge_states(base, deltas), registry._one_by_one(base, deltas)
    plain = registry._plain(base, deltas)
    for name in plain:
        np.testing.assert_allclose(merged[name], one_by_one[name], rtol=1e-12)
        np.testing.assert_allclose(merged[name], plain[name], rtol=1e-12)


def test_a_goal_holds_when_nearly_all_runs_reach_it() -> None:
    taken = {"ours": turns.Timing((0.1,) * 8 + (0.5,) * 2), "peer": turns.Timing((0.3,))}
    missed = turns.figure("x", taken, goal=400.0)
    assert (missed.value, missed.holds) == (100.0, False)
    assert turns.figure("x", taken, goal=501.0).holds
    assert missed.peers == {"peer": 300.0}


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(SystemExit, match=r"unknown parts \['magic'\]; known are bytes"):
        list(registry.run(Options(sets=("magic",))))


@pytest.mark.slow
def test_all_parts_run(monkeypatch) -> None:
    monkeypatch.setattr(registry, "LARGE", (8, 3))
    monkeypatch.setattr(registry, "MERGED", ((8, 3),))
    monkeypatch.setattr(registry, "DELTAS", 10)
    figures = {figure.name: figure for figure in registry.run(Options(quick=True))}
    for name in ("publish", "verify and load", "pack", "unpack", "merge of 2 deltas", "largest"):
        assert any(found.startswith(name) for found in figures), name
    assert figures["largest eigenvalue: relative error"].holds
    assert all(figure.value >= 0.0 for figure in figures.values())


def test_parts_run_alone() -> None:
    names = [figure.name for figure in registry.run(Options(sets=("measures",), quick=True))]
    assert names == ["largest eigenvalue, d=256 K=50", "largest eigenvalue: relative error"]
