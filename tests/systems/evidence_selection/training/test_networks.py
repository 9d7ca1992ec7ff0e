"""Network training: learning, start from a base policy, and handling of invalid losses."""

from dataclasses import replace

import numpy as np
import pytest

from lab.evidence_worlds import COLUMNS, made_up
from steersman.errors import InputError
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.sequence import StepRule
from steersman_systems.evidence_selection.training.examples import Examples
from steersman_systems.evidence_selection.training.raft import RaftSettings, raft
from steersman_systems.evidence_selection.training.task import walks

torch = pytest.importorskip("torch", reason="needs the extra rl")

from steersman_systems.evidence_selection.training.network import (  # noqa: E402 - after torch was found
    RAFT_NETWORK,
    NetworkOnTop,
    NetworkSettings,
    PaddedSteps,
    RowNetwork,
    _descend,
    _steps,
    clone_network,
    scale_of,
    train,
)

QUICK = NetworkSettings(updates=300, learning_rate=3e-3, hidden=16, batch=32)


def _examples(seed=0, steps=200):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 9, steps)
    rows = rng.normal(size=(int(sizes.sum()), 4))
    targets, place = np.zeros(len(rows)), 0
    for size in sizes:
        worth = rows[place : place + size, 0] - 2 * np.abs(rows[place : place + size, 1])
        targets[place + int(worth.argmax())] = 1.0
        place += size
    return Examples(rows, targets, np.ones(len(rows)), sizes)


def _hits(scorer, examples):
    scores, place, right = scorer.scores(examples.rows), 0, 0
    for size in examples.sizes:
        part = slice(place, place + size)
        right += scores[part].argmax() == examples.targets[part].argmax()
        place += size
    return right / len(examples)


@pytest.mark.slow
def test_it_learns_which_action_of_a_step_is_right():
    found = train(_examples(), QUICK)
    assert _hits(found, _examples(seed=1)) > 0.85


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes():
    one, other = (train(_examples(), QUICK, seed=2).state() for _ in range(2))
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def _descended(mixed):
    """Train as `train` does; return the scorer and the dtypes of layers and weights."""
    examples, device, seen = _examples(), torch.device("cpu"), set()
    steps, wanted = _steps(examples)
    padded = PaddedSteps.of(steps, None, device)
    right = torch.zeros(padded.there.shape, dtype=torch.float64)
    for place, one in enumerate(wanted):
        right[place, : len(one)] = torch.from_numpy(one)
    generator = torch.Generator().manual_seed(0)
    network = RowNetwork(*scale_of(examples.rows), 16, 2, generator)
    for layer in network.layers:
        layer.register_forward_hook(
            lambda module, _, out: seen.add((module.weight.dtype, out.dtype))
        )
    _descend(network, padded, right, QUICK, generator, mixed=mixed)
    return network.scorer(), seen


@pytest.mark.slow
def test_mixed_precision_computes_in_sixteen_bits_and_learns_as_well():
    """On the CPU, whose autocast behaves like that of CUDA."""
    whole, types = _descended(mixed=False)
    assert types == {(torch.float64, torch.float64)}
    halved, types = _descended(mixed=True)
    assert types == {(torch.float32, torch.bfloat16)}
    fresh = _examples(seed=1)
    assert _hits(halved, fresh) > 0.85
    assert halved.scores(fresh.rows).dtype == np.float64
    assert not np.allclose(halved.scores(fresh.rows), whole.scores(fresh.rows), atol=1e-9)


@pytest.mark.slow
def test_mixed_precision_is_for_cuda_alone():
    one, other = (
        train(_examples(), replace(QUICK, device="cpu", mixed_precision=mixed)).state()
        for mixed in (True, False)
    )
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_mixed_precision_learns_as_well():
    found = train(_examples(), replace(QUICK, device="cuda", mixed_precision=True))
    assert _hits(found, _examples(seed=1)) > 0.85


@pytest.mark.slow
def test_on_top_of_a_start_it_begins_with_it_and_betters_it():
    start = NetworkScorer.linear(np.array([1.0, 0.0, 0.0, 0.0]))
    still = train(_examples(), NetworkSettings(updates=1, learning_rate=1e-30), start=start)
    rows = np.random.default_rng(0).normal(size=(30, 4))
    assert np.allclose(still.scores(rows), start.scores(rows), atol=1e-12)
    found = train(_examples(), QUICK, start=start)
    fresh = _examples(seed=1)
    assert _hits(found, fresh) > _hits(start, fresh) + 0.1


def _once(how):
    """Make one update as `train` does; return its gradient norm and the result."""
    steps, wanted = _steps(_examples())
    padded = PaddedSteps.of(steps, None, torch.device("cpu"))
    right = torch.zeros(padded.there.shape, dtype=torch.float64)
    for place, one in enumerate(wanted):
        right[place, : len(one)] = torch.from_numpy(one)
    generator = torch.Generator().manual_seed(0)
    network = RowNetwork(*scale_of(_examples().rows), 16, 2, generator)
    _descend(network, padded, right, replace(how, updates=1), generator, mixed=False)
    gradient = torch.cat([one.grad.flatten() for one in network.parameters()])
    return float(gradient.norm()), network.scorer()


def test_gradients_that_are_added_up_are_those_of_one_larger_batch():
    whole, large = _once(replace(QUICK, batch=32, max_norm=1e9))
    parts, small = _once(replace(QUICK, batch=8, accumulate=4, max_norm=1e9))
    assert parts == pytest.approx(whole, rel=1e-9)
    rows = _examples().rows
    assert np.allclose(small.scores(rows), large.scores(rows), atol=1e-9)


def test_gradients_that_are_too_long_are_cut():
    whole, _ = _once(replace(QUICK, max_norm=1e9))
    cut, _ = _once(replace(QUICK, max_norm=whole / 3))
    assert cut == pytest.approx(whole / 3, rel=1e-4)


def test_a_loss_that_is_no_number_stops_the_training():
    wild = NetworkSettings(updates=20, learning_rate=1e308, max_norm=1e300, warm_up=0.0)
    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        train(_examples(), wild)


def test_raft_with_a_diverging_network_keeps_what_it_had():
    start = NetworkScorer.linear(np.zeros(len(COLUMNS)))
    wild = NetworkOnTop(NetworkSettings(updates=20, learning_rate=1e308, warm_up=0.0))
    settings = RaftSettings(rounds=2, each=4, rule=StepRule(20, 1.0, 0.1))
    found = raft(made_up(10, seed=0), start, settings, tune=wild)
    assert (found.stopped, found.scorer) == ("not finite", start)


@pytest.mark.slow
def test_a_network_clones_an_expert():
    class Knowing:
        def labels(self, task, state, options):
            wanted = [one for one in (task.bridge, task.target) if one not in state[0]]
            name = f"c{wanted[0]}" if wanted else "stop"
            return (np.array(options.names) == name).astype(float)

    start = NetworkScorer.linear(np.zeros(len(COLUMNS)))
    found = clone_network(made_up(60, seed=1), Knowing(), QUICK, beside=start)
    fresh = walks(made_up(60, seed=2), found, StepRule(20, 0.0, 0.0), each=1, seed=0)
    assert np.mean([one.reward for one in fresh]) > 0.8


def test_defaults_are_those_asked_for():
    how = NetworkSettings()
    assert (how.batch, how.learning_rate, how.warm_up, how.updates) == (64, 3e-5, 0.1, 20_000)
    assert (RAFT_NETWORK.batch, RAFT_NETWORK.learning_rate) == (32, 2e-5)
    assert RAFT_NETWORK.accumulate > 1
    assert RAFT_NETWORK.mixed_precision


def test_steps_without_a_right_action_are_refused():
    nothing = Examples(np.ones((2, 4)), np.zeros(2), np.ones(2), np.array([2]))
    with pytest.raises(InputError, match="correct action"):
        train(nothing, QUICK)
    for wrong in ({"hidden": 0}, {"updates": 0}, {"warm_up": 1.0}, {"learning_rate": 0.0}):
        with pytest.raises(InputError):
            NetworkSettings(**wrong)
