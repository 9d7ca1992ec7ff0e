"""Where settings come from, and what is no setting."""

import asyncio
from pathlib import Path

import pytest

from steersman.client import AsyncClient, Client
from steersman_client.errors import InputError
from steersman_client.settings import Settings

THERE = {"STEERSMAN_URL": "http://there:1", "STEERSMAN_API_KEY": "k"}


def settings(environment, *given, **options):
    return Settings.of(*(given or (None, None)), environment=environment, **options)


def test_the_environment_gives_what_was_not_given():
    found = settings(THERE | {"STEERSMAN_HOME": "/place/of"})
    assert (found.base_url, found.api_key) == ("http://there:1", "k")
    assert found.queue_path.parent == Path("/place/of/client")
    assert settings(THERE, "http://here/", "x").base_url == "http://here"


def test_the_queue_lies_where_state_lies():
    assert settings(THERE | {"XDG_STATE_HOME": "/s"}).queue_path.parent == Path(
        "/s/steersman/client"
    )
    default = settings(THERE).queue_path.parent
    assert default == Path.home() / ".local/state/steersman/client"
    assert settings(THERE, queue_dir="q").queue_path.parent == Path("q")


def test_a_user_without_a_home_is_told_what_to_give(monkeypatch, tmp_path):
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(InputError, match="give queue_dir, or set STEERSMAN_HOME"):
        settings(THERE)
    assert settings(THERE, queue_dir=tmp_path).queue_path.parent == tmp_path


def test_servers_and_keys_have_queues_of_their_own():
    pairs = [("http://a", "k"), ("http://b", "k"), ("http://a", "l")]
    assert len({settings({}, *pair).queue_path for pair in pairs}) == 3
    assert settings({}, "http://a/", "k").queue_path == settings({}, "http://a", "k").queue_path


@pytest.mark.parametrize(
    ("environment", "options", "said"),
    [
        ({}, {}, "STEERSMAN_URL"),
        ({"STEERSMAN_URL": "http://there"}, {}, "STEERSMAN_API_KEY"),
        (THERE | {"STEERSMAN_URL": "there:80"}, {}, "base_url"),
        (THERE | {"STEERSMAN_URL": "ftp://there"}, {}, "base_url"),
        (THERE | {"STEERSMAN_URL": "http://there?a=b"}, {}, "base_url"),
        (THERE | {"STEERSMAN_URL": "http://[::1"}, {}, "base_url"),
        (THERE | {"STEERSMAN_URL": "http://there:99999"}, {}, "base_url"),
        (THERE | {"STEERSMAN_URL": "http://there:80\n"}, {}, "base_url"),
        (THERE | {"STEERSMAN_URL": "http://over there"}, {}, "base_url"),
        (THERE | {"STEERSMAN_URL": "http://there/?"}, {}, "base_url"),
        (THERE | {"STEERSMAN_URL": "http://there/#"}, {}, "base_url"),
        (THERE | {"STEERSMAN_URL": "http://there..example"}, {}, "base_url"),
        (THERE | {"STEERSMAN_URL": f"http://{'a' * 64}.example"}, {}, "base_url"),
        (
            THERE | {"STEERSMAN_HOME": "~nobody-of-that-name/x"},
            {},
            "invalid STEERSMAN_HOME '~nobody",
        ),
        (THERE, {"timeout_ms": 0}, "timeout_ms"),
        (THERE, {"timeout_ms": float("nan")}, "timeout_ms"),
        (THERE, {"retries": -1}, "retries"),
        (THERE, {"queue_bytes": 1000}, "queue_bytes"),
        (THERE, {"drop": "newest"}, "drop"),
    ],
)
def test_what_is_missing_or_wrong_is_named(environment, options, said):
    with pytest.raises(InputError, match=said):
        settings(environment, **options)


def test_clients_of_one_service_share_a_queue(server, key, tmp_path):
    with Client(server.url, key, queue_dir=tmp_path) as first:
        second = Client(server.url, key, queue_dir=tmp_path)
        second.submit_feedback(episode="e", outcomes={"good": 1})
        second.close()
        assert first.flush(10) == 0
        assert len(server.order) == 1


def test_who_closes_twice_at_once_leaves_the_queue_to_others(key, tmp_path):
    async def close_twice():
        closed = AsyncClient("http://127.0.0.1:9", key, queue_dir=tmp_path)
        await asyncio.gather(closed.close(), closed.close())

    with Client("http://127.0.0.1:9", key, queue_dir=tmp_path) as other:
        asyncio.run(close_twice())
        other.submit_feedback(episode="e", outcomes={"good": 1})
        assert other.backlog().events == 1
