"""Choosing one of many tools by text, from right-or-wrong alone: a joint model over a shortlist.

A tool is described by its text and by the requests it served well. The 20 nearest tools of a
request are its candidates; a shared linear model learns what the nearness, the tool's record and
its failures are worth. Nothing sees the right tool of a request where another one was chosen.

The shortlist, the weighting of slots, gamma and the features were chosen on the stream of seed 0,
which `benchmarks.learning` reports, so its figure is a little kind. Three other orders of the same
requests (seeds 11, 12, 13) gave .581, .609 and .582 against .601.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.features import FeatureMap
from steersman.policies import JointSquareCB
from steersman.spec import Context, TextField

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.systems.assistant.routers import RouterWorld

    Floats = NDArray[np.float64]

SLOTS = 1024
CANDIDATES = 20
UNLABELLED = 2000
GAMMA = 1e4  # with 20 candidates: a gap of .05 in success leaves a candidate 1/520 of the mass
TEXT_WEIGHT = 2.0  # a tool's own text counts as much as two requests that it served


def hashed_texts(texts: Sequence[str], dim: int) -> Floats:
    """Return texts as a policy of text alone sees them.

    Args:
        texts: n texts.
        dim: of the feature map, at least 2.

    Returns:
        (n, dim) float64, a constant in column 0.

    >>> hashed_texts(["book a table", "book a table"], 8).shape
    (2, 8)
    """
    encoder = FeatureMap(Context(dim=dim, fields={"text": TextField(type="text")}))
    return encoder.encode_batch([{"text": text} for text in texts])


class _Tools:
    """What is known of every tool: its profile in text space, and its record."""

    def __init__(self, profiles: Floats) -> None:
        self.profiles = TEXT_WEIGHT * profiles
        self.texts = profiles
        self.failures = np.zeros_like(profiles)
        self.uses = np.zeros(len(profiles))
        self.successes = np.zeros(len(profiles))

    def features(self, x: Floats) -> tuple[NDArray[np.intp], Floats]:
        """Return the nearest tools of a request and their (n, 8) features."""
        nearness = self.profiles @ x / np.linalg.norm(self.profiles, axis=1)
        near = np.argsort(-nearness, kind="stable")[:CANDIDATES]
        failed = self.failures[near]
        rate = (self.successes[near] + 0.2) / (self.uses[near] + 1.0)
        columns = (
            np.ones(len(near)),
            self.texts[near] @ x,
            nearness[near],
            failed @ x / (1.0 + np.linalg.norm(failed, axis=1)),
            rate,
            1.0 / np.sqrt(1.0 + self.uses[near]),
            nearness[near] - nearness.max(),
            rate * nearness[near],
        )
        return near, np.column_stack(columns)

    def add(self, tool: int, x: Floats, *, right: bool) -> None:
        """Remember one use."""
        self.uses[tool] += 1.0
        self.successes[tool] += right
        (self.profiles if right else self.failures)[tool] += x


def right_tools(
    world: RouterWorld, *, rows: int | None = None, seed: int = 0
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return for each request of a seeded stream whether the tool chosen was the right one.

    Args:
        world: each request has one right choice, with reward 1.
        rows: the first so many of the stream; None: all.
        seed: of the stream's order and of the draws.

    Returns:
        The requests' places in the world (m,), in the stream's order, and (m,) bool.

    The slots of the text space are weighted by how common they are among 2,000 request texts that
    are shown beforehand without their tools and do not return in the stream; half of them, where
    there are fewer than twice as many.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(world.texts))
    shown = min(UNLABELLED, len(order) // 2)
    spare, stream = order[:shown], order[shown:][:rows]
    texts = hashed_texts(world.texts, SLOTS)[:, 1:]
    energy = (texts[spare] ** 2).mean(axis=0)
    weights = 1.0 / np.sqrt(energy + 0.1 * energy.mean())
    described = [f"{name} {text}" for name, text in zip(world.names, _texts(world), strict=True)]
    tools = _Tools(_weighted(hashed_texts(described, SLOTS)[:, 1:], weights))
    X = _weighted(texts, weights)
    policy = JointSquareCB((), 8, gamma=GAMMA)
    right = np.zeros(len(stream), dtype=np.bool_)
    for i, row in enumerate(stream):
        near, features = tools.features(X[row])
        names = [str(tool) for tool in near]
        action = policy.decide(None, rng=rng, eligible=names, features=features).action
        tool = int(action)
        right[i] = world.rewards[row, tool] == 1.0
        policy.learn(features[names.index(action)], action, float(right[i]))
        tools.add(tool, X[row], right=bool(right[i]))
    return stream, right


def _texts(world: RouterWorld) -> Sequence[str]:
    return world.descriptions or ("",) * len(world.names)


def _weighted(rows: Floats, weights: Floats) -> Floats:
    weighted = rows * weights
    unit: Floats = weighted / np.maximum(np.linalg.norm(weighted, axis=1, keepdims=True), 1e-12)
    return unit
