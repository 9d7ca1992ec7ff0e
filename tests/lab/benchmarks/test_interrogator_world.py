import numpy as np
import pytest

from benchmarks.interrogator_world import REGIONS, SIZE, World, visit
from steersman_systems.interrogator.point import load_point
from steersman_systems.interrogator.questions import load_questions


@pytest.fixture(scope="module")
def world():
    return World.draw(50, np.random.default_rng(1))


def test_one_question_is_best_in_each_region(world):
    assert world.gains.shape == (REGIONS, 50)
    best = np.sort(world.gains, axis=1)[:, -3:]
    assert best.tolist() == [[0.06, 0.06, 0.12]] * REGIONS


def test_targets_lie_nearest_to_the_centre_of_their_region(world):
    for region, context in world.visits(np.random.default_rng(2), 200):
        assert context["target"].shape == (SIZE,)
        assert np.argmax(world.centres @ context["target"]) == region


@pytest.mark.slow
def test_the_oracle_is_ahead_of_everyone_and_a_seed_gives_the_same_again():
    point = load_point(load_questions())
    shares, again = (visit(point, 3, steps=60) for _ in range(2))
    assert set(shares.oracle) == {0.12}
    for name, gained in shares.gained.items():
        assert (gained <= shares.oracle).all()
        assert gained.tolist() == again.gained[name].tolist()
    mean = (0.12 + 2 * 0.06 + 47 * 0.01) / 50
    assert shares.last("uniform", 60) == pytest.approx(mean / 0.12)
