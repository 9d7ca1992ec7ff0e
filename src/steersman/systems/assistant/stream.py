"""An hour of arrivals, and what the cache tiers would say to each of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from steersman.systems.assistant.arrivals import (
    arrival_times,
    arrivals,
    expected_arrivals,
    guardian_states,
)
from steersman.systems.assistant.cache import LOOKUPS, CacheTiers, Lookup
from steersman.systems.assistant.lexical import hashed_vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman.systems.assistant.world import World

_hashed = lru_cache(maxsize=4096)(hashed_vector)  # every order has the same texts


@dataclass(frozen=True, slots=True)
class Glance:
    """The cache tiers at one arrival, before it is written to them.

    Args:
        features: What is known before a lookup is chosen.
        lookups: What each lookup would find, by name.
    """

    features: dict[str, float]
    lookups: dict[str, Lookup]


@dataclass(frozen=True, slots=True)
class Stream:
    """m arrivals in their order.

    Args:
        requests: (m,) int64, index of the request that arrives.
        times_s: (m,) float64, ascending seconds.
        guardian: m states of the load guardian; the load is drawn, so they are simulated.
        glances: m glances at the cache tiers.
    """

    requests: NDArray[np.int64]
    times_s: NDArray[np.float64]
    guardian: tuple[str, ...]
    glances: tuple[Glance, ...]

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def first_seen(self) -> NDArray[np.bool_]:
        """(m,) whether the request itself comes for the first time."""
        first = np.zeros(len(self), np.bool_)
        first[np.unique(self.requests, return_index=True)[1]] = True
        return first


def draw_stream(world: World, rng: np.random.Generator, *, n_arrivals: int | None = None) -> Stream:
    """An hour of arrivals by the laws of `arrivals`: every request at least once, then repeats.

    Args:
        world: The requests.
        rng: Source of all randomness.
        n_arrivals: Length, at least the number of requests; ``None`` for what the law expects.

    Returns:
        The stream. Its glances do not depend on any policy: every arrival updates all tiers with
        what the default route (the best fused score) finds for it, after the answer is given and
        at no charge to the request.

    Raises:
        InputError: A stream shorter than the number of requests.
    """
    count = expected_arrivals(len(world)) if n_arrivals is None else n_arrivals
    order = arrivals(len(world), count, rng)
    times = arrival_times(len(order), rng)
    glances = _glances(world, order, times)
    return Stream(order, times, tuple(guardian_states(times)), tuple(glances))


def _glances(world: World, order: NDArray[np.int64], times_s: NDArray[np.float64]) -> list[Glance]:
    now_s = 0.0
    dim = world.recording.request_embedding.shape[1]
    tiers = CacheTiers(lambda: now_s, dim=dim, hashing=_hashed)
    glances = []
    for request, at_s in zip(order.tolist(), times_s.tolist(), strict=True):
        now_s = at_s
        asked, embedding = world.catalogue.requests[request], world.embedding(request)
        lookups: dict[str, Lookup] = {
            kind: tiers.look_up(kind, asked.text, embedding) for kind in LOOKUPS
        }
        glances.append(Glance(tiers.features(asked.text), lookups))
        found = world.tool_right(request, int(world.shortlist(request)[0]))
        cheap = world.tool_right(request, world.bm25_best(request))
        answer = asked.answer if found else None
        tiers.update(asked.text, embedding, answer=answer, cheap_ok=cheap)
    return glances
