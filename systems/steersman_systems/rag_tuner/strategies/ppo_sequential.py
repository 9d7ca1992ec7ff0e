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
from steersman_systems.rag_tuner.features import GROUPS, Features, Observed, Scaling, Situation
from steersman_systems.rag_tuner.strategies.base import Asked, Ledger, nothing_holds
from steersman_systems.rag_tuner.strategies.belief import Belief
from steersman_systems.rag_tuner.strategies.ppo_guess import first_guess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.training.ppo.agent import Update
    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.environment import TuningEnvironment
    from steersman_systems.rag_tuner.policy_config import Tuned
    from steersman_systems.rag_tuner.reward import Batch, Reward

    Floats = NDArray[np.float64]

_FORMAT = 3
_FITTED_ON = 16
"""Episodes of random moves that the scaling is fitted on."""


class SequentialPolicy:
    """A trained policy: what it sees, how that is scaled, and its network.

    Args:
        agent: Over the moves of the features' space.
        features: What of a situation is seen.
        scaling: Fitted once.
        window: Batches that are remembered, as in training.
    """

    def __init__(self, agent: PPO, features: Features, scaling: Scaling, window: int) -> None:
        self.agent, self.features, self.scaling, self.window = agent, features, scaling, window

    def state(self, situation: Situation, rng: np.random.Generator | None = None) -> Floats:
        """Return what the network sees of a situation."""
        return self.scaling.apply(self.features.raw(situation, rng))

    def save(self, file: Path) -> None:
        """Write it as safetensors, whole or not at all; the optimiser's state is left behind."""
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
    def load(cls, file: Path, tuned: Tuned) -> SequentialPolicy:
        """Return a policy that was saved.

        Raises:
            DataError: It cannot be read, is damaged, or was trained for another space or format.
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
    """A trained policy at work; it learns no further.

    It recommends the greatest posterior mean among evaluated configurations that hold every gate,
    since the gates of others are unknown.

    Report every change to it: of the reward weights (`retune`), which replays all paid evaluations
    under the new ones, and of the collection (`begin_again`), which discards its beliefs.

    Args:
        tuned: Bounds, gates and weights.
        policy: Trained for the same space.
        start: What runs now.
        labels: Category of each query, by its place; empty if they have none.
        explore: Whether moves are drawn; otherwise each is the likeliest, with probability 1, and
            its results cannot be used off-policy.

    Raises:
        InputError: `start` is not in the space.
    """

    name = "ppo_sequential"

    def __init__(
        self,
        tuned: Tuned,
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
        self._observed = Observed(policy.window)
        self._ledger = Ledger(tuned)
        self._belief = Belief(tuned)
        self.age_days = 0.0

    def ask(self, rng: np.random.Generator) -> Asked:
        """Return where a drawn move leads; the running configuration moves with its result."""
        if not self._explore:
            likeliest = self._policy.agent.best(self._state())
            return Asked(self._moves.apply(self._running, likeliest), 1.0)
        masses = self._policy.agent.distributions(self._state(rng))
        to = self._moves.apply(self._running, draw(masses, rng).values)
        return Asked(to, self._moves.propensity(self._running, to, masses))

    def tell(self, batch: Batch, reward: Reward) -> None:
        """Remember a batch; what it was evaluated under is what runs now."""
        self._ledger.enter(batch, reward)
        if batch.configuration in self._space.index:
            labels = [self._labels[place] for place in batch.queries] if self._labels else ()
            self._observed.see(batch, self._tuned.thresholds.latency_unit_ms, labels)
            self._running = batch.configuration
            self._belief.learn(batch, reward)

    def tell_smaller(self, batches: Sequence[Batch]) -> None:
        """Learn what the same evaluation says of fewer passages."""
        self._belief.learn_smaller(batches)

    def begin_again(self) -> None:
        """Believe nothing from now on: it is another collection, or has other questions.

        What ran goes on running, and what broke a gate is forgotten with all else.
        """
        self._ledger, self._belief = Ledger(self._tuned), Belief(self._tuned)
        self._observed = Observed(self._policy.window)

    def retune(self, tuned: Tuned) -> None:
        """Follow other reward weights from now on.

        Raises:
            InputError: It has another space.
        """
        if tuned.space != self._space:
            raise InputError("the policy was trained for another space; train one for this space")
        self._tuned, self._belief = tuned, self._belief.retold(tuned)

    def recommend(self) -> Configuration:
        """Return the greatest posterior mean of those evaluated that hold every hard gate.

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
    """Return a policy that was trained in simulators.

    Args:
        updates: How many, ≥ 0; with none it is the first guess that training begins with.

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
    """Return how states are scaled, fitted on episodes of random moves."""
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
    """Play one episode in each environment side by side; they stand one after the other."""
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
