"""Stored link graph between the passages of a revision."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from steersman.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from numpy.typing import NDArray


class StoredLinks(NamedTuple):
    """Link graph of passages.

    Attributes:
        starts: (n + 1,) start of each passage's links.
        targets: (m,) index of the linked passage.
        kinds: (m,) kind of link.
    """

    starts: NDArray[np.int64]
    targets: NDArray[np.int32]
    kinds: NDArray[np.uint8]


async def write_links(
    connection: Any,
    tenant: UUID,
    corpus: UUID,
    revision: int,
    hashes: Iterable[bytes],
    links: StoredLinks,
) -> None:
    """Store the graph of a revision; an existing one is replaced."""
    await connection.execute(
        "INSERT INTO corpus_links VALUES ($1, $2, $3, $4, $5, $6, $7) "
        "ON CONFLICT (tenant, corpus, revision) DO UPDATE SET passages = excluded.passages, "
        "starts = excluded.starts, targets = excluded.targets, kinds = excluded.kinds",
        *(tenant, corpus, revision, _digest(hashes)),
        links.starts.astype("<i8").tobytes(),
        links.targets.astype("<i4").tobytes(),
        links.kinds.astype("u1").tobytes(),
    )


async def read_links(
    connection: Any, tenant: UUID, corpus: UUID, revision: int, hashes: Iterable[bytes]
) -> StoredLinks | None:
    """Return the graph of a revision.

    Returns:
        The graph; None if there is none or it belongs to other passages.

    Raises:
        CorpusError: the stored graph is damaged.
    """
    row = await connection.fetchrow(
        "SELECT passages, starts, targets, kinds FROM corpus_links "
        "WHERE tenant = $1 AND corpus = $2 AND revision = $3",
        *(tenant, corpus, revision),
    )
    if row is None or row["passages"] != _digest(hashes):
        return None
    try:
        return StoredLinks(
            np.frombuffer(row["starts"], "<i8").astype(np.int64),
            np.frombuffer(row["targets"], "<i4").astype(np.int32),
            np.frombuffer(row["kinds"], "u1"),
        )
    except ValueError as error:
        message = f"the links of revision {revision} are damaged: {error}; add a document to the "
        raise CorpusError(message + "corpus to rebuild them") from error


def _digest(hashes: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for one in hashes:
        digest.update(one)
    return digest.digest()
