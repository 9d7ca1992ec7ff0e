"""A corpus of documents, an embedder that needs no model, and both over a real database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.retrieval.corpora import Corpora
from steersman.retrieval.documents.chunks import Chunking
from steersman.retrieval.documents.document import Document, Section
from steersman.retrieval.embedders import Embedders
from tests.retrieval.hashed_words import HashedWords

if TYPE_CHECKING:
    from uuid import UUID

    from steersman.platform.postgres.database import Database

SMALL = Chunking(64, 0)
PUMPS = "The centrifugal pump hums when its bearing is worn. Replace the bearing, then run it dry."
VALVES = "A relief valve opens at ten bar. See the manual called Pumps for what feeds it."
CABLES = "Cables are rated for forty amperes; fuses protect them."


def texts() -> list[Document]:
    """Return three small documents."""
    return [
        Document(
            "pumps.md", PUMPS, "Pumps", "/docs/pumps.md", {"year": 2026}, (Section(0, 1, "Hum"),)
        ),
        Document("valves.md", VALVES, "Valves", "/docs/valves.md"),
        Document("cables.txt", CABLES),
    ]


def corpora(database: Database, tenant: UUID, embedder: Any = None, **options: Any) -> Corpora:
    """Return the corpora of a tenant, embedded by ``hashed``."""
    own = Embedders(own={"hashed": embedder or HashedWords()})
    return Corpora(database, tenant, embedders=own, actor="test", **options)
