"""Synthetic world with known best questions, to test the interrogator's policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.features import FeatureMap
from steersman.points.policy_factory import build
from steersman_systems.interrogator.choosers import worth
from steersman_systems.interrogator.investigation import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from steersman.policies import ChoicePolicy
    from steersman.spec.point import DecisionPoint

    Floats = NDArray[np.float64]

SIZE = 384
REGIONS = 4
STEPS = 2_000
_SPREAD = 0.7
_NOISE = 0.02
_BEST, _GOOD, _REST = 0.12, 0.06, 0.01
_MISSES = 0.7


@dataclass(frozen=True, eq=False)
class World:
    """World with regions of embeddings; each region has its gains.

    Args:
            centres: (regions, size) unit vectors.
        gains: (regions, K) mean gain of each question.
    """

    centres: Floats
    gains: Floats

    @classmethod
    def draw(cls, questions: int, rng: np.random.Generator, *, regions: int = REGIONS) -> World:
        """Return a world: in each region one question brings .12, two bring .06, all others .01.

        Args:
            questions: Number of questions, at least 3.
            rng: Random generator.
            regions: Number of regions.
        """
        centres = rng.normal(size=(regions, SIZE))
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
        gains = np.full((regions, questions), _REST)
        for row in gains:
            best, *good = rng.choice(questions, 3, replace=False)
            row[best], row[good] = _BEST, _GOOD
        return cls(centres, gains)

    def visits(self, rng: np.random.Generator, steps: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield regions and contexts: a target of the region in a random state of a session.

        Args:
            rng: Random generator.
            steps: Number of contexts.
        """
        for _ in range(steps):
            region = int(rng.integers(len(self.centres)))
            noise = rng.normal(size=SIZE) * _SPREAD / np.sqrt(SIZE)
            target = self.centres[region] + noise
            yield (
                region,
                {
                    "target": target / np.linalg.norm(target),
                    "similarity": float(rng.uniform(0.1, 0.6)),
                    "similarity_change": float(rng.exponential(0.03)),
                    "answer_similarity": float(rng.uniform(0.1, 0.6)),
                    "step": int(rng.integers(LIMIT)),
                    "last": "",
                },
            )


@dataclass(frozen=True, eq=False)
class Shares:
    """Expected gains of choosers and oracle, by step.

    Args:
        oracle: (steps,) expected gain of the best question.
        gained: By chooser: (steps,) expected gain of the chosen question.
    """

    oracle: Floats
    gained: dict[str, Floats]

    def last(self, name: str, steps: int) -> float:
        """Return the share of the oracle's gain in the last steps.

        Args:
            name: Name of a chooser.
            steps: Number of last steps, at least 1.
        """
        return float(self.gained[name][-steps:].sum() / self.oracle[-steps:].sum())


def visit(point: DecisionPoint, seed: int, *, steps: int = STEPS) -> Shares:
    """Return the gains of the declared, a greedy and a uniform policy in one world.

    The greedy policy has the same model and takes the largest expected reward; ties go to the
    first.

    Args:
        point: Decision point with the policy.
        seed: Random seed of world, visits and choices.
        steps: Number of questions.
    """
    rng = np.random.default_rng([seed, 0])
    encoder = FeatureMap(point.context)
    names = tuple(getattr(point.actions, "names", ()))
    world = World.draw(len(names), rng)
    policies = {
        "LinTS": build(point.policy, names, dim=encoder.dim, floor=point.floor),
        "greedy": build(point.policy, names, dim=encoder.dim, floor=0.0),
    }
    draws = np.random.default_rng([seed, 1])
    noise = np.random.default_rng([seed, 2])
    oracle = np.zeros(steps)
    gained = {name: np.zeros(steps) for name in (*policies, "uniform")}
    for at, (region, context) in enumerate(world.visits(rng, steps)):
        x, means = encoder.encode(context), world.gains[region]
        oracle[at], gained["uniform"][at] = means.max(), means.mean()
        heard = noise.normal(0.0, _NOISE), float(noise.random() < _MISSES)
        for name, policy in policies.items():
            action = _choose(policy, x, draws, greedy=name == "greedy")
            gained[name][at] = means[action]
            came = {"similarity_gain": max(0.0, means[action] + heard[0]), "cache_miss": heard[1]}
            policy.learn(x, names[action], worth(point.reward, came))
    return Shares(oracle, gained)


def _choose(policy: ChoicePolicy, x: Floats, rng: np.random.Generator, *, greedy: bool) -> int:
    choice = policy.decide(x, rng=rng)
    if greedy:
        return int(np.argmax(choice.scores))
    return policy.actions.index(choice.action)
