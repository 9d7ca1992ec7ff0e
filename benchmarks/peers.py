"""Rival contextual bandits behind one interface, each called in its fastest documented way.

Every peer gets a context as a numpy vector and pays for the conversion to its library's format.
Libraries are imported when a peer is created (extra ``[bench]``). All use one thread. Settings:

- **Vowpal Wabbit**: ``--noconstant --quiet``; contexts are passed as a list of numbers, which is
  faster than text; examples of actions are created once. *squarecb* is ``--cb_explore_adf
  --squarecb -q sa --ignore_linear s``: one linear model per action, as in our policies.
  *epsilon-greedy* is ``--cb_explore K`` without uncertainty: O(K d) work, against O(K d²) of
  LinUCB and LinTS. Actions are drawn from the returned distribution, so propensities are exact to
  float32.
- **MABWiser**: ``n_jobs=1``, ``scale=False``.
- **contextualbandits**: the online learners, ``fit_intercept=False``, ``njobs=1``; LinUCB by
  Sherman-Morrison in float32, its default; LinTS ``sample_from="ci"`` (one
  number per arm, as in ours; its default draws d), in float64, its default.
- **river**: ``LinUCBDisjoint`` takes a dict; its Thompson sampling is a normal draw per arm from
  ``BayesianLinearRegression.predict_one(with_dist=True)``.

A deterministic choice has propensity 1. Thompson sampling in these libraries does not return
probabilities: its propensity is NaN.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

__all__ = ["PEERS", "Peer", "make_peer"]


class Peer(Protocol):
    """Rival policy: contexts of ``dim`` numbers, actions 0 to ``arms`` - 1."""

    name: str
    algorithm: str

    def decide(self, x: Vector) -> tuple[int, float]:
        """Return the action chosen for context (d,) and its propensity, NaN when unknown."""

    def update(self, x: Vector, action: int, reward: float, propensity: float) -> None:
        """Learn from one decision."""

    def warm(self, contexts: Vector, actions: NDArray[np.int64], rewards: Vector) -> None:
        """Learn from (n, d) contexts, in one batch if the library supports it."""


class _OneByOne:
    """Peer whose library has no batches of bandit feedback."""

    arms: int
    update: Callable[..., None]

    def warm(self, contexts: Vector, actions: NDArray[np.int64], rewards: Vector) -> None:
        for x, action, reward in zip(contexts, actions, rewards, strict=True):
            self.update(x, int(action), float(reward), 1.0 / self.arms)


class _WabbitGreedy(_OneByOne):
    name = "VW epsilon-greedy"
    algorithm = "epsilon-greedy, one SGD regression per action"

    def __init__(self, dim: int, arms: int, seed: int) -> None:
        from vowpalwabbit import LabelType, pyvw  # noqa: PLC0415

        self.arms = arms
        self._workspace = pyvw.Workspace(
            f"--cb_explore {arms} --epsilon 0.05 --noconstant --quiet --random_seed {seed}"
        )
        self._make, self._label = pyvw.Example, LabelType.CONTEXTUAL_BANDIT
        self._slots = list(range(dim))
        self._rng = np.random.default_rng(seed)

    def decide(self, x: Vector) -> tuple[int, float]:
        example = self._example(x)
        masses = self._workspace.predict(example)
        self._workspace.finish_example(example)
        return _draw(masses, self._rng)

    def update(self, x: Vector, action: int, reward: float, propensity: float) -> None:
        example = self._example(x)
        # Vowpal Wabbit counts actions from one and minimises a cost.
        example.set_label_string(f"{action + 1}:{-reward}:{propensity}")
        self._workspace.learn(example)
        self._workspace.finish_example(example)

    def _example(self, x: Vector) -> Any:
        features = {"s": list(zip(self._slots, x.tolist(), strict=True))}
        return self._make(self._workspace, features, self._label)


class _WabbitSquare(_OneByOne):
    name = "VW squarecb"
    algorithm = "SquareCB, one SGD regression per action"

    def __init__(self, dim: int, arms: int, seed: int) -> None:
        from vowpalwabbit import LabelType, pyvw  # noqa: PLC0415

        self.arms = arms
        self._workspace = pyvw.Workspace(
            "--cb_explore_adf --squarecb -q sa --ignore_linear s --noconstant --quiet "
            f"--random_seed {seed} -b 20"
        )
        self._make, self._label = pyvw.Example, LabelType.CONTEXTUAL_BANDIT
        self._slots = list(range(dim))
        self._rng = np.random.default_rng(seed)
        self._actions = [self._action(action) for action in range(arms)]

    def decide(self, x: Vector) -> tuple[int, float]:
        shared = self._shared(x)
        masses = self._workspace.predict([shared, *self._actions])
        return _draw(masses, self._rng)

    def update(self, x: Vector, action: int, reward: float, propensity: float) -> None:
        shared = self._shared(x)
        chosen = self._action(action, f"0:{-reward}:{propensity}")
        others = self._actions
        self._workspace.learn([shared, *others[:action], chosen, *others[action + 1 :]])

    def _shared(self, x: Vector) -> Any:
        features = {"s": list(zip(self._slots, x.tolist(), strict=True))}
        example = self._make(self._workspace, features, self._label)
        example.set_label_string("shared")
        example.setup_example()
        return example

    def _action(self, action: int, label: str = "") -> Any:
        example = self._make(self._workspace, {"a": [(action, 1.0)]}, self._label)
        if label:
            example.set_label_string(label)
        example.setup_example()
        return example


class _MabWiser:
    def __init__(self, kind: str, arms: int, seed: int) -> None:
        from mabwiser.mab import MAB, LearningPolicy  # noqa: PLC0415

        self.name = f"MABWiser {kind}"
        self.algorithm = kind
        self._propensity = 1.0 if kind == "LinUCB" else math.nan
        policy = getattr(LearningPolicy, kind)(alpha=1.0)
        self._bandit = MAB(list(range(arms)), policy, seed=seed, n_jobs=1)

    def decide(self, x: Vector) -> tuple[int, float]:
        return self._bandit.predict(x[None]), self._propensity

    def update(self, x: Vector, action: int, reward: float, propensity: float) -> None:
        self._bandit.partial_fit([action], [reward], x[None])

    def warm(self, contexts: Vector, actions: NDArray[np.int64], rewards: Vector) -> None:
        self._bandit.fit(actions, rewards, contexts)


class _ContextualBandits:
    def __init__(self, kind: str, arms: int, seed: int) -> None:
        from contextualbandits import online  # noqa: PLC0415

        self.name = f"contextualbandits {kind}"
        self.algorithm = kind
        self._propensity = 1.0 if kind == "LinUCB" else math.nan
        own = {"alpha": 1.0} if kind == "LinUCB" else {"sample_from": "ci", "method": "sm"}
        self._bandit = getattr(online, kind)(
            # The library rejects seed 0.
            arms,
            fit_intercept=False,
            njobs=1,
            random_state=seed + 1,
            **own,
        )

    def decide(self, x: Vector) -> tuple[int, float]:
        return int(self._bandit.predict(x[None])[0]), self._propensity

    def update(self, x: Vector, action: int, reward: float, propensity: float) -> None:
        self._bandit.partial_fit(x[None], np.array([action]), np.array([reward]))

    def warm(self, contexts: Vector, actions: NDArray[np.int64], rewards: Vector) -> None:
        self._bandit.fit(contexts, actions, rewards)


class _RiverUcb(_OneByOne):
    name = "river LinUCB"
    algorithm = "LinUCB"

    def __init__(self, dim: int, arms: int, seed: int) -> None:
        from river import bandit  # noqa: PLC0415

        self.arms = arms
        self._slots = list(range(dim))
        self._names = list(range(arms))
        self._bandit = bandit.LinUCBDisjoint(seed=seed)

    def decide(self, x: Vector) -> tuple[int, float]:
        context = dict(zip(self._slots, x.tolist(), strict=True))
        return self._bandit.pull(self._names, context=context), 1.0

    def update(self, x: Vector, action: int, reward: float, propensity: float) -> None:
        self._bandit.update(action, dict(zip(self._slots, x.tolist(), strict=True)), reward)


class _RiverThompson(_OneByOne):
    name = "river LinTS"
    algorithm = "LinTS"

    def __init__(self, dim: int, arms: int, seed: int) -> None:
        from river import linear_model  # noqa: PLC0415

        self.arms = arms
        self._slots = list(range(dim))
        self._models = [linear_model.BayesianLinearRegression(beta=10.0) for _ in range(arms)]
        self._rng = np.random.default_rng(seed)

    def decide(self, x: Vector) -> tuple[int, float]:
        context = dict(zip(self._slots, x.tolist(), strict=True))
        beliefs = [model.predict_one(context, with_dist=True) for model in self._models]
        means = np.array([belief.mu for belief in beliefs])
        sds = np.array([belief.sigma for belief in beliefs])
        draws = means + sds * self._rng.standard_normal(self.arms)
        return int(draws.argmax()), math.nan

    def update(self, x: Vector, action: int, reward: float, propensity: float) -> None:
        context = dict(zip(self._slots, x.tolist(), strict=True))
        self._models[action].learn_one(context, reward)


PEERS: dict[str, Callable[[int, int, int], Peer]] = {
    "VW squarecb": _WabbitSquare,
    "VW epsilon-greedy": _WabbitGreedy,
    "MABWiser LinUCB": lambda _, arms, seed: _MabWiser("LinUCB", arms, seed),
    "MABWiser LinTS": lambda _, arms, seed: _MabWiser("LinTS", arms, seed),
    "contextualbandits LinUCB": lambda _, arms, seed: _ContextualBandits("LinUCB", arms, seed),
    "contextualbandits LinTS": lambda _, arms, seed: _ContextualBandits("LinTS", arms, seed),
    "river LinUCB": _RiverUcb,
    "river LinTS": _RiverThompson,
}


def make_peer(name: str, dim: int, arms: int, *, seed: int = 0) -> Peer:
    """Return a rival by name.

    Args:
        name: A key of ``PEERS``.
        dim: Dimension of contexts, at least 1.
        arms: Number of actions, at least 2.
        seed: Random seed of the library.

    Returns:
            A new peer; call ``warm`` before the first decision.

    Raises:
        KeyError: Unknown name.
        ModuleNotFoundError: The extra ``bench`` is not installed.
    """
    return PEERS[name](dim, arms, seed)


def _draw(masses: list[float], rng: np.random.Generator) -> tuple[int, float]:
    """Draw from the returned probabilities; in float32 their sum is not exactly 1."""
    cumulative = np.cumsum(masses)
    action = int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))
    return action, masses[action] / float(cumulative[-1])
