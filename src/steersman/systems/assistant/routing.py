"""Learning on other people's routing data: what is earned while learning, beside fixed choices.

Requests with a score of every model (`RouterWorld` with prices or tasks): a bounded LinUCB over the
text, started warm on the train split, learns online on the test split from the reward of what it
chose alone; the rival is the model that was best on the train split. Requests with one right tool:
`tool_choice` learns from right or wrong alone, with nothing to start from; the rival is the tool
that is right most often on the very same requests, which nobody knows beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.policies import BoundedLinUCB, warm_start
from steersman.systems.assistant.tool_choice import hashed_texts, right_tools

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from steersman.systems.assistant.routers import RouterWorld

    Floats = NDArray[np.float64]

DIM = 64
_NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Routed:
    """What was earned on a set, per request.

    Args:
        name: of the set.
        requests: that were decided.
        choices: among which.
        orders: of arrival, over which a request's reward is averaged.
        algorithm: that learned.
        warm: other requests that were learned beforehand, from the rewards of all choices; the
            rival is what was best on them. Where it is 0, the rival is what was best in hindsight.
        best_fixed_choice: the choice that the rival always makes.
        learned: mean reward while learning.
        best_fixed: mean reward of the rival on the same requests.
        oracle: mean reward of the best choice for each request.
        gain: learned minus best fixed: value, low, high; 95 %, over requests.
        late: mean reward in the last fifth of the stream.
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
) -> Routed:
    """Learn on a set, online, from the reward of what was chosen.

    Args:
        world: of `load_router`.
        orders: of arrival, at least 1, seeded 0, 1, ...; where one tool is right there is one
            order, as that takes minutes.
        done: called after each order.

    Returns:
        What was earned.

    Raises:
        InputError: No order, or fewer than four requests to decide.
    """
    if orders < 1:
        raise InputError(f"orders is {orders}; allowed: 1 or more")
    decided = len(world) if world.has_one_right else int((~world.train).sum())
    if decided < 4:
        message = f"{world.name} has {decided} requests to decide; 4 or more are needed"
        raise InputError(message)
    if world.has_one_right:
        routed = _tools(world)
        done()
        return routed
    return _models(world, orders, done)


def _models(world: RouterWorld, orders: int, done: Callable[[], None]) -> Routed:
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


def _tools(world: RouterWorld) -> Routed:
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
) -> Routed:
    fixed = world.rewards[rows, best]
    gain = learned - fixed
    value = float(gain.mean())
    half = _NORMAL_95 * float(gain.std(ddof=1) / np.sqrt(len(gain)))
    return Routed(
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
