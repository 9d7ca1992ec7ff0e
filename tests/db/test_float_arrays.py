"""Fast codec for real[] columns."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.platform.postgres.codecs import from_bytes, to_bytes


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=200))
def test_what_is_written_is_read(values):
    assert from_bytes(to_bytes(values)) == values


@pytest.mark.parametrize("values", [[], [0.1], [0.1, -2.5, 3e38], np.linspace(0, 1, 64)])
def test_the_server_reads_the_same_numbers(database, values):
    async def ask():
        connection = await database.connect("app")
        try:
            row = await connection.fetchrow("SELECT $1::real[] AS v, $1::real[]::text AS t", values)
        finally:
            await connection.close()
        return row

    row = asyncio.run(ask())
    expected = np.asarray(values, dtype=np.float32)
    assert row["v"] == expected.astype(float).tolist()
    told = np.array([float(part) for part in row["t"].strip("{}").split(",") if part])
    assert (told.astype(np.float32) == expected).all()
