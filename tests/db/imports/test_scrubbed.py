"""Imported logs are scrubbed as in the service."""

from __future__ import annotations

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.points.feature_encoding import encode

POINT = """
format: 1
skill: search
decision: depth
context: {dim: 32, fields: {text: {type: text}, language: {type: category}}}
actions: {kind: choice, names: [shallow, deep]}
policy: {algorithm: lin_ucb}
floor: 0.02
fallback: {otherwise: shallow}
reward: {terms: {clicked: {weight: 1}}}
"""
MAPPING = {"context": "{text: text, language: lang}", "outcomes": "{clicked: clicked}"}


async def test_texts_are_scrubbed_before_they_are_encoded_and_stored(logs):
    point = await logs.declare(f"{POINT}privacy: {{scrub: [email], with: hash}}\n")
    file = logs.lines(logs.row(0, text="a@b.org"), logs.row(1, text="A@B.org"))
    mapping = logs.mapping(**MAPPING)
    report = await logs.load(file, mapping, secret=b"s" * 32)
    assert (report.stored, report.refused) == (2, 0), report.refusals
    first, second = await logs.rows("SELECT * FROM decision ORDER BY id")
    assert first["context"]["text"] == second["context"]["text"]
    assert first["context"]["text"].startswith("[email:")
    assert first["context"]["language"] == "en"
    x, _ = encode(point.spec, FeatureMap(point.spec.context), first["context"])
    assert np.array_equal(np.array(first["x"], dtype=np.float64), x)
    again = await logs.load(file, mapping, secret=b"s" * 32)
    assert (again.stored, again.already) == (0, 2)


async def test_declaring_it_later_does_not_import_a_log_twice(logs):
    await logs.declare(POINT)
    file, mapping = logs.lines(logs.row(0, text="a@b.org")), logs.mapping(**MAPPING)
    assert (await logs.load(file, mapping)).stored == 1
    await logs.declare(f"{POINT}privacy: {{scrub: [email]}}\n")
    again = await logs.load(file, mapping, secret=b"s" * 32)
    assert (again.stored, again.already, again.refused) == (0, 1, 0)


async def test_without_the_secret_nothing_is_imported(logs):
    await logs.declare(f"{POINT}privacy: {{scrub: [email]}}\n")
    file, mapping = logs.lines(logs.row(0, text="a@b.org")), logs.mapping(**MAPPING)
    with pytest.raises(InputError, match="needs the service's secret"):
        await logs.load(file, mapping)
    assert await logs.rows("SELECT * FROM decision") == []
