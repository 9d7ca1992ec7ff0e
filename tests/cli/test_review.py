"""``steersman review``: scan, list, show masked excerpts, resolve."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest


@pytest.fixture
def name(command):
    name = f"t-{uuid4().hex[:12]}"
    command("tenant", "create", name)
    return name


@pytest.fixture
def predictions(tmp_path):
    file = tmp_path / "run-1" / "predictions.jsonl"
    file.parent.mkdir()
    row = {"question": "q1", "text": "Whose card is it?", "prompt": "plain"}
    answers = ("It is 4111 1111 1111 1111.", "It is 4111 1111 1111 1111.", "Nobody's.")
    file.write_text("".join(json.dumps({**row, "answer": one}) + "\n" for one in answers))
    return file


def test_answers_go_on_the_list_once_and_a_person_takes_them_off(command, name, predictions):
    tenant = ("--tenant", name)
    assert command.json("review", "list", *tenant) == []
    scan = ("review", "scan", predictions, "--no-toxicity", *tenant)
    assert command.json(*scan) == {"flagged": 3, "new": 3}
    assert command.json(*scan) == {"flagged": 3, "new": 0}
    rows = command.json("review", "list", *tenant)
    assert [row["detector"] for row in rows] == ["personal_data", "personal_data", "instability"]
    item = rows[0]["id"]
    shown = command.json("review", "show", item, *tenant)
    assert (shown["subject"], shown["kinds"]) == ("run-1/plain/q1/1", "card")
    assert shown["excerpt"] == "Question: Whose card is it?\nAnswer: It is [card]."
    said = command.json("review", "resolve", item, "--dismissed", "--note", "a test card", *tenant)
    assert (said["verdict"], said["note"]) == ("dismissed", "a test card")
    assert len(command.json("review", "list", *tenant)) == 2
    assert len(command.json("review", "list", "--all", *tenant)) == 3


def test_another_tenant_sees_none_of_it(command, name, predictions):
    command("review", "scan", predictions, "--no-toxicity", "--tenant", name)
    item = command.json("review", "list", "--tenant", name)[0]["id"]
    other = f"o-{uuid4().hex[:12]}"
    command("tenant", "create", other)
    assert command.json("review", "list", "--all", "--tenant", other) == []
    told = command("review", "show", item, "--tenant", other, status=1)
    assert "review item not found" in told
