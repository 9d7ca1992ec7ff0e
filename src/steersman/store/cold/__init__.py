"""Cold store: daily compaction to Parquet, and SQL over cold and hot rows."""

from __future__ import annotations

from steersman.store.cold.compaction import Compacted, compact
from steersman.store.cold.destination import Bucket, Destination, Directory, open_destination
from steersman.store.cold.ledger import Export
from steersman.store.cold.query import query
from steersman.store.cold.schedule import run_daily

__all__ = [
    "Bucket",
    "Compacted",
    "Destination",
    "Directory",
    "Export",
    "compact",
    "open_destination",
    "query",
    "run_daily",
]
