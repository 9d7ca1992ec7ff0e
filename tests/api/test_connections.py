"""Hostile connections over real sockets: slow, endless, malformed, pipelined, old."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time

import aiohttp
import pytest
import uvloop

from steersman.platform.http.connection_limits import Limits

QUICK = Limits(head_s=0.6, body_s=0.6, write_s=0.6, idle_s=1, connections=20)
DECIDE = b'{"skill": "search", "decision": "depth", "context": {}}'


def post(s, body: bytes = DECIDE, more: bytes = b"", version: bytes = b"1.1") -> bytes:
    return (
        b"POST /v1/decide HTTP/" + version + b"\r\nhost: a\r\nauthorization: Bearer "
        + s.key.encode() + b"\r\ncontent-type: application/json\r\n" + more
        + b"content-length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    )  # fmt: skip


async def test_slow_heads_end_and_others_are_served_meanwhile(serving) -> None:
    async with serving(QUICK) as s:

        async def drip(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            try:
                for i in range(200):
                    writer.write(data[i : i + 1])
                    await asyncio.sleep(0.05)
                    if reader.at_eof() or writer.is_closing():
                        break
                return await reader.read()
            except ConnectionError:
                return b""
            finally:
                writer.close()

        head = b"GET /healthz HTTP/1.1\r\nx-a: " + b"y" * 300
        begun = time.monotonic()
        slow = asyncio.gather(*(drip(head) for _ in range(10)))
        for _ in range(5):
            assert (await s.ask("GET", "/healthz")).status == 200
        answers = await slow
        assert time.monotonic() - begun < 6
        assert all(answer[:13] in {b"HTTP/1.1 408 ", b""} for answer in answers)


async def test_a_connection_that_says_nothing_ends(serving) -> None:
    async with serving(QUICK) as s:
        assert (await s.raw(b"", within_s=5)).startswith(b"HTTP/1.1 408 ")
        # Between two requests empty lines are allowed, but they are no reason to wait for ever.
        reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        writer.write(b"\r\n")
        async with asyncio.timeout(5):
            assert b"HTTP/1.1 408 " in await reader.read()
        writer.close()


async def test_a_slow_body_ends_with_408(serving) -> None:
    async with serving(QUICK) as s:
        begun = time.monotonic()
        said = await s.raw(post(s)[:-10], within_s=5)
        assert time.monotonic() - begun < 4
        assert said.startswith(b"HTTP/1.1 408 ")
        assert json.loads(said.partition(b"\r\n\r\n")[2])["code"] == "timeout"


async def test_an_idle_connection_ends_silently(serving) -> None:
    async with serving(QUICK) as s:
        said = await s.raw(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n", within_s=5)
        assert said.count(b"HTTP/1.1") == 1


async def test_heads_are_limited_whether_complete_or_not(serving) -> None:
    async with serving() as s:
        whole = b"GET /healthz HTTP/1.1\r\nhost: a\r\nx-a: " + b"y" * 40_000 + b"\r\n\r\n"
        endless = b"GET /healthz HTTP/1.1\r\nhost: a\r\nx-a: " + b"y" * 200_000
        many = b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 10_000 + b"\r\n"
        url = b"GET /" + b"y" * 40_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n"
        for head in (whole, endless, many, url):
            said = await s.raw(head)
            assert said.startswith(b"HTTP/1.1 431 ") or said == b"", said[:100]
        near = b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-a: " + b"y" * 30_000
        assert (await s.raw(near + b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_what_is_no_http_is_a_problem(serving) -> None:
    async with serving(QUICK) as s:
        for data in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"hello\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /\xff\xfe HTTP/1.1\r\nhost: a\r\n\r\n",
            b"GET  / HTTP/1.1\r\n\r\n",
            b"POST /v1/decide HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
            b"POST /v1/decide HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
            b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST /v1/decide HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n\r\n",
            b"GET http:// HTTP/1.1\r\nhost: a\r\n\r\n",
            b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\nhost: a\r\nx a: b\r\n\r\n",
        ):
            said = await s.raw(data)
            status = int(said.split(b" ")[1])
            assert status in {400, 401, 404}, (data, said)
            assert b"application/problem+json" in said
        assert (await s.ask("GET", "/healthz")).status == 200


async def test_pipelined_requests_are_answered_in_order(serving) -> None:
    async with serving() as s:
        bad = b"GET /nothing HTTP/1.1\r\nhost: a\r\n\r\n"
        last = b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        said = await s.raw(post(s) * 20 + bad + post(s) * 20 + last)
        statuses = [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [b"200"] * 20 + [b"404"] + [b"200"] * 21


@pytest.mark.parametrize("size", [0, 9000])
async def test_requests_that_come_faster_than_answers_wait_unread(serving, size) -> None:
    async with serving() as s:
        one = b"GET /healthz HTTP/1.1\r\nhost: a\r\n"
        first = one + b"content-length: %d\r\n\r\n" % size + b"x" * size
        asking = asyncio.create_task(
            s.raw(first + (one + b"\r\n") * 20_000 + one + b"connection: close\r\n\r\n")
        )
        most = 0
        while not asking.done():
            waiting = [len(it.pipeline) for it in s.server.server_state.connections]
            most = max([most, *waiting])
            await asyncio.sleep(0)
        assert asking.result().count(b"HTTP/1.1 200 ") == 20_002
        assert 0 < most < 200


async def test_http_1_0_and_chunks_and_continue(serving) -> None:
    async with serving() as s:
        old = await s.raw(post(s, version=b"1.0"))
        assert old.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in old
        head = post(s, b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in DECIDE) + b"0\r\n\r\n"
        close = b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        assert (await s.raw(head + chunks + close)).count(b"HTTP/1.1 200 ") == 2
        said = await s.raw(post(s, more=b"expect: 100-continue\r\nconnection: close\r\n"))
        assert said.startswith(b"HTTP/1.1 100 ")
        assert b"HTTP/1.1 200 " in said


async def test_what_follows_a_body_in_chunks_is_no_header(serving) -> None:
    async with serving(QUICK) as s:
        head = post(s, b"", b"connection: close\r\n")
        head = head.replace(b"content-length: 0", b"transfer-encoding: chunked")
        body = b"%x\r\n%b\r\n0\r\n" % (len(DECIDE), DECIDE)
        for trailer in (b"authorization: Bearer x", b"content-type: text/plain", b"x-a: b"):
            said = await s.raw(head + body + trailer + b"\r\n\r\n")
            assert said.startswith(b"HTTP/1.1 200 "), said
        for endless in (b"0\r\nx-a: " + b"y" * 200_000, b"1;a=" + b"y" * 200_000):
            said = await s.raw(head + endless)
            assert said.startswith(b"HTTP/1.1 431 ") or said == b"", said[:100]


async def test_an_upgrade_is_not_taken(serving) -> None:
    async with serving() as s:
        upgrade = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AA\r\n"
        head = b"GET /healthz HTTP/1.1\r\nhost: a\r\n" + upgrade + b"\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
        writer.write(head)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_body_is_read_though_another_protocol_was_asked_for(serving) -> None:
    wish = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    plain = b"GET /healthz HTTP/1.1\r\nhost: a\r\n"
    last = plain + b"connection: close\r\n\r\n"
    async with serving() as s:
        asked = post(s, more=wish)
        head, _, body = asked.partition(b"\r\n\r\n")
        chunked = head.rpartition(b"\r\n")[0] + b"\r\ntransfer-encoding: chunked\r\n\r\n"
        chunked += b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        said = await s.raw(asked + chunked + plain + wish + b"\r\n" + asked + last)
        assert said.count(b"HTTP/1.1 200 ") == said.count(b"HTTP/1.1") == 5, said
        assert said.count(b'"decision_id"') == 3
        # A body that comes by itself is none the less no request of its own.
        hidden = plain + b"\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
        for part in (post(s, b"x" * len(hidden), wish)[: -len(hidden)], hidden, last):
            writer.write(part)
            await asyncio.sleep(0.1)
        async with asyncio.timeout(5):
            said = await reader.read()
        writer.close()
        assert said.count(b"HTTP/1.1 400 ") == said.count(b"HTTP/1.1 200 ") == 1, said
        assert said.count(b"HTTP/1.1") == 2
        # However many ask for it in one go.
        said = await s.raw((plain + wish + b"\r\n") * 2_000 + last)
        assert said.count(b"HTTP/1.1 200 ") == 2_001


async def test_a_client_that_does_not_read_is_dropped(serving) -> None:
    async with serving(QUICK) as s:
        _, writer = await asyncio.open_connection("127.0.0.1", s.port, limit=1024)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n" * 5_000)
        await asyncio.sleep(0.3)
        assert len(s.server.server_state.connections) == 1
        for _ in range(100):
            if not s.server.server_state.connections:
                break
            await asyncio.sleep(0.1)
        assert not s.server.server_state.connections
        writer.transport.abort()
        assert (await s.ask("GET", "/healthz")).status == 200


async def test_a_client_that_goes_away_disturbs_nobody(serving) -> None:
    async with serving() as s:
        for cut in (20, 100, len(post(s)) - 5, len(post(s))):
            _, writer = await asyncio.open_connection("127.0.0.1", s.port)
            writer.write(post(s)[:cut])
            await writer.drain()
            writer.transport.abort()
        assert (await s.ask("POST", "/v1/decide", DECIDE)).status == 200


def test_who_sent_more_than_was_answered_and_went_is_no_error(serving, caplog) -> None:
    async def go() -> None:
        async with serving() as s:
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", s.port)) as gone:
                    gone.sendall(post(s) * 3)
            await s.until(lambda: not s.server.server_state.connections)
            assert (await s.ask("POST", "/v1/decide", DECIDE)).status == 200

    uvloop.run(go())
    assert [record for record in caplog.records if record.name == "uvicorn.error"] == []


async def test_connections_are_limited(serving) -> None:
    async with serving(Limits(connections=5)) as s:
        held = [await asyncio.open_connection("127.0.0.1", s.port) for _ in range(5)]
        said = await s.raw(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 503 ") or said == b""
        for _, writer in held:
            writer.close()
        await asyncio.sleep(0.1)
        assert (await s.ask("GET", "/healthz")).status == 200


async def test_a_drain_answers_what_was_asked_and_stores_it(serving) -> None:
    async with serving() as s:
        asked = [asyncio.create_task(s.ask("POST", "/v1/decide", DECIDE)) for _ in range(20)]
        await asyncio.gather(*(asyncio.wait_for(task, 20) for task in asked[:1]))
        s.server.stop()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        refused = aiohttp.ClientConnectionError
        good = [answer for answer in answers if not isinstance(answer, refused)]
        assert good
        assert all(answer.body["logged"] is True for answer in good)


async def test_a_drain_cuts_no_connection_that_is_in_use(serving) -> None:
    async with serving() as s:

        async def ask_on() -> list[bytes]:
            """Ask again and again on one connection, until an answer says that it was the last."""
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            heads: list[bytes] = []
            while not heads or b"connection: close" not in heads[-1]:
                await asyncio.sleep(0.03)  # meanwhile it looks idle
                writer.write(post(s))
                head = await reader.readuntil(b"\r\n\r\n")
                (length,) = re.findall(rb"content-length: (\d+)", head)
                await reader.readexactly(int(length))
                heads.append(head)
            assert await reader.read() == b""
            writer.close()
            return heads

        asking = [asyncio.create_task(ask_on()) for _ in range(8)]
        await asyncio.sleep(0.3)
        s.server.stop()
        for heads in await asyncio.wait_for(asyncio.gather(*asking), 20):
            assert len(heads) > 1
            assert all(head.startswith(b"HTTP/1.1 200 ") for head in heads)
