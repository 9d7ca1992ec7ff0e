"""Newest rows within a memory limit."""

from __future__ import annotations

from array import array

import pytest

from steersman.platform.postgres.database import newest_rows
from tests.db.rows import connected

ROWS = """
SELECT n AS id, array_fill(0.5::real, ARRAY[1000]) AS features,
  '[{"eligible": ["a"]}]'::jsonb AS steps
FROM generate_series(1, 300) AS n ORDER BY n DESC
"""


@pytest.mark.parametrize(("most_bytes", "first"), [(10**9, 1), (250 * 4_100, 51), (1, 300)])
async def test_what_takes_too_much_is_left_out_oldest_first(database, tenant, most_bytes, first):
    async with connected(database, "worker", tenant.id) as connection:
        rows = await newest_rows(connection, ROWS, most_bytes=most_bytes)
    assert [row[0] for row in rows] == list(range(first, 301))
    assert rows[-1][1] == array("f", [0.5] * 1_000)
