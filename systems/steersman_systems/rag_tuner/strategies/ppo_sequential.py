"""PPO that moves the live configuration; trained in the simulator, then frozen."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman.points.state_bytes import pack_state, unpack_state
from steersman.training.ppo.action_parts import draw
from steersman.training.ppo.agent import PPO, Steps
from steersman.training.ppo.settings import Settings
from steersman_systems.rag_tuner.actions import Moves
from steersman_systems.rag_tuner.features import GROUPS, Features, RecentResults, Scaling, Situation
from steersman_systems.rag_tuner.strategies.base import Ledger, Proposal, nothing_holds
from steersman_systems.rag_tuner.strategies.belief import Belief
from steersman_systems.rag_tuner.strategies.ppo_guess import first_guess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.training.ppo.agent import Update
    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.environment import TuningEnvironment
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch, Reward

    Floats = NDArray[np.float64]

_FORMAT = 3
_FITTED_ON = 16
"""Number of episodes with random moves for fitting the scaling."""


class SequentialPolicy:
    """Trained policy: features, scaling and network.

    Args:
        agent: Agent over the moves of the features' space.
        features: Features of a situation.
        scaling: Scaling, fitted once.
        window: Number of batches in the state, as in training.
    """

    def __init__(self, agent: PPO, features: Features, scaling: Scaling, window: int) -> None:
        self.agent, self.features, self.scaling, self.window = agent, features, scaling, window

    def state(self, situation: Situation, rng: np.random.Generator | None = None) -> Floats:
        """Return the network's input for a situation."""
        return self.scaling.apply(self.features.raw(situation, rng))

    def save(self, file: Path) -> None:
        """Write the policy as safetensors, atomically, without the optimiser's state."""
        about = json.dumps(self._about()).encode()
        kept = {n: a for n, a in self.agent.state().items() if not n.startswith("adam.")}
        arrays: dict[str, NDArray[Any]] = {n: np.asarray(a, np.float64) for n, a in kept.items()}
        arrays["scaling.median"] = self.scaling.median
        arrays["scaling.spread"] = self.scaling.spread
        arrays["meta"] = np.frombuffer(about, np.uint8)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.part")
        part.write_bytes(pack_state(arrays))
        part.replace(file)

    @classmethod
    def load(cls, file: Path, tuned: PolicyConfig) -> SequentialPolicy:
        """Load a policy.

        Raises:
            DataError: The file cannot be read, is damaged, or has another space or format.
        """
        try:
            arrays = unpack_state(file.read_bytes())
            about = json.loads(arrays["meta"].tobytes())
            features = Features(tuned.space, about["categories"], about["without"])
            settings = Settings(hidden=about["hidden"])
            scaling = Scaling(arrays["scaling.median"], arrays["scaling.spread"])
        except (OSError, KeyError, ValueError, TypeError) as error:
            message = f"{file}: not a tuning policy: {error}; train one and save it there"
            raise DataError(message) from None
        agent = PPO(Moves(tuned.space).parts, len(features), settings=settings)
        found = cls(agent, features, scaling, about["window"])
        if found._about() != about:
            message = f"{file}: it was trained for another space, other moves or features, or is "
            raise DataError(message + f"not of format {_FORMAT}; train it again for this policy")
        agent.restore(arrays)
        return found

    def _about(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "parts": [[part.name, part.size] for part in self.agent.parts],
            "features": list(self.features.names),
            "categories": list(self.features.categories),
            "without": sorted(set(GROUPS) - set(self.features.groups)),
            "hidden": self.agent.settings.hidden,
            "window": self.window,
        }  # fmt: skip


class SequentialPpo:
    """Strategy with a trained, frozen policy.

    It recommends the greatest posterior mean among evaluated configurations that hold every gate,
    because the gates of others are unknown. After a change of the reward weights call `retune`,
    which replays all evaluations. After a change of the collection call `begin_again`, which
    discards the posterior.

    Args:
        tuned: Bounds, gates and weights.
        policy: Policy trained for the same space.
        start: Live configuration.
        labels: Category of each query, by index; empty without categories.
        explore: True to draw moves; otherwise the likeliest move has probability 1, and its
            results cannot be used off-policy.

    Raises:
        InputError: `start` is not in the space.
    """

    name = "ppo_sequential"

    def __init__(
        self,
        tuned: PolicyConfig,
        policy: SequentialPolicy,
        start: Configuration,
        labels: Sequence[str] = (),
        *,
        explore: bool = True,
    ) -> None:
        self._explore = explore
        self._policy, self._tuned, self._labels = policy, tuned, labels
        self._space = tuned.space  # kept, as the property builds a new one each time
        self._moves = Moves(self._space)
        self._running = self._space.check(start)
        self._observed = RecentResults(policy.window)
        self._ledger = Ledger(tuned)
        self._belief = Belief(tuned)
        self.age_days = 0.0

    def ask(self, rng: np.random.Generator) -> Proposal:
        """Return the configuration after a drawn move; `tell` makes it live."""
        if not self._explore:
            likeliest = self._policy.agent.best(self._state())
            return Proposal(self._moves.apply(self._running, likeliest), 1.0)
        masses = self._policy.agent.distributions(self._state(rng))
        to = self._moves.apply(self._running, draw(masses, rng).values)
        return Proposal(to, self._moves.propensity(self._running, to, masses))

    def tell(self, batch: Batch, reward: Reward) -> None:
        """Add a batch; its configuration becomes the live one."""
        self._ledger.enter(batch, reward)
        if batch.configuration in self._space.index:
            labels = [self._labels[place] for place in batch.queries] if self._labels else ()
            self._observed.see(batch, self._tuned.thresholds.latency_unit_ms, labels)
            self._running = batch.configuration
            self._belief.learn(batch, reward)

    def tell_smaller(self, batches: Sequence[Batch]) -> None:
        """Learn the results of the same evaluation with fewer passages."""
        self._belief.learn_smaller(batches)

    def begin_again(self) -> None:
        """Discard the posterior and all broken gates, for another collection or other questions.

        The live configuration stays.
        """
        self._ledger, self._belief = Ledger(self._tuned), Belief(self._tuned)
        self._observed = RecentResults(self._policy.window)

    def retune(self, tuned: PolicyConfig) -> None:
        """Switch to other reward weights.

        Raises:
            InputError: The policy configuration has another space.
        """
        if tuned.space != self._space:
            raise InputError("the policy was trained for another space; train one for this space")
        self._tuned, self._belief = tuned, self._belief.retold(tuned)

    def recommend(self) -> Configuration:
        """Return the evaluated configuration of greatest posterior mean that holds every gate.

        Raises:
            InputError: No results yet, or all evaluated configurations break a gate.
        """
        known, index = self._ledger.configurations, self._space.index
        held = [
            index[one]
            for one in known
            if one in index and not self._ledger.breaches(one) and isfinite(self._ledger.mean(one))
        ]
        if not held:
            raise InputError(nothing_holds(len(known)))
        return self._space.all[held[int(self._belief.mean()[held].argmax())]]

    def _state(self, rng: np.random.Generator | None = None) -> Floats:
        situation = Situation(
            self._observed, self._running, self._tuned, self.age_days, self._belief
        )
        return self._policy.state(situation, rng)


def train_sequential(
    environments: Sequence[TuningEnvironment],
    *,
    updates: int = 150,
    settings: Settings | None = None,
    seed: int = 0,
    done: Callable[[int, Update, float], None] | None = None,
) -> SequentialPolicy:
    """Train a policy in simulators.

    Args:
        updates: Number of updates, ≥ 0; 0 returns the initial policy.

    Raises:
        InputError: No environment, or a negative number of updates.
    """
    if not environments or updates < 0:
        message = f"{len(environments)} environments, {updates!r} updates"
        raise InputError(f"{message}; allowed: 1 or more, and 0 or more")
    first = environments[0]
    scaling = fitted_scaling(first, np.random.default_rng([seed, 0]))
    agent = PPO(first.moves.parts, len(first.features), settings=settings, seed=seed)
    if "belief" in first.features.groups:
        agent.start_from(first_guess(first.features, first.moves.parts))
    for number in range(1, updates + 1):
        steps = _episodes(environments, agent, scaling, [seed, number])
        update = agent.learn(steps)
        if done is not None:
            done(number, update, float(steps.rewards.mean()))
    return SequentialPolicy(agent, first.features, scaling, first.window)


def fitted_scaling(environment: TuningEnvironment, rng: np.random.Generator) -> Scaling:
    """Return the scaling of states, fitted on episodes of random moves."""
    rows = []
    sizes = [part.size for part in environment.moves.parts]
    for _ in range(_FITTED_ON):
        rows.append(environment.reset(rng))
        last = False
        while not last:
            stepped = environment.step(rng.integers(sizes).tolist())
            last = stepped.last
            rows.append(stepped.state)
    return Scaling.fitted(np.array(rows), environment.features.scaled)


def _episodes(
    environments: Sequence[TuningEnvironment], agent: PPO, scaling: Scaling, seed: list[int]
) -> Steps:
    """Play one episode in each environment in parallel; return them one after the other."""
    rng = np.random.default_rng([*seed, 0])
    raw = [
        one.reset(np.random.default_rng([*seed, place]))
        for place, one in enumerate(environments, 1)
    ]
    horizon, count = environments[0].horizon, len(environments)
    states = np.zeros((count, horizon, agent.features))
    actions = np.zeros((count, horizon, len(agent.parts)), np.intp)
    propensities, rewards = np.zeros((count, horizon)), np.zeros((count, horizon))
    for time in range(horizon):
        states[:, time] = scaling.apply(np.array(raw))
        drawn = agent.act_on(states[:, time], rng)
        for place, (one, action) in enumerate(zip(environments, drawn, strict=True)):
            stepped = one.step(action.values)
            raw[place] = stepped.state
            actions[place, time], propensities[place, time] = action.values, action.propensity
            rewards[place, time] = stepped.reward
    last, beyond = np.zeros((count, horizon), bool), np.zeros((count, horizon))
    # Episodes are truncated, not terminated: the live configuration goes on.
    last[:, -1], beyond[:, -1] = True, agent.expected_each(scaling.apply(np.array(raw)))
    return Steps(
        states.reshape(-1, agent.features), actions.reshape(-1, len(agent.parts)),
        propensities.ravel(), rewards.ravel(), last.ravel(), beyond.ravel(),
    )  # fmt: skip
