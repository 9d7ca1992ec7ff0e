"""Learning on public routing data, compared with the best fixed choice.

Sets with a score of every model (`RouterWorld` with prices or tasks): a bounded LinUCB over the
text gets a warm start on the train split. It learns online on the test split from the rewards of
its own choices. Its rival is the best model of the train split.

Sets with one right tool per request: `tool_choice` learns from right or wrong, without warm start.
Its rival is the best tool in hindsight on the same requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.points.policy_factory import warm_start
from steersman.policies import BoundedLinUCB
from steersman_systems.assistant.tool_choice import hashed_texts, right_tools

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from steersman_systems.assistant.routers import RouterWorld

    Floats = NDArray[np.float64]

DIM = 64
_NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class RoutingResult:
    """Mean rewards on a set.

    Args:
        name: Name of the set.
        requests: Number of decided requests.
        choices: Number of choices.
        orders: Number of arrival orders that each reward is averaged over.
        algorithm: Name of the learning policy.
        warm: Number of warm start requests, with the rewards of all choices; the best fixed choice
            is chosen on them. 0: chosen in hindsight.
        best_fixed_choice: The best fixed choice.
        learned: Mean reward while learning.
        best_fixed: Mean reward of the best fixed choice on the same requests.
        oracle: Mean reward of the best choice for each request.
        gain: Learned minus best fixed: value, low, high; 95 % interval over requests.
        late: Mean reward in the last fifth of the stream.
    """

    name: str
    requests: int
    choices: int
    orders: int
    algorithm: str
    warm: int
    best_fixed_choice: str
    learned: float
    best_fixed: float
    oracle: float
    gain: tuple[float, float, float]
    late: float


def learn_routing(
    world: RouterWorld, *, orders: int = 10, done: Callable[[], None] = lambda: None
) -> RoutingResult:
    """Learn online on a set from the rewards of the chosen actions.

    Args:
        orders: Number of arrival orders, at least 1, with seeds 0, 1, ...; sets with one right tool
            use one order, which takes minutes.

    Raises:
        InputError: No order, or fewer than four requests to decide.
    """
    if orders < 1:
        raise InputError(f"orders is {orders}; allowed: 1 or more")
    decided = len(world) if world.has_one_right else int((~world.train).sum())
    if decided < 4:
        message = f"{world.name} has {decided} requests to decide; at least 4 are needed"
        raise InputError(message)
    if world.has_one_right:
        routed = _tools(world)
        done()
        return routed
    return _models(world, orders, done)


def _models(world: RouterWorld, orders: int, done: Callable[[], None]) -> RoutingResult:
    rewards, names = world.rewards, world.names
    X = hashed_texts(world.texts, DIM)
    train, test = np.flatnonzero(world.train), np.flatnonzero(~world.train)
    best = names.index(world.best_fixed())
    earned = np.zeros((orders, len(world)))
    late = []
    for seed in range(orders):
        policy = BoundedLinUCB(names, X.shape[1])
        rows = np.repeat(train, len(names))
        warm_start(policy, X[rows], list(names) * len(train), rewards[train].ravel())
        rng = np.random.default_rng(seed)
        order = rng.permutation(test)
        for row in order:
            arm = names.index(policy.decide(X[row], rng=rng).action)
            policy.learn(X[row], names[arm], rewards[row, arm])
            earned[seed, row] = rewards[row, arm]
        late.append(earned[seed, order[-max(1, len(order) // 5) :]].mean())
        done()
    learned = earned[:, test].mean(axis=0)
    return _routed(world, test, learned, best, orders, "BoundedLinUCB", float(np.mean(late)))


def _tools(world: RouterWorld) -> RoutingResult:
    stream, right = right_tools(world)
    learned = right.astype(np.float64)
    best = int(world.rewards[stream].mean(axis=0).argmax())
    late = float(learned[-max(1, len(learned) // 5) :].mean())
    return _routed(world, stream, learned, best, 1, "JointSquareCB", late)


def _routed(
    world: RouterWorld,
    rows: NDArray[np.intp],
    learned: Floats,
    best: int,
    orders: int,
    algorithm: str,
    late: float,
) -> RoutingResult:
    fixed = world.rewards[rows, best]
    gain = learned - fixed
    value = float(gain.mean())
    half = _NORMAL_95 * float(gain.std(ddof=1) / np.sqrt(len(gain)))
    return RoutingResult(
        name=world.name,
        requests=len(rows),
        choices=len(world.names),
        orders=orders,
        algorithm=algorithm,
        warm=0 if world.has_one_right else int(world.train.sum()),
        best_fixed_choice=world.names[best],
        learned=float(learned.mean()),
        best_fixed=float(fixed.mean()),
        oracle=float(world.rewards[rows].max(axis=1).mean()),
        gain=(value, value - half, value + half),
        late=late,
    )
