"""RLlib adapters: network, distributions, learning rate and checkpoints.

On a cluster with a lost node: ``tests/deploy/test_ray.py``.
"""

import copy
import re
import sys
from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from steersman.errors import DataError, InputError, StateError
from steersman.errors.install_hint import how_to_install
from steersman.training.ppo.action_parts import Part, Stage
from steersman.training.ppo.agent import PPO
from steersman.training.ppo.rllib import _about, _read, _write, train_rllib
from steersman.training.ppo.settings import Settings, following

PARTS = (Part("switch", 2), Part("k", 11, ordered=True), Part("again", 3))


@dataclass
class Played:
    state: np.ndarray
    reward: float
    last: bool


class World:
    """Two kinds of state; the switch must match the kind."""

    def reset(self, rng):
        self.rng, self.left = rng, 4
        return self._drawn()

    def step(self, values):
        reward, self.left = float(values[0] == self.kind), self.left - 1
        return Played(self._drawn(), reward, not self.left)

    def _drawn(self):
        self.kind = int(self.rng.integers(2))
        return np.eye(2)[self.kind]


STAGE = Stage(World(), np.asarray, PARTS, 2)
ASKED = {"updates": 1, "horizon": 4, "settings": Settings(hidden=8), "address": "auto"}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"updates": 0}, "ranges in the docstring"),
        ({"horizon": 0}, "ranges in the docstring"),
        ({"runners": 0}, "ranges in the docstring"),
        ({"episodes": 1, "runners": 2}, "ranges in the docstring"),
        ({"guess": []}, "priors have shapes"),
    ],
)
def test_train_rllib_with_bad_arguments_says_what_is_wrong(wrong, says):
    with pytest.raises(InputError, match=says):
        train_rllib(STAGE, **{**ASKED, **wrong})


@pytest.mark.slow
def test_without_rllib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.rllib", None)
    with pytest.raises(DataError, match=re.escape(how_to_install("ray", "rl"))):
        train_rllib(STAGE, **ASKED)


def test_the_learning_rate_follows_the_divergence():
    assert following(1e-4, 0.05, 0.02) < 1e-4 < following(1e-4, 0.005, 0.02)
    assert following(1e-4, 0.02, 0.02) == 1e-4
    assert following(1e-4, float("nan"), 0.02) == 1e-4
    assert following(1e-6, 1.0, 0.02) == 1e-6


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    file, agent = tmp_path / "to" / "checkpoint", PPO(PARTS, 2, settings=Settings(hidden=8), seed=1)
    state = {**agent.state(), "penalty": np.array(0.3)}
    kept = _about(agent, 1, {"scaling": np.array([1 / 3])})
    _write(file, {**state, **kept})
    read = _read(file, PPO(PARTS, 2, settings=Settings(hidden=8), seed=2), kept)
    assert read.keys() == state.keys()
    assert all(np.array_equal(read[name], state[name]) for name in state)
    assert b"pickle" not in file.read_bytes()


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    file = tmp_path / "checkpoint"
    other = PPO(PARTS, 3, settings=Settings(hidden=8))
    _write(file, {**other.state(), "penalty": np.array(0.2)})
    for change in (None, b"", b"\x80\x04pickled"):
        if change is not None:
            file.write_bytes(change)
        with pytest.raises((DataError, StateError), match="checkpoint"):
            train_rllib(STAGE, checkpoint=file, **ASKED)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"seed": 1}, "it has different seed;"),
        ({"about": {"scaling": np.array([1.0, 2.1])}}, "it has different scaling;"),
        ({"about": {"scaling": np.array([1.0, 2.0, 3.0])}}, "it has different scaling;"),
        ({"about": None}, "it has different scaling;"),
        (
            {"stage": STAGE._replace(parts=(*PARTS[:2], Part("other", 3)))},
            "it has different parts;",
        ),
    ],
)
def test_a_checkpoint_that_was_begun_with_something_else_is_refused(tmp_path, changed, match):
    file, about = tmp_path / "checkpoint", {"scaling": np.array([1.0, 2.0])}
    agent = PPO(PARTS, 2, settings=Settings(hidden=8))
    state = {**agent.state(), "penalty": np.array(0.2)}
    _write(file, {**state, **_about(agent, 0, about)})
    given = {"stage": STAGE, "about": about, "checkpoint": file, **ASKED, **changed}
    with pytest.raises(DataError, match=match):
        train_rllib(**given)


class Reference:
    """Fake object store reference."""

    def stage(self):
        return copy.deepcopy(STAGE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray's and of what it imports
def test_an_environment_of_gymnasium_never_plays_an_episode_twice():
    pytest.importorskip("ray.rllib", reason="`tools/install ray` installs it")
    from steersman.training.ppo.rllib_parts import PartsEnvironment  # noqa: PLC0415

    seat, same = (PartsEnvironment({"kept": Reference(), "seed": (3, 0)}) for _ in range(2))
    assert seat.action_space.contains({"again": 2, "k": 10, "switch": 1})
    assert seat.observation_space.shape == (2,)

    def episode(one):
        seen, ends = [one.reset(seed=1)[0].tolist()], []
        while not any(ends):
            state, _, over, cut, _ = one.step({"switch": 1, "k": 0, "again": 0})
            seen.append(state.tolist())
            ends = [over, cut]
        return seen, ends

    first = [episode(seat) for _ in range(8)]
    assert len({str(seen) for seen, _ in first}) > 1
    assert first == [episode(same) for _ in range(8)]
    assert all(ends == [False, True] for _, ends in first), "cut off, and not over"


def weights_of(agent):
    return {n: of for n, of in agent.state().items() if n.startswith("network.")}


def module_of(weights):
    from steersman.training.ppo.rllib_parts import Module, NetworkSpec, PartsEnvironment  # noqa: PLC0415

    seat = PartsEnvironment({"kept": Reference(), "seed": (0, 0)})
    return Module(
        observation_space=seat.observation_space,
        action_space=seat.action_space,
        model_config={"built": NetworkSpec(PARTS, 2, 8, weights)},
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray's and of what it imports
def test_the_module_of_rllib_draws_as_our_own_policy_does():
    pytest.importorskip("ray.rllib", reason="`tools/install ray` installs it")
    agent = PPO(PARTS, 2, settings=Settings(hidden=8), seed=5)
    weights = weights_of(agent)
    module = module_of(weights)
    assert {n: of.tolist() for n, of in module.get_state().items()} == {
        n: of.tolist() for n, of in weights.items()
    }
    states = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    out = module.forward_inference({"obs": torch.from_numpy(states)})
    drawn = module.get_inference_action_dist_cls().from_logits(out["action_dist_inputs"])
    for values in ((0, 0, 0), (1, 10, 2), (1, 5, 1)):
        action = dict(zip(["switch", "k", "again"], values, strict=True))
        logs = drawn.logp({n: torch.full((5,), of) for n, of in action.items()})
        for row, state in enumerate(states):
            masses = agent.distributions(state)
            own = np.prod([of[value] for of, value in zip(masses, values, strict=True)])
            assert float(torch.exp(logs[row])) == pytest.approx(own, rel=1e-5)
        assert module.compute_values({"obs": torch.from_numpy(states)}).shape == (5,)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray's and of what it imports
def test_the_divergence_that_rllib_follows_is_finite_also_between_narrow_bells():
    pytest.importorskip("ray.rllib", reason="`tools/install ray` installs it")

    def narrow(mean):
        agent = PPO(PARTS, 2, settings=Settings(hidden=8), seed=5)
        biases = torch.tensor([mean, -20.0], dtype=torch.float64)
        agent._network.set_direct(1, torch.zeros(2, 2, dtype=torch.float64), biases)
        module = module_of(weights_of(agent))
        out = module.forward_train({"obs": torch.zeros(1, 2)})
        return module.get_train_action_dist_cls().from_logits(out["action_dist_inputs"])

    here, far = narrow(-2.0), narrow(2.0)
    assert float(here.kl(here)) == pytest.approx(0.0, abs=1e-6)
    assert 50.0 < float(here.kl(far)) < 100.0
