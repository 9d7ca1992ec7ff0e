"""Mean reward while learning, with floor 0 and one default per policy for all sets.

``--sets`` names the sets below, the ``NAME`` of any ``uci/NAME.csv``, or any folder of ``--data``
in the format of a routing set or of metatool. Default: all below but llmrouter_dc. digits needs the
extra ``bench``.

Classification (digits, satimage, mushroom, adult): 10 seeded streams of 2,000 rows each. The peer
is a plain dense LinUCB in the same run. docs/adr/0007 has the choice of the bounded and kernel
policies.

Routing (routerbench_subset, score - 20 USD; llmrouter_dc, score alone): warm start on the train
split with all defaults, then online on the test split. The peer is the best model of the train
split.

Tools (metatool): share of right tools over the whole set, learned from right-or-wrong alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.classification_sets import DEFAULT_SETS, load, stream
from benchmarks.report import Figure, Options, command
from steersman.errors import DataError
from steersman.policies import BoundedLinUCB, EpsilonGreedy, KernelUCB, LinTS, LinUCB
from steersman_systems.assistant.routers import load_router
from steersman_systems.assistant.routing_trial import learn_routing
from steersman_systems.assistant.tool_choice import right_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from steersman_systems.assistant.routers import RouterWorld

    Floats = NDArray[np.float64]
    Make = Callable[[list[str], int], Any]

POLICIES: dict[str, Make] = {
    "LinUCB": LinUCB,
    "BoundedLinUCB": BoundedLinUCB,
    "KernelUCB": KernelUCB,
    "LinTS": LinTS,
    "EpsilonGreedy": EpsilonGreedy,
}
# First measurement of a plain LinUCB on these streams; each run also measures its own.
REFERENCE = {"digits": 0.841, "satimage": 0.809, "mushroom": 0.981, "adult": 0.834}
ROUTING_SETS = ("routerbench_subset", "llmrouter_dc")
BEST_MEAN_GOAL = 0.875
SUPERVISED_METATOOL = 0.841  # tf-idf and a linear SVM, 80/20 split, every label shown


class PlainLinUCB:
    """Reference LinUCB: dense inverses, numpy only, ties to the first arm."""

    def __init__(self, actions: list[str], dim: int) -> None:
        self._inverse = np.stack([np.eye(dim)] * len(actions))
        self._moment = np.zeros((len(actions), dim))

    def choose(self, x: Floats) -> int:
        """Return the arm with the largest bound at ``x`` (d,)."""
        v = self._inverse @ x
        return int(np.argmax((v * self._moment).sum(axis=1) + np.sqrt(v @ x)))

    def update(self, x: Floats, arm: int, reward: float) -> None:
        """Learn one reward by the Sherman-Morrison formula."""
        v = self._inverse[arm] @ x
        self._inverse[arm] -= np.outer(v, v) / (1.0 + x @ v)
        self._moment[arm] += reward * x


def run(options: Options) -> Iterator[Figure]:
    """Yield the figures of the chosen sets."""
    sets = options.sets or (*DEFAULT_SETS, "routerbench_subset", "metatool")
    seeds = range(2 if options.quick else 10)
    means: dict[str, list[float]] = {name: [] for name in POLICIES}
    for name in sets:
        if name in ROUTING_SETS:
            yield _routing(_router(name, options), options)
        elif name == "metatool":
            yield _tools(_router(name, options), options)
        elif _is_folder(name, options):
            world = _router(name, options)
            yield (_tools if world.has_one_right else _routing)(world, options)
        elif _is_table(name, options):
            yield from _classification(name, options, seeds, means)
        else:
            message = f"{name} is neither a folder of {options.data} nor a uci/{name}.csv there"
            raise DataError(f"{message}; put one there, or name {', '.join(DEFAULT_SETS)}")
    if means["LinUCB"]:
        yield _best_mean(means, goal=set(DEFAULT_SETS) <= set(sets))


def _router(name: str, options: Options) -> RouterWorld:
    folder = options.folder(name, "GitHub")  # a name may be a nested folder
    return load_router(folder.name, folder.parent)


def _is_folder(name: str, options: Options) -> bool:
    data = None if name in DEFAULT_SETS else options.data
    return data is not None and (data / name).is_dir()


def _is_table(name: str, options: Options) -> bool:
    data = None if name in DEFAULT_SETS else options.data
    return data is None or (data / "uci" / f"{name}.csv").is_file()


def _classification(
    name: str, options: Options, seeds: Sequence[int], means: dict[str, list[float]]
) -> Iterator[Figure]:
    X, classes = load(name, options)
    streams = [stream(X, classes, seed) for seed in seeds]
    arms = int(classes.max()) + 1
    plain = np.array([_plain_reward(*rows, arms) for rows in streams])
    for policy, make in POLICIES.items():
        rewards = np.array(
            [_reward(make, *rows, arms, seed) for seed, rows in zip(seeds, streams, strict=True)]
        )
        means[policy].append(float(rewards.mean()))
        peers = {"plain LinUCB": float(plain.mean())}
        if policy == "LinUCB":
            yield _beside_reference(name, rewards, plain, peers)
        else:
            yield _mean_figure(f"{policy} on {name}", rewards, peers=peers)


def _beside_reference(name: str, rewards: Floats, plain: Floats, peers: dict[str, float]) -> Figure:
    """Return LinUCB's reward; the goal: not 2 standard errors below either reference.

    Both are means over ten streams, so the standard error is that of their difference. The first
    reference is assumed to have the same error as that of this run.
    """
    known = REFERENCE.get(name, float(plain.mean()))
    error = float(np.hypot(_standard_error(rewards), _standard_error(plain)))
    holds = rewards.mean() >= max(known, float(plain.mean())) - 2.0 * error
    goal = f">= {known:g} - 2 standard errors of the difference"
    return _mean_figure(f"LinUCB on {name}", rewards, goal=goal, holds=bool(holds), peers=peers)


def _best_mean(means: dict[str, list[float]], *, goal: bool) -> Figure:
    averages = {name: float(np.mean(values)) for name, values in means.items()}
    best = max(averages, key=lambda name: averages[name])
    others = {name: value for name, value in averages.items() if name != best}
    return Figure(
        f"best single default: {best}, mean over the sets",
        averages[best],
        goal=f"> {BEST_MEAN_GOAL}" if goal else None,
        holds=averages[best] > BEST_MEAN_GOAL if goal else None,
        peers=others,
    )


def _plain_reward(X: Floats, classes: NDArray[np.intp], arms: int) -> float:
    reference, total = PlainLinUCB([""] * arms, X.shape[1]), 0.0
    for x, truth in zip(X, classes, strict=True):
        arm = reference.choose(x)
        reward = float(arm == truth)
        reference.update(x, arm, reward)
        total += reward
    return total / len(X)


def _reward(make: Make, X: Floats, classes: NDArray[np.intp], arms: int, seed: int) -> float:
    policy, rng = make([str(arm) for arm in range(arms)], X.shape[1]), np.random.default_rng(seed)
    total = 0.0
    for x, truth in zip(X, classes, strict=True):
        action = policy.decide(x, rng=rng).action
        reward = float(int(action) == truth)
        policy.learn(x, action, reward)
        total += reward
    return total / len(X)


def _routing(routes: RouterWorld, options: Options) -> Figure:
    """Return the gain per request over the best fixed model, paired by request."""
    routed = learn_routing(routes, orders=2 if options.quick else 10)
    gain, low, high = routed.gain
    promised = routes.name == "routerbench_subset"
    return Figure(
        f"{routes.name}: BoundedLinUCB, gain over the best fixed model",
        gain,
        low,
        high,
        "score" if routes.costs_usd is None else "score - 20 USD",
        "interval above 0" if promised else None,
        low > 0.0 if promised else None,
        {
            f"reward of {routed.best_fixed_choice}": routed.best_fixed,
            "reward of the oracle": routed.oracle,
        },
    )


def _tools(tools: RouterWorld, options: Options) -> Figure:
    """Return the share of right tools while learning from right-or-wrong feedback only."""
    _, found = right_tools(tools, rows=2000 if options.quick else None)
    right = found.astype(np.float64)
    half = 1.96 * _standard_error(right)
    last = right[-len(right) // 5 :]
    known = {"supervised, all labels shown": SUPERVISED_METATOOL}
    return Figure(
        f"{tools.name}: JointSquareCB over 20 candidates, right tools while learning",
        float(right.mean()),
        float(right.mean()) - half,
        float(right.mean()) + half,
        "share",
        peers=(known if tools.name == "metatool" else {})
        | {"last fifth of the stream": float(last.mean())},
    )


def _mean_figure(name: str, values: Floats, **keywords: Any) -> Figure:
    half = 1.96 * _standard_error(values)
    mean = float(values.mean())
    return Figure(name, mean, mean - half, mean + half, "reward", **keywords)


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


if __name__ == "__main__":
    command("learning", run, doc=__doc__)
