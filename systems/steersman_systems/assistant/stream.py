"""Stream of arrivals, with the state of the cache tiers at each arrival."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from steersman_systems.assistant.arrivals import (
    arrival_times,
    arrivals,
    expected_arrivals,
    guardian_states,
)
from steersman_systems.assistant.cache import LOOKUPS, CacheTiers, Lookup
from steersman_systems.assistant.lexical import hashed_vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman_systems.assistant.world import World

_hashed = lru_cache(maxsize=4096)(hashed_vector)  # every order has the same texts


@dataclass(frozen=True, slots=True)
class Glance:
    """Cache tiers at one arrival, before its update.

    Args:
        features: Features known before the lookup.
        lookups: Result of each lookup, by name.
    """

    features: dict[str, float]
    lookups: dict[str, Lookup]


@dataclass(frozen=True, slots=True)
class Stream:
    """m arrivals in order.

    Args:
        requests: (m,) int64, index of the request of each arrival.
        times_s: (m,) float64, ascending seconds.
        guardian: m states of the load guardian, from the simulated load.
        glances: m states of the cache tiers.
    """

    requests: NDArray[np.int64]
    times_s: NDArray[np.float64]
    guardian: tuple[str, ...]
    glances: tuple[Glance, ...]

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def first_seen(self) -> NDArray[np.bool_]:
        """True at the first arrival of each request, (m,)."""
        first = np.zeros(len(self), np.bool_)
        first[np.unique(self.requests, return_index=True)[1]] = True
        return first


def draw_stream(world: World, rng: np.random.Generator, *, n_arrivals: int | None = None) -> Stream:
    """Draw an hour of arrivals: every request at least once, then repeats, see `arrivals`.

    The cache tiers do not depend on a policy: after each answer, every arrival updates all tiers
    with the result of the default route (the best fused score), at no cost to the request.

    Args:
        n_arrivals: Number of arrivals, at least the number of requests; ``None`` for the expected
            number.

    Raises:
        InputError: Fewer arrivals than requests.
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
