"""Request to a served decision point from a pool: ``configs/evidence/select.yaml``.

Values that change while passages are picked are not sent: the service computes them from links and
vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman_systems.evidence_selection.environment import State
from steersman_systems.evidence_selection.features import FEATURES, rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from steersman_systems.evidence_selection.pool import Pool

OFFERED = (
    *("lexical", "dense", "fused", "lexical_rank", "dense_rank", "fused_rank", "position"),
    *("length", "topic", "title_overlap", "title_asked", "coverage", "named_by_leading"),
    "names_leading",
)
"""Columns of `features.FEATURES` that a request carries: those that do not depend on what is
picked."""
_COLUMNS = [FEATURES.index(name) for name in OFFERED]


def offered_request(
    pool: Pool, *, follow: int = 20, added: int = 5, most: int = 200, vector: int = 32
) -> dict[str, Any]:
    """Return candidates, features and links of a pool, as `Client.decide` takes them.

    Args:
        follow: so many of the best bring in what they lead to, once picked, ≥ 0.
        added: passages that one of them brings in at most, ≥ 1.
        vector: numbers of each passage's vector: its embedding by a fixed random projection, which
            keeps cosines to about 1/√vector; zeros where the pool has no embeddings.
    """
    grown = pool
    for place in range(min(follow, len(pool))):
        grown = grown.expanded(place, most=min(added, most - len(grown)))
    names = [one.id for one in grown.candidates]
    told = np.hstack([rows(State(grown))[: len(grown), _COLUMNS], _projected(grown, vector)])
    where = {position: number for number, position in enumerate(grown.positions.tolist())}
    links = {}
    for place in range(min(follow, len(pool))):
        targets = [where[one] for one in grown.neighbours(place).tolist() if one in where]
        if targets:
            links[names[place]] = [names[target] for target in targets]
    return {
        "eligible": names[: len(pool)],
        "features": dict(zip(names, told.tolist(), strict=True)),
        "links": links,
    }


def _projected(pool: Pool, size: int) -> NDArray[np.float64]:
    vectors = pool.vectors
    if vectors is None or not size:
        return np.zeros((len(pool), size))
    spread = np.random.default_rng(0).standard_normal((vectors.shape[1], size))
    found: NDArray[np.float64] = vectors.astype(np.float64) @ (spread / np.sqrt(size))
    return found
