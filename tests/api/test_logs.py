"""Log lines are JSON and hold no secrets, whatever was logged."""

from __future__ import annotations

import json
import logging

import pytest

from steersman.errors import InputError
from steersman.platform.telemetry.logs import JsonFormatter, configure_logging


def line(message: str, *arguments: object, error: BaseException | None = None) -> dict[str, str]:
    info = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("a", logging.ERROR, "f", 1, message, arguments, info)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    return json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "sk_abcDEF0123456789",
        "Authorization: Bearer sk_abcDEF0123456789",
        "{b'authorization': b'Bearer TOPsecret'}",
        "postgresql://steersman:TOPsecret@db/x",
        "bearer TOPsecret",
    ],
)
def test_secrets_are_masked_wherever_they_stand(text: str) -> None:
    for shown in (line(text), line("%s and %r", text, [text]), line("x", error=ValueError(text))):
        assert "TOPsecret" not in json.dumps(shown)
        assert "abcDEF0123456789" not in json.dumps(shown)
        assert "***" in json.dumps(shown)


def test_a_line_says_when_where_and_what() -> None:
    shown = line("%d rows", 3)
    assert (shown["level"], shown["logger"], shown["message"]) == ("ERROR", "a", "3 rows")
    assert shown["at"].endswith("+00:00")


async def test_no_key_is_logged_whatever_fails(serving, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving() as s:
        decide = {"skill": "search", "decision": "depth", "context": {"intent": "x"}}
        await s.ask("POST", "/v1/decide", decide)
        await s.ask("POST", "/v1/decide", b"{", key="sk_" + "W" * 43)
        await s.ask("GET", "/v1/keys")
        made = await s.ask("POST", "/v1/keys", {"name": "n", "role": "observer"})
        s.service.replicas.find = None  # type: ignore[assignment]
        await s.ask("POST", "/v1/decide", decide)
        await s.raw(b"GET / HTTP/1.1\r\nauthorization: Bearer " + s.key.encode() + b"\r\nx\r\n\r\n")
        assert "failed" in caplog.text
        for secret in (s.key, "W" * 43, made.body["key"], s.service.keys._secret.hex()):
            assert secret not in caplog.text


def test_a_level_that_there_is_not_is_refused_with_those_there_are(monkeypatch) -> None:
    before = logging.root.level, list(logging.root.handlers)
    monkeypatch.setenv("STEERSMAN_LOG_LEVEL", "verbose")
    with pytest.raises(InputError, match="'VERBOSE': allowed are DEBUG, INFO"):
        configure_logging()
    assert (logging.root.level, list(logging.root.handlers)) == before
