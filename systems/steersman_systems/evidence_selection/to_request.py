"""Conversion of a pool to a request for ``configs/evidence/select.yaml``.

Values that change during selection are not sent: the service computes them from links and vectors.
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
"""Columns of `features.FEATURES` in a request: those that do not depend on the picks."""
_COLUMNS = [FEATURES.index(name) for name in OFFERED]


def offered_request(
    pool: Pool, *, follow: int = 20, added: int = 5, most: int = 200, vector: int = 32
) -> dict[str, Any]:
    """Return candidates, features and links of a pool, as `Client.decide` takes them.

    Args:
        follow: number of top candidates whose links are followed once picked, ≥ 0.
        added: maximum passages that one of them adds, ≥ 1.
        vector: vector size: a fixed random projection of the embedding, which keeps cosines to
            about 1/√vector; zeros without embeddings.
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
