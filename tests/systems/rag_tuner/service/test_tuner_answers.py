"""What models are told by the environment, and how long what they said is kept."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from uuid import uuid4

import pytest

from steersman.errors import InputError
from steersman_systems.rag_tuner.service.models import AnswerSettings, Models

URL = "http://127.0.0.1:1/v1"
DAY_S = 86_400.0


def test_what_is_read_every_day_is_kept_though_nothing_is_added(tmp_path):
    models, tenant = Models(AnswerSettings(url=URL, model="m"), tmp_path), uuid4()
    corpus = SimpleNamespace(id=uuid4(), erasures=0)
    opened = SimpleNamespace(loaded=SimpleNamespace(place=SimpleNamespace(corpus=corpus)))
    kept = models.kept(tenant, opened)
    kept.put(b"k" * 32, "paid for")
    old = time.time() - 29 * DAY_S
    for file in kept.file.parent.glob(f"{tenant}-*"):
        os.utime(file, (old, old))
    assert models.kept(tenant, opened).get(b"k" * 32) == "paid for"
    tomorrow = time.time() + 2 * DAY_S
    assert models.forget(tenant, {corpus.id: 0}, now=tomorrow) == 0
    assert models.kept(tenant, opened).get(b"k" * 32) == "paid for"


@pytest.mark.parametrize("said", ["0", "3601", "inf", "nan", "soon"])
def test_a_time_that_no_call_may_take_is_told_at_the_start(said):
    named = {"URL": URL, "MODEL": "m", "TIMEOUT_S": said}
    given = {f"STEERSMAN_ANSWERS_{name}": value for name, value in named.items()}
    match = rf"invalid STEERSMAN_ANSWERS_TIMEOUT_S '{said}': expected a number, 0.001 to 3600"
    with pytest.raises(InputError, match=match):
        AnswerSettings.from_environment(given)


def test_a_time_that_no_call_may_take_is_refused_whoever_gives_it(tmp_path):
    with pytest.raises(InputError, match=r"timeout_s is 0\.0; allowed: 0\.001 to 3600"):
        Models(AnswerSettings(url=URL, model="m", timeout_s=0.0), tmp_path)
