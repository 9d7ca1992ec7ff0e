"""Parquet files return database values with bounded memory."""

from __future__ import annotations

import tracemalloc
from array import array
from uuid import UUID

from steersman.db.archive.datasets import DECISION
from steersman.db.archive.ledger import ErasureRecord
from steersman.db.archive.parquet_files import Writer, read_rows

NOTHING = ErasureRecord(frozenset(), frozenset())


async def test_features_of_many_candidates_stay_packed(tmp_path):
    values = array("f", (0.1 * n for n in range(5_000)))
    none = dict.fromkeys(column.name for column in DECISION.columns)

    def row(number):
        features = values if number else None
        return tuple({**none, "id": str(UUID(int=number)), "features": features}.values())

    async def rows():
        for number in range(401):
            yield row(number)

    writer = Writer(tmp_path / "day.parquet", DECISION)
    await writer.write(rows())
    writer.close()
    tracemalloc.start()
    read = list(read_rows(tmp_path / "day.parquet", DECISION, NOTHING))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(read) == 401
    assert all(one == row(number) for number, one in enumerate(read))  # a diff would take minutes
    assert most < 2 * 401 * values.itemsize * len(values)
