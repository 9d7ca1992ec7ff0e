"""The made-up world's optimum is known: every selection of a question is tried."""

import numpy as np
import pytest

from lab.evidence_worlds import BEST, COLUMNS, made_up
from steersman.errors import InputError


def test_the_best_selection_is_bridge_then_target():
    for task in made_up(5, seed=3, candidates=6):
        worths = {picked: task.worth(picked) for picked in task.every()}
        assert max(worths.values()) == pytest.approx(BEST)
        best = [picked for picked, worth in worths.items() if worth > BEST - 1e-9]
        assert best == [(task.bridge, task.target)]
        assert min(worths.values()) >= 0.0


def test_the_target_cannot_be_told_before_the_bridge():
    task = made_up(1, seed=0)[0]
    before = task.options(task.begin())
    assert before.rows[:-1, COLUMNS.index("named")].max() == 0.0
    after = task.options(((task.bridge,), False))
    assert after.rows[:-1, COLUMNS.index("named")].sum() == 2.0


def test_it_ends_by_stop_and_by_picks():
    task = made_up(1, seed=0)[0]
    options = task.options(task.begin())
    assert options.names[-1] == "stop"
    assert task.options(task.take(task.begin(), len(options.names) - 1)) is None
    assert task.options(((0, 1, 2, 3), False)) is None
    assert task.potential(task.begin()) == 0.0


def test_the_seed_alone_makes_it():
    one, other = (made_up(3, seed=5) for _ in range(2))
    assert all(np.array_equal(a.rows, b.rows) for a, b in zip(one, other, strict=True))
    for wrong in ((0, 10), (1, 3), (1, 101)):
        with pytest.raises(InputError):
            made_up(wrong[0], seed=0, candidates=wrong[1])
