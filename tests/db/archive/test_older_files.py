"""Files from before a new column are read with NULL in it."""

from dataclasses import replace

from steersman.db.archive.datasets import DECISION
from steersman.db.archive.ledger import ErasureRecord
from steersman.db.archive.parquet_files import Writer, read_rows

NOTHING = ErasureRecord(frozenset(), frozenset())


async def _rows(rows):
    for row in rows:
        yield row


async def test_decisions_of_before_selections_have_no_steps(tmp_path):
    before = replace(DECISION, columns=DECISION.columns[:-2])
    assert [column.name for column in DECISION.columns[-2:]] == ["links", "steps"]
    row = tuple(column.name if column.type == "string" else None for column in before.columns)
    writer = Writer(tmp_path / "old.parquet", before)
    await writer.write(_rows([row]))
    writer.close()
    (read,) = read_rows(tmp_path / "old.parquet", DECISION, NOTHING)
    assert read == (*row, None, None)
