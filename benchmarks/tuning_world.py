"""Synthetic world of mixed actions with a known best action per context."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steersman.training.ppo.action_parts import Part
from steersman.training.ppo.agent import PPO, Steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.training.ppo.settings import Settings

    Floats = NDArray[np.float64]

PARTS = (
    Part("variant", 3),
    Part("k", 30, ordered=True),
    Part("rerank", 2),
    Part("fusion_weight", 21, ordered=True),
    Part("expansion", 2),
)
FEATURES = 5
_NOISE = 0.1
_BATCH = 256


class Contexts(NamedTuple):
    """Contexts of questions: one of three kinds, and two numbers."""

    kind: NDArray[np.intp]
    numbers: Floats

    @property
    def states(self) -> Floats:
        """(n, 5)."""
        return np.concatenate([np.eye(3)[self.kind], self.numbers], axis=1)


def contexts(count: int, rng: np.random.Generator) -> Contexts:
    """Draw contexts of questions."""
    return Contexts(rng.integers(3, size=count), rng.uniform(-1, 1, size=(count, 2)))


def mean_rewards(asked: Contexts, actions: NDArray[np.intp]) -> Floats:
    """Return the expected reward of some actions, between about 0 and .9.

    Each kind has its best variant; hard questions (first number) want more passages, names (second
    number) a smaller fusion weight and expansion, and the third kind alone wants reranking.
    """
    variant, k, rerank, weight, expansion = np.asarray(actions).T
    hard, names = asked.numbers.T
    found = 0.2 + 0.25 * (variant == asked.kind)
    found -= 0.15 * (k / 14.5 - 1 - hard) ** 2 - 0.15
    found -= np.where(variant == 2, 0.15, 0.02) * (weight / 10 - 1 + names) ** 2
    found += 0.1 * np.where(asked.kind == 2, rerank, -rerank)
    found += 0.1 * np.where(names > 0, expansion, -expansion)
    return np.asarray(found, np.float64)


def best_actions(asked: Contexts) -> NDArray[np.intp]:
    """Return the best action of each question, by coordinate search over the parts."""
    found = np.zeros((len(asked.kind), len(PARTS)), np.intp)
    found[:, 0] = asked.kind
    for place, part in enumerate(PARTS[1:], 1):
        tried = []
        for value in range(part.size):
            found[:, place] = value
            tried.append(mean_rewards(asked, found))
        found[:, place] = np.argmax(tried, axis=0)
    return found


def best_fixed(asked: Contexts) -> float:
    """Return the mean reward of the best fixed action."""
    best = -np.inf
    for variant in range(3):
        action = np.tile([variant, 15, 0, 10, 0], (len(asked.kind), 1))
        for _ in range(2):  # parts hardly interact, so two rounds are enough
            for place, part in enumerate(PARTS[1:], 1):
                means = []
                for value in range(part.size):
                    action[:, place] = value
                    means.append(mean_rewards(asked, action).mean())
                action[:, place] = int(np.argmax(means))
        best = max(best, float(mean_rewards(asked, action).mean()))
    return best


def train(seed: int, updates: int, settings: Settings | None = None) -> PPO:
    """Return PPO after a number of updates of 256 questions each, in one-step episodes."""
    rng = np.random.default_rng([seed, 7])
    agent = PPO(PARTS, FEATURES, settings=settings, seed=seed)
    for _ in range(updates):
        asked = contexts(_BATCH, rng)
        drawn = agent.act_on(asked.states, rng)
        actions = np.array([one.values for one in drawn])
        rewards = mean_rewards(asked, actions) + rng.normal(0, _NOISE, _BATCH)
        ends = np.ones(_BATCH, bool)
        taken = np.array([one.propensity for one in drawn])
        agent.learn(Steps(asked.states, actions, taken, rewards, ends))
    return agent


class ShareOfOptimum(NamedTuple):
    """Rewards of a policy as shares of the optimum."""

    drawn: float
    likeliest: float
    fixed: float


def judge(agent: PPO, seed: int = 0, count: int = 2_000) -> ShareOfOptimum:
    """Return the rewards of a policy on held-out questions."""
    rng = np.random.default_rng([seed, 8])
    asked = contexts(count, rng)
    best = mean_rewards(asked, best_actions(asked)).mean()
    drawn = np.array([one.values for one in agent.act_on(asked.states, rng)])
    likeliest = np.array([agent.best(state) for state in asked.states])
    return ShareOfOptimum(
        float(mean_rewards(asked, drawn).mean() / best),
        float(mean_rewards(asked, likeliest).mean() / best),
        best_fixed(asked) / float(best),
    )
