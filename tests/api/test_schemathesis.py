"""Requests made from the description, right and wrong ones: no failure of ours, no surprise."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from steersman.api.openapi import as_text, document

if TYPE_CHECKING:
    from collections.abc import Iterator

ENOUGH_MS = 10_000
EXAMPLES = int(os.environ.get("STEERSMAN_SCHEMATHESIS_EXAMPLES", "20"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
SCHEMA = schemathesis.openapi.from_dict(json.loads(as_text(document())))
OPERATIONS = [result.ok() for result in SCHEMA.get_all_operations()]


@pytest.fixture(scope="module")
def running(serving_of) -> Iterator[dict[str, Any]]:
    """Return address and key of a service that runs in a thread of its own."""
    with in_thread(serving_of()) as found:
        yield found


@contextmanager
def in_thread(start: Any) -> Iterator[dict[str, Any]]:
    found: dict[str, Any] = {}
    up, down = threading.Event(), threading.Event()

    async def run() -> None:
        async with start() as serving:
            found.update(url=f"http://127.0.0.1:{serving.port}", key=serving.key)
            up.set()
            await asyncio.to_thread(down.wait)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert up.wait(60)
    yield found
    down.set()
    thread.join(60)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda it: it.label)
def test_nothing_that_can_be_asked_is_a_failure_of_ours(running, operation, mode) -> None:
    if mode is GenerationMode.NEGATIVE and not has_input(operation):
        pytest.skip("there is nothing to get wrong")

    @seed(20260101)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        headers = {"authorization": f"Bearer {running['key']}"}
        give_time(case.body)
        case.call_and_validate(base_url=running["url"], headers=headers, checks=CHECKS)

    ask()


def give_time(body: Any) -> None:
    """Give a search time: one within a millisecond is refused as promised, with 503."""
    if isinstance(body, dict) and "corpus" in body:
        wanted = body.get("deadline_ms")
        if isinstance(wanted, int | float) and 1 <= wanted < ENOUGH_MS:
            body["deadline_ms"] = ENOUGH_MS


def has_input(operation: Any) -> bool:
    described = document()["paths"][operation.path][operation.method]
    return "requestBody" in described or "parameters" in described
