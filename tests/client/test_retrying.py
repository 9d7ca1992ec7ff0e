"""Pauses between tries."""

import random
import time
from typing import Any

import pytest

from steersman_client.core import Core
from steersman_client.exchange import Answer, Request, Send, Wait
from steersman_client.retry import Backoff, retry_after_s


def test_pauses_double_with_jitter_up_to_the_ceiling():
    backoff = Backoff(0.1, 1.0, random.Random(0))
    for attempt in range(40):
        longest = min(0.1 * 2**attempt, 1.0)
        pauses = {backoff.pause(attempt) for _ in range(20)}
        assert longest / 2 <= min(pauses) < max(pauses) <= longest


def test_the_server_may_ask_for_more_but_not_for_less():
    backoff = Backoff(0.1, 1.0, random.Random(0))
    assert backoff.pause(0, 7.0) == 7.0
    assert backoff.pause(5, 0.01) >= 0.5


def waits(seed, *retry_after):
    """Return how long a call waits after each answer that asks to come again."""
    no_outbox: Any = None
    core = Core(no_outbox, retries=4, clock=lambda: 0.0, rng=random.Random(seed))
    steps = core.exchange(Request("GET", "/v1/skills"), bytes, timeout_s=10.0)
    assert isinstance(next(steps), Send)
    waited = []
    for header in retry_after:
        step = steps.send(Answer(503, header, b""))
        assert isinstance(step, Wait)
        waited.append(step.seconds)
        assert isinstance(next(steps), Send)
    return waited


def test_the_tries_of_a_call_are_apart_by_such_pauses():
    several = [waits(seed, "", "", "0", "1") for seed in range(10)]
    for longest, pauses in zip([0.05, 0.1, 0.2], zip(*several, strict=True), strict=False):
        assert longest / 2 <= min(pauses) < max(pauses) <= longest
    assert {pauses[3] for pauses in several} == {1.0}


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0.0),
        (" 12 ", 12.0),
        ("Thu, 01 Jan 1970 00:16:50 GMT", 10.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("-5", 0.0),
        ("1e9", 0.0),
        ("٣", 0.0),
        ("", 0.0),
        ("9" * 400, 999_999_999.0),
        ("Thu, 99 Foo 1970", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date_or_nothing(header, seconds):
    assert retry_after_s(header, now=1000.0) == seconds


@pytest.mark.parametrize(
    "date",
    [
        "Thu, 01 Jan 1970 00:16:50 GMT",
        "Thursday, 01-Jan-70 00:16:50 GMT",
        "Thu Jan  1 00:16:50 1970",
    ],
)
def test_dates_of_every_form_are_utc_wherever_the_client_is(date, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert retry_after_s(date, now=1000.0) == 10.0
    finally:
        monkeypatch.undo()
        time.tzset()
