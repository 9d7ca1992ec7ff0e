"""The graph between the passages of a revision, kept so that nobody has to find it again."""

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
    """Which passages lead to which.

    Attributes:
        starts: (n + 1,) where the links of each passage begin.
        targets: (m,) places of passages.
        kinds: (m,) of links.
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
    """Keep the graph of a revision; one that is there is replaced.

    Args:
        connection: of role owner, within a transaction of the tenant.
        tenant: whose.
        corpus: its id.
        revision: of it.
        hashes: of the passages that are linked, in their order.
        links: between them.
    """
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

    Args:
        connection: within a transaction of the tenant.
        tenant: whose.
        corpus: its id.
        revision: of it.
        hashes: of the passages as they are now, in their order.

    Returns:
        None: none was kept, or it was of other passages.

    Raises:
        CorpusError: what is kept is damaged.
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
