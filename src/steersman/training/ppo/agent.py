"""PPO agent for mixed actions, with exact propensities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from steersman.errors import InputError, StateError
from steersman.training.optimizer import Adam
from steersman.training.ppo.action_parts import DrawnAction, Part, draw, draw_each
from steersman.training.ppo.advantages import advantages
from steersman.training.ppo.network import Network
from steersman.training.ppo.settings import Settings, following

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Arrays = Mapping[str, NDArray[np.generic]]

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # Adam moments of each network weight


def check_state(state: Arrays, own: Arrays, weights: Sequence[tuple[int, ...]]) -> None:
    """Raise an error if an agent cannot load a state.

    Args:
        weights: shapes of the network weights in Adam's order.

    Raises:
        StateError: the state belongs to another agent or is damaged.

    >>> own = {"network.a": np.zeros(2), "learning_rate": np.array(0.1), "updates": np.array(0)}
    >>> check_state(own, own, [(2,)])
    >>> check_state({**own, "adam.0.step": np.array(1.0)}, own, [(2,)])
    Traceback (most recent call last):
    steersman.errors.StateError: adam.0.exp_avg, adam.0.exp_avg_sq: allowed are ...
    """
    wanted = {name for name in own if not name.startswith("adam.")}
    moments = {name for name in state if name.startswith("adam.")}
    odd = {n for n in wanted if n not in state or np.shape(state[n]) != np.shape(own[n])}
    if odd:
        message = f"{_few(odd)} do not fit; restore a state of the same parts, features and width"
        raise StateError(message)
    if wrong := {name for name in wanted | moments if not _is_sound(state[name])}:
        raise StateError(f"{_few(wrong)} are not finite numbers; restore an older state")
    _check_moments({name: state[name] for name in moments}, weights)
    rate, updates = float(state["learning_rate"]), float(state["updates"])
    if rate <= 0.0 or updates < 0.0 or updates % 1.0:
        message = f"learning_rate is {rate:g} and updates {updates:g}; allowed are a rate above 0 "
        raise StateError(message + "and whole numbers from 0; restore an older state")


def _check_moments(kept: Arrays, weights: Sequence[tuple[int, ...]]) -> None:
    """Raise an error if moments are incomplete or have wrong shapes; none is fine before a step."""
    fitting = {
        f"adam.{number}.{field}": () if field == "step" else shape
        for number, shape in enumerate(weights)
        for field in _MOMENTS
    }
    if kept and (odd := set(kept) ^ set(fitting)):
        message = f"{_few(odd)}: allowed are {', '.join(_MOMENTS)} of each of {len(weights)} "
        raise StateError(message + "weights, or none; restore an older state")
    if odd := {name for name, array in kept.items() if np.shape(array) != fitting[name]}:
        message = f"{_few(odd)} do not have the shapes of their weights"
        raise StateError(message + "; restore an older state")


def _few(names: set[str]) -> str:
    return ", ".join(sorted(names)[:3])


def _is_sound(array: object) -> bool:
    values = np.asarray(array)
    return values.dtype.kind in "fiu" and bool(np.isfinite(values).all())


_STOP = 1.5
_LARGEST = 1e100  # its square, summed over steps, does not overflow float64
_LEAST = 8
"""Minimum steps of a minibatch; with fewer, the gradient is mostly noise."""


@dataclass(frozen=True)
class Steps:
    """Steps of consecutive episodes.

    Args:
        states: (n, features) float64, n ≥ 1.
        actions: (n, parts) value index of each part.
        propensities: (n,) probability of each drawn action, > 0.
        rewards: (n,) rewards.
        last: (n,) whether an episode ended with the step.
        beyond: (n,) value estimate after a truncated episode, from `PPO.expected_each`; 0 where the
            episode ended; default 0.
    """

    states: Floats
    actions: NDArray[np.intp]
    propensities: Floats
    rewards: Floats
    last: NDArray[np.bool_]
    beyond: Floats | None = None


@dataclass(frozen=True)
class Update:
    """Result of one update.

    Args:
        epochs: number of passes over all steps.
        divergence: estimated KL divergence from the old to the new policy, in nats.
        entropy: mean entropy of the new policy, in nats.
        clipped: share of steps whose probability ratio left the clip range.
        explained: explained variance of the returns by the values before the update.
        learning_rate: learning rate after the update.
    """

    epochs: int
    divergence: float
    entropy: float
    clipped: float
    explained: float
    learning_rate: float


class PPO:
    """Policy over mixed actions, trained with clipped policy gradients.

    Args:
        parts: action parts, one or more, with distinct names.
        features: number of state features, ≥ 1.
        settings: see `Settings`.
        seed: seed of the initial weights and the step order.

    Raises:
        InputError: no part, a duplicate name, or no feature.

    Source: Schulman et al., Proximal Policy Optimization Algorithms (2017), equation 7; the
    learning rate follows the KL divergence as the penalty of its section 4 does.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        features: int,
        *,
        settings: Settings | None = None,
        seed: int = 0,
    ) -> None:
        if not parts or len({part.name for part in parts}) != len(parts) or features < 1:
            names = [part.name for part in parts]
            message = f"parts {names}, {features!r} features; allowed are parts of different "
            raise InputError(message + "names, and 1 or more features")
        self.parts, self.features = tuple(parts), features
        self.settings = settings or Settings()
        self.updates = 0
        self._order = np.random.default_rng(seed)
        generator = torch.Generator().manual_seed(seed)
        self._network = Network(self.parts, features, self.settings.hidden, generator)
        self._weights = list(self._network.parameters())
        self._optimizer = Adam(self._weights, lr=self.settings.learning_rate, eps=1e-5)

    def start_from(self, guess: Sequence[tuple[Floats, Floats]]) -> None:
        """Start from a prior policy; training can unlearn all of it.

        Raises:
            InputError: a shape is wrong or a number is not finite.
        """
        shapes = [(np.shape(weights), np.shape(biases)) for weights, biases in guess]
        wanted = [((part.outputs, self.features), (part.outputs,)) for part in self.parts]
        if shapes != wanted:
            raise InputError(f"priors have shapes {shapes}; allowed are {wanted}")
        if not all(np.isfinite(array).all() for pair in guess for array in pair):
            raise InputError("a prior has a number that is not finite; use 0 there")
        for number, (weights, biases) in enumerate(guess):
            self._network.set_direct(number, torch.from_numpy(weights), torch.from_numpy(biases))

    # -- acting -----------------------------------------------------------------------------------

    def distributions(self, state: Floats) -> list[Floats]:
        """Return the probability of each value, (size,) for each part.

        Raises:
            InputError: the shape is wrong or a number is not finite.
        """
        return [masses[0] for masses in self._masses(np.asarray(state, np.float64)[None])]

    def act_on(self, states: Floats, rng: np.random.Generator) -> list[DrawnAction]:
        """Return an action for each state.

        Raises:
            InputError: the shape is wrong or a number is not finite.
        """
        return draw_each(self._masses(np.asarray(states, np.float64)), rng)

    def _masses(self, states: Floats) -> list[Floats]:
        if states.ndim != 2 or states.shape[1] != self.features or not np.isfinite(states).all():
            message = (
                f"states have shape {states.shape} with {np.isfinite(states).sum()} finite numbers"
            )
            raise InputError(f"{message}; allowed is (n, {self.features}), all finite")
        with torch.no_grad():
            logs, _ = self._network(torch.from_numpy(states.copy()))
        found = [np.exp(log.numpy()) for log in logs]
        if not all(np.isfinite(masses).all() for masses in found):
            raise StateError("the network outputs are not finite; restore an earlier state")
        return [masses / masses.sum(axis=1, keepdims=True) for masses in found]

    def act(self, state: Floats, rng: np.random.Generator) -> DrawnAction:
        """Return an action drawn from the policy."""
        return draw(self.distributions(state), rng)

    def best(self, state: Floats) -> tuple[int, ...]:
        """Return the most likely value of each part, (parts,)."""
        return tuple(int(masses.argmax()) for masses in self.distributions(state))

    # -- learning ---------------------------------------------------------------------------------

    def learn(self, steps: Steps) -> Update:
        """Update the policy with steps drawn from it.

        Raises:
            InputError: shapes do not match, a number is not finite, or the result is not finite;
                the policy is unchanged.
        """
        self._check(steps)
        kept = self.state()
        states = torch.from_numpy(np.array(steps.states, np.float64))
        with torch.no_grad():
            before, values = self._network(states)
        expected = values.numpy()
        ahead = advantages(
            np.asarray(steps.rewards, np.float64), expected, steps.last,
            gamma=self.settings.gamma, smoothing=self.settings.smoothing, beyond=steps.beyond,
        )  # fmt: skip
        tensors = _StepTensors(
            states=states,
            actions=torch.from_numpy(np.array(steps.actions, np.int64)),
            logs=torch.log(torch.from_numpy(np.array(steps.propensities, np.float64))),
            ahead=torch.from_numpy(_normalised(ahead)),
            returns=torch.from_numpy(ahead + expected),
            before=before,
        )
        epochs = self._epochs(tensors)
        if not all(value.isfinite().all() for value in self._network.state_dict().values()):
            self.restore(kept)
            message = "the weights became non-finite, so the update was discarded. "
            raise InputError(message + "Scale rewards to about 1, or lower learning_rate")
        return self._done(tensors, epochs, _explained(expected, ahead + expected))

    def expected(self, state: Floats) -> float:
        """Return the value estimate of a state."""
        return float(self.expected_each(np.asarray(state, np.float64)[None])[0])

    def expected_each(self, states: Floats) -> Floats:
        """Return the value estimate of each state, (n,)."""
        with torch.no_grad():
            found: Floats = self._network(torch.from_numpy(np.array(states, np.float64)))[1].numpy()
        return found

    def _epochs(self, tensors: _StepTensors) -> int:
        for epoch in range(1, self.settings.epochs + 1):
            for places in self._minibatches(len(tensors.ahead)):
                self._optimizer.zero_grad()
                self._loss(tensors, places).backward()
                torch.nn.utils.clip_grad_norm_(self._weights, self.settings.max_norm)
                self._optimizer.step()
            if self._divergence(tensors) > _STOP * self.settings.kl_target:
                return epoch
        return self.settings.epochs

    def _minibatches(self, count: int) -> Iterator[torch.Tensor]:
        order = torch.from_numpy(self._order.permutation(count))
        parts = min(self.settings.minibatches, max(count // _LEAST, 1))
        yield from torch.tensor_split(order, parts)

    def _loss(self, tensors: _StepTensors, places: torch.Tensor) -> torch.Tensor:
        logs, values = self._network(tensors.states[places])
        ratio = torch.exp(_chosen(logs, tensors.actions[places]) - tensors.logs[places])
        ahead, clip = tensors.ahead[places], self.settings.clip
        gained = torch.minimum(ratio * ahead, ratio.clamp(1 - clip, 1 + clip) * ahead).mean()
        missed = ((values - tensors.returns[places]) ** 2).mean()
        left = max(0.0, 1.0 - self.updates / self.settings.entropy_updates)
        bonus = self.settings.entropy * left * _entropy(logs).mean()
        loss: torch.Tensor = self.settings.value_weight * missed - gained - bonus
        return loss

    def _divergence(self, tensors: _StepTensors) -> float:
        with torch.no_grad():
            logs, _ = self._network(tensors.states)
            parts = [
                (torch.exp(old) * (old - new)).sum(dim=-1)
                for old, new in zip(tensors.before, logs, strict=True)
            ]
        return float(torch.stack(parts).sum(dim=0).mean())

    def _done(self, tensors: _StepTensors, epochs: int, explained: float) -> Update:
        divergence, target = self._divergence(tensors), self.settings.kl_target
        (group,) = self._optimizer.param_groups
        group["lr"] = following(group["lr"], divergence, target)
        self.updates += 1
        with torch.no_grad():
            logs, _ = self._network(tensors.states)
            moved = torch.exp(_chosen(logs, tensors.actions) - tensors.logs) - 1
        return Update(
            epochs=epochs,
            divergence=divergence,
            entropy=float(_entropy(logs).mean()),
            clipped=float((moved.abs() > self.settings.clip).double().mean()),
            explained=explained,
            learning_rate=float(group["lr"]),
        )

    def _check(self, steps: Steps) -> None:
        count = len(steps.rewards)
        shapes = {
            "states": (steps.states, (count, self.features)),
            "actions": (steps.actions, (count, len(self.parts))),
            "propensities": (steps.propensities, (count,)),
            "rewards": (steps.rewards, (count,)),
            "last": (steps.last, (count,)),
            "beyond": (np.zeros(count) if steps.beyond is None else steps.beyond, (count,)),
        }
        for name, (array, shape) in shapes.items():
            if not count or np.shape(array) != shape or not np.isfinite(array).all():
                message = (
                    f"{name} has shape {np.shape(array)}; allowed is {shape} of finite numbers"
                )
                raise InputError(f"{message}, for one or more steps")
        for name, numbers in (("reward", steps.rewards), ("worth beyond", steps.beyond)):
            if numbers is not None and (largest := float(np.abs(numbers).max())) > _LARGEST:
                message = f"a {name} has magnitude {largest:g}; the maximum is {_LARGEST:g}; "
                raise InputError(message + "the update was discarded. Scale rewards to about 1")
        if not ((steps.propensities > 0) & (steps.propensities <= 1 + 1e-12)).all():
            raise InputError("a propensity is not in (0, 1]; pass those that `act` returned")
        if (steps.actions < 0).any() or (steps.actions >= [p.size for p in self.parts]).any():
            raise InputError(
                "an action is out of range for its part; pass those that `act` returned"
            )

    # -- saving -----------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return all learned arrays; the seeded step order restarts after `restore`."""
        found: dict[str, NDArray[np.generic]] = {
            f"network.{name}": value.numpy().copy()
            for name, value in self._network.state_dict().items()
        }
        for number, kept in self._optimizer.state_dict()["state"].items():
            for name, value in kept.items():
                found[f"adam.{number}.{name}"] = value.detach().numpy().copy()
        found["learning_rate"] = np.array(self._optimizer.param_groups[0]["lr"])
        found["updates"] = np.array(self.updates)
        return found

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Load a state.

        Raises:
            StateError: the state does not fit or is damaged; nothing was changed.
        """
        check_state(state, self.state(), [tuple(one.shape) for one in self._network.parameters()])
        self._network.load_state_dict(
            {n.removeprefix("network."): torch.from_numpy(np.array(state[n]))
             for n in state if n.startswith("network.")}
        )  # fmt: skip
        adam: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in state.items():
            if name.startswith("adam."):
                _, number, field = name.split(".")
                adam.setdefault(int(number), {})[field] = torch.from_numpy(np.array(value))
        groups = self._optimizer.state_dict()["param_groups"]
        groups[0]["lr"] = float(state["learning_rate"])
        self._optimizer.load_state_dict({"state": adam, "param_groups": groups})
        self.updates = int(state["updates"])


@dataclass(frozen=True)
class _StepTensors:
    """Steps as network inputs."""

    states: torch.Tensor
    actions: torch.Tensor
    logs: torch.Tensor
    ahead: torch.Tensor
    returns: torch.Tensor
    before: list[torch.Tensor]


def _normalised(ahead: Floats) -> Floats:
    """Return advantages with mean 0 and standard deviation 1 over all steps of an update.

    Normalising a minibatch of two steps would always give 1 and -1.
    """
    return np.asarray((ahead - ahead.mean()) / (ahead.std() + 1e-8)) if len(ahead) > 1 else ahead


def _chosen(logs: Sequence[torch.Tensor], actions: torch.Tensor) -> torch.Tensor:
    picked = [log.gather(1, actions[:, [place]]) for place, log in enumerate(logs)]
    return torch.cat(picked, dim=1).sum(dim=1)


def _entropy(logs: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([-(torch.exp(log) * log).sum(dim=-1) for log in logs]).sum(dim=0)


def _explained(values: Floats, returns: Floats) -> float:
    spread = float(returns.var())
    return 1.0 - float((returns - values).var()) / spread if spread > 0 else 0.0
