"""Stored vectors by tenant, embedder and text hash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import CorpusError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from numpy.typing import NDArray

_BATCH = 10_000


async def hold_vectors(connection: Any, tenant: UUID) -> None:
    """Lock the vectors of a tenant until the transaction ends.

    Take this lock before deleting unused vectors or committing passages; otherwise a vector could
    be deleted while a new passage needs it.
    """
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"corpus-vectors/{tenant}"
    )


async def known_vectors(
    connection: Any, tenant: UUID, embedder: str, hashes: Sequence[bytes]
) -> set[bytes]:
    """Return the texts that have a vector."""
    rows = await connection.fetch(
        "SELECT hash FROM corpus_vector WHERE tenant = $1 AND embedder = $2 AND hash = ANY($3)",
        *(tenant, embedder, list(hashes)),
    )
    return {row["hash"] for row in rows}


async def write_vectors(
    connection: Any, tenant: UUID, embedder: str, vectors: Mapping[bytes, NDArray[np.float32]]
) -> None:
    """Store vectors as float16; existing ones are kept.

    Raises:
        InputError: a number is not finite as float16.
    """
    packed = {}
    for key in sorted(vectors):  # one order for all writers prevents deadlocks
        with np.errstate(over="ignore"):  # detected below
            half = np.asarray(vectors[key]).astype("<f2")
        if not np.isfinite(half).all():
            message = f"a vector of {embedder} is not finite as float16; use vectors of length one"
            raise InputError(message)
        packed[key] = half.tobytes()
    await connection.execute(
        "INSERT INTO corpus_vector (tenant, embedder, hash, vector) "
        "SELECT $1, $2, * FROM unnest($3::bytea[], $4::bytea[]) ON CONFLICT DO NOTHING",
        *(tenant, embedder, list(packed), list(packed.values())),
    )


async def read_vectors(
    connection: Any, tenant: UUID, embedder: str, dimension: int, hashes: Sequence[bytes]
) -> NDArray[np.float32]:
    """Return the unit vectors of texts.

    Returns:
        (hashes, dimension) float32, in order.

    Raises:
        CorpusError: a text has no vector, or one of another dimension.
    """
    places = {key: place for place, key in enumerate(hashes)}
    found = np.zeros((len(hashes), dimension), np.float32)
    for first in range(0, len(hashes), _BATCH):
        rows = await connection.fetch(
            "SELECT hash, vector FROM corpus_vector "
            "WHERE tenant = $1 AND embedder = $2 AND hash = ANY($3)",
            *(tenant, embedder, list(hashes[first : first + _BATCH])),
        )
        for key, vector in rows:
            if len(vector) != 2 * dimension:
                raise CorpusError(
                    f"a stored vector of {embedder} has {len(vector) // 2} numbers and must have "
                    f"{dimension}; embed the corpus again under another name"
                )
            found[places.pop(key)] = np.frombuffer(vector, "<f2")
    if places:
        raise CorpusError(
            f"{len(places)} of {len(hashes)} passages have no vector of {embedder}; remove "
            "their documents and add them again"
        )
    # float16 also rounds the length.
    return found / np.linalg.norm(found, axis=1, keepdims=True) if len(found) else found
