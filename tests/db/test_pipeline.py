"""Pipeline mode: order, errors and lost connections."""

from __future__ import annotations

import asyncio
from struct import pack, unpack
from uuid import uuid4

import asyncpg
import pytest

from steersman.platform.postgres.pipeline import Pipeline, SharedPipeline
from tests.db.rows import connected

ECHO = "SELECT $1::int4, pg_current_xact_id()::text"
DIVIDE = "SELECT 12 / $1::int4"
SLEEP = "SELECT pg_sleep($1::int4 / 1000.0), $1::int4"


def _int4(value):
    return [pack(">i", value)]


def _number(rows):
    return unpack(">i", rows[0][0])[0]


async def _opened(database, statement, **options):
    return await Pipeline.open(database, statement, row_type="event", **options)


async def test_all_are_answered_in_order_each_in_a_transaction_of_its_own(database):
    pipeline = await _opened(database, ECHO)
    answers = await asyncio.gather(*(pipeline.ask(_int4(n)) for n in range(500)))
    assert [_number(rows) for rows in answers] == list(range(500))
    transactions = [int(rows[0][1]) for rows in answers]
    assert len(set(transactions)) == 500
    assert transactions == sorted(transactions)
    await pipeline.close()
    assert pipeline.is_closed()


async def test_it_is_the_role_and_has_the_settings_of_every_connection(database):
    statement = (
        "SELECT current_user::text, current_setting('search_path'), "
        "current_setting('synchronous_commit'), current_setting('statement_timeout')"
    )
    pipeline = await _opened(database, statement, limit_s=2.5)
    (row,) = await pipeline.ask([])
    assert row == (b"steersman_app", b"steersman, pg_temp", b"on", b"2500ms")
    await pipeline.close()


async def test_an_error_is_that_of_one_and_the_others_are_answered(database):
    pipeline = await _opened(database, DIVIDE)
    asked = [pipeline.ask(_int4(n)) for n in (1, 0, 3, 0, 4)]
    said = await asyncio.gather(*asked, return_exceptions=True)
    assert [_number(said[n]) for n in (0, 2, 4)] == [12, 4, 3]
    for error in (said[1], said[3]):
        assert isinstance(error, asyncpg.DivisionByZeroError)
        assert error.sqlstate == "22012"
        assert str(error) == "division by zero"
    assert _number(await pipeline.ask(_int4(2))) == 6
    await pipeline.close()


async def test_rows_have_any_number_and_columns_may_be_null(database):
    statement = "SELECT n, CASE WHEN n % 2 = 0 THEN '' END FROM generate_series(1, $1::int4) AS n"
    pipeline = await _opened(database, statement)
    none, three = await asyncio.gather(pipeline.ask(_int4(0)), pipeline.ask(_int4(3)))
    assert none == []
    assert three == [(pack(">i", 1), None), (pack(">i", 2), b""), (pack(">i", 3), None)]
    await pipeline.close()


async def test_answers_that_come_byte_by_byte_are_read(database):
    pipeline = await _opened(database, ECHO)

    class Bytewise(asyncio.Protocol):
        def data_received(self, data):
            for byte in data:
                pipeline.data_received(bytes([byte]))

        def connection_lost(self, exc):
            pipeline.connection_lost(exc)

    pipeline._transport.set_protocol(Bytewise())
    answers = await asyncio.gather(*(pipeline.ask(_int4(n)) for n in range(20)))
    assert [_number(rows) for rows in answers] == list(range(20))
    await pipeline.close()


async def test_what_the_server_says_besides_is_no_answer(database):
    """A changed setting and a warning arrive in the middle of an answer."""
    statement = (
        "SELECT $1::int4, set_config('application_name', 'n' || $1, false), pg_cancel_backend(0)"
    )
    pipeline = await _opened(database, statement)
    answers = await asyncio.gather(*(pipeline.ask(_int4(n)) for n in range(3)))
    assert [_number(rows) for rows in answers] == [0, 1, 2]
    assert answers[2][0][1:] == (b"n2", b"\0")
    await pipeline.close()


async def test_who_no_longer_waits_does_not_shift_the_answers(database):
    pipeline = await _opened(database, SLEEP)
    slow, left, right = (pipeline.ask(_int4(n)) for n in (200, 2, 3))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await slow
    left.cancel()
    assert unpack(">i", (await right)[0][1]) == (3,)
    assert unpack(">i", (await pipeline.ask(_int4(4)))[0][1]) == (4,)
    await pipeline.close()


async def test_the_server_gives_up_what_takes_too_long(database):
    pipeline = await _opened(database, SLEEP, limit_s=0.1)
    slow, next_one = pipeline.ask(_int4(30_000)), pipeline.ask(_int4(1))
    with pytest.raises(asyncpg.QueryCanceledError, match="statement timeout"):
        await slow
    assert unpack(">i", (await next_one)[0][1]) == (1,)
    await pipeline.close()


async def test_all_who_wait_hear_that_the_connection_is_lost_and_the_next_has_another(database):
    shared = SharedPipeline(database, SLEEP, row_type="event")
    first, same = await asyncio.gather(shared.connect(), shared.connect())
    assert first is same
    asked = [first.ask(_int4(30_000)) for _ in range(3)]
    await asyncio.sleep(0.1)
    async with connected(database, None) as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = $1", SLEEP
        )
    errors = await asyncio.gather(*asked, return_exceptions=True)
    # Why it ended says nothing of what was asked: whoever writes would take it for a row's fault.
    assert isinstance(errors[0], asyncpg.ConnectionDoesNotExistError)
    assert "terminating connection due to administrator command (57P01)" in str(errors[0])
    assert [type(error) for error in errors[1:]] == [ConnectionResetError] * 2
    assert first.is_closed()
    with pytest.raises(ConnectionResetError, match="is closed"):
        await first.ask(_int4(1))
    await first.close()  # nothing is left to do
    second = await shared.connect()
    assert second is not first
    assert unpack(">i", (await second.ask(_int4(1)))[0][1]) == (1,)
    await second.close()


async def test_a_lock_is_not_waited_for_for_long(database):
    statement = "SELECT $1::int4, pg_advisory_xact_lock($1)"
    pipeline = await _opened(database, statement)
    async with connected(database) as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(77)")
        locked, free = pipeline.ask(_int4(77)), pipeline.ask(_int4(78))
        with pytest.raises(asyncpg.LockNotAvailableError):
            await locked
        assert _number(await free) == 78
    assert _number(await pipeline.ask(_int4(77))) == 77
    await pipeline.close()


async def test_a_function_that_was_made_anew_is_prepared_anew(database):
    name = f"remade_{uuid4().hex}"
    make = f"CREATE FUNCTION steersman.{name}(integer) RETURNS TABLE (n {{}}) LANGUAGE sql AS "
    make += "'SELECT $1::{}'"
    async with connected(database, None) as owner:
        await owner.execute(make.format("integer", "integer"))
        shared = SharedPipeline(database, f"SELECT n FROM {name}($1::int4)", row_type="event")
        pipeline = await shared.connect()
        assert _number(await pipeline.ask(_int4(7))) == 7
        await owner.execute(f"DROP FUNCTION steersman.{name}")
        await owner.execute(make.format("text", "text"))
        with pytest.raises(ConnectionResetError, match="became invalid"):
            await pipeline.ask(_int4(7))
        assert pipeline.is_closed()
        another = await shared.connect()
        assert await another.ask(_int4(7)) == [(b"7",)]
        await another.close()
        await owner.execute(f"DROP FUNCTION steersman.{name}")


async def test_closing_waits_for_what_was_asked_and_not_for_ever(database):
    pipeline = await _opened(database, SLEEP)
    asked = [pipeline.ask(_int4(n)) for n in (100, 1)]
    await pipeline.close()
    assert [unpack(">i", (await one)[0][1])[0] for one in asked] == [100, 1]
    busy = await _opened(database, SLEEP)
    never = busy.ask(_int4(30_000))
    with pytest.raises(TimeoutError):
        await busy.close(timeout=0.05)
    assert busy.is_closed()
    busy.terminate()
    with pytest.raises(ConnectionResetError):
        await never


async def test_what_no_server_says_ends_the_connection(database):
    pipeline = await _opened(database, SLEEP)
    asked = [pipeline.ask(_int4(30_000)) for _ in range(2)]
    pipeline.data_received(b"?\0\0\0\4")
    with pytest.raises(asyncpg.InternalClientError, match="type '\\?'"):
        await asked[0]
    with pytest.raises(ConnectionResetError):
        await asked[1]
    assert pipeline.is_closed()


async def test_a_statement_that_the_server_does_not_take_leaves_no_connection(database):
    count = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%none_such_at_all%'"
    with pytest.raises(asyncpg.UndefinedTableError, match="none_such_at_all"):
        await _opened(database, "SELECT FROM none_such_at_all")
    async with connected(database, None) as connection:
        for _ in range(50):
            if await connection.fetchval(count + " AND pid <> pg_backend_pid()") == 0:
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail("the connection is still there")
