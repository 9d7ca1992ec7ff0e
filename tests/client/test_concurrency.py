"""One client, many threads; one async client, many tasks."""

import asyncio
import contextlib
import threading

import pytest
import uvloop

from steersman.client import AsyncClient, Client


def test_threads_share_a_client(server, key, tmp_path):
    told = []

    def work(client):
        for _ in range(25):
            decision = client.decide("mail", "tone", {})
            told.append(client.submit_feedback(decision, outcomes={"good": 1}))

    with Client(server.url, key, queue_dir=tmp_path) as client:
        threads = [threading.Thread(target=work, args=(client,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.flush(20) == 0
    assert len(told) == 200
    assert set(server.stored) == set(told)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_tasks_share_a_client(server, key, tmp_path, run):
    async def work(client):
        decision = await client.decide("mail", "tone", {})
        return await client.submit_feedback(decision, outcomes={"good": 1})

    async def main():
        async with AsyncClient(server.url, key, queue_dir=tmp_path) as client:
            told = await asyncio.gather(*[work(client) for _ in range(100)])
            assert await client.flush(20) == 0
        return told

    told = run(main())
    assert set(server.stored) == set(told)
    assert len(told) == 100


def test_a_cancelled_call_leaves_the_client_in_order(server, key, tmp_path):
    async def main():
        async with AsyncClient(server.url, key, queue_dir=tmp_path) as client:
            server.script = ["hang"] * 8
            for _ in range(8):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(client.decide("mail", "tone", {}), 0.03)
            server.script = []
            return await client.decide("mail", "tone", {})

    assert asyncio.run(main()).logged is True


def test_an_event_loop_goes_on_while_the_server_hangs(server, key, tmp_path):
    async def main():
        server.always = "hang"
        async with AsyncClient(server.url, key, queue_dir=tmp_path, timeout_ms=400) as client:
            call = asyncio.create_task(client.decide("mail", "tone", {}, default="plain"))
            beats = 0
            while not call.done():
                await asyncio.sleep(0.01)
                beats += 1
            assert (await call).degraded
            return beats

    assert asyncio.run(main()) > 5


def test_an_event_that_no_thread_can_be_started_for_is_kept(
    server, key, tmp_path, monkeypatch, caplog
):
    """As at the end of a process (from Python 3.12 on), or where no more threads may be."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with Client(server.url, key, queue_dir=tmp_path) as client:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            client.submit_feedback(episode="e", event_id="kept", outcomes={"good": 1})
        assert "can't start new thread" in caplog.text
        client.submit_feedback(episode="e", event_id="next", outcomes={"good": 1})
        assert client.flush(10) == 0
    assert server.order == ["kept", "next"]
