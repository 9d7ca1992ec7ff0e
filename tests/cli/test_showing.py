"""What commands print."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from steersman.cli.showing import show, show_rows

ROW = {
    "id": UUID(int=5),
    "share": {"a": 0.25, "b": 0.75},
    "ok": True,
    "names": ["x", "y"],
    "none": None,
    "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "hash": b"\x01\x02",
    "left": [],
}


def test_fields_are_told_to_people(capsys):
    show(ROW, as_json=False)
    said = capsys.readouterr().out.splitlines()
    assert said[1].split(maxsplit=1)[1] == "a 0.25, b 0.75"
    assert [line.split(maxsplit=1)[1] for line in said[2:]] == [
        *("yes", "x, y", "–", "2026-01-02 03:04:05", "0102", "–"),
    ]


def test_the_same_fields_are_json_for_programs(capsys):
    show(ROW, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["id"], told["hash"]) == (str(UUID(int=5)), "0102")
    assert told["at"] == "2026-01-02T03:04:05+00:00"


@pytest.mark.parametrize("wide", ["x" * 300, "[red]not markup[/red]"])
def test_a_pipe_gets_whole_rows(capsys, wide):
    show_rows([{"a": wide, "b": 1}], ("a", "b"), as_json=False, none="nothing")
    assert wide in capsys.readouterr().out


def test_no_rows_are_said_to_be_none(capsys):
    show_rows([], ("a",), as_json=False, none="nothing yet")
    assert capsys.readouterr().out == "nothing yet\n"
    show_rows([], ("a",), as_json=True, none="nothing yet")
    assert capsys.readouterr().out == "[]\n"
