"""Cancelled connection attempts and invalid URLs."""

from __future__ import annotations

import asyncio
import gc
import traceback

import pytest

from steersman.errors import StoreError
from steersman.platform.postgres.database import Database, store_is_away


async def test_a_connection_that_nobody_waits_for_any_more_is_closed(database):
    database = Database(database.url)  # without those that are kept
    begun = asyncio.get_running_loop().time()
    await (await database.connect("app")).close()
    takes = asyncio.get_running_loop().time() - begun
    given_up = 0
    for part in range(100):  # in every state that it can be in
        try:
            async with asyncio.timeout(takes * part / 100):
                connection = await database.connect("app")
        except TimeoutError:
            given_up += 1
        else:
            await connection.close()
    assert given_up > 0
    gc.collect()  # whatever is still open then tells, and no test may leave warnings
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    "url",
    [
        *(
            f"postgresql://steersman:{rest}"
            for rest in (
                "Secr3t/tail@127.0.0.1:1/db",
                "Secr3t#tail@127.0.0.1:1/db",
                "Secr3t?tail@127.0.0.1:1/db",
                "Secr3t[tail@127.0.0.1:1/db",
                "p@tail:Secr3t@127.0.0.1:1/db",
                "p@127.0.0.1:Secr3t/db",
                "p@127.0.0.1:1/db?Secr3t",
                "p@127.0.0.1,/Secr3t",
            )
        ),
        "mysql://steersman:Secr3t@127.0.0.1/db",
        "Secr3t",
    ],
)
async def test_what_is_no_url_is_told_without_its_password(url):
    with pytest.raises(StoreError, match=r"invalid DATABASE_URL: expected .*%40 %3A %2F") as told:
        await Database(url).connect()
    shown = "".join(traceback.format_exception(told.value))
    assert "Secr3t" not in shown
    assert "tail" not in str(told.value)
    assert not store_is_away(told.value)


@pytest.mark.parametrize("url", ["Secr3t", "mysql://steersman:Secr3t@127.0.0.1/db", "/Secr3t"])
def test_who_waits_for_a_server_to_come_back_does_not_wait_for_what_is_none(url, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(StoreError, match="invalid DATABASE_URL: expected ") as told:
        Database.open()
    assert "Secr3t" not in str(told.value)
    assert Database.open(url="PostgreSQL://127.0.0.1:1/db").url == "PostgreSQL://127.0.0.1:1/db"
