"""Printed output of commands: fields, tables, JSON, files."""

import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from steersman.cli.output import check_writable, show, show_rows, write_text
from steersman.errors import DataError

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


@pytest.mark.parametrize("wide", ["x" * 300, "[red]not markup[/red]", ":cat: 1.0:red_heart:2"])
def test_a_pipe_gets_whole_rows(capsys, wide):
    show_rows([{"a": wide, "b": 1}], ("a", "b"), as_json=False, none="nothing")
    assert wide in capsys.readouterr().out


@pytest.mark.parametrize(("columns", "lines"), [("60", 3), ("40", 7)])
def test_a_narrow_terminal_gets_a_line_per_field(capsys, monkeypatch, columns, lines):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", columns)
    rows = [
        {"policy": "always [/x]", "ips": "0.7804 [0.7501, 0.8107]", "n_rows": n} for n in (1, 2)
    ]
    show_rows(rows, ("policy", "ips", "n_rows"), as_json=False, none="")
    said = capsys.readouterr().out.splitlines()
    assert len(said) == lines
    assert sum("0.7804 [0.7501, 0.8107]" in line for line in said) == 2
    assert max(map(len, said[1:])) <= int(columns)  # the header of the table has styles


def test_no_rows_are_said_to_be_none(capsys):
    show_rows([], ("a",), as_json=False, none="nothing yet")
    assert capsys.readouterr().out == "nothing yet\n"
    show_rows([], ("a",), as_json=True, none="nothing yet")
    assert capsys.readouterr().out == "[]\n"


def test_what_a_stranger_logged_neither_moves_the_cursor_nor_hides(capsys):
    row = {"unit": "\x1b[2Jgone\r\x9b", "of": {"ä": [{"ö": 1}]}}
    show_rows([row], ("unit", "of"), as_json=False, none="")
    show(row, as_json=False)
    for line in capsys.readouterr().out.splitlines()[1:3]:
        assert "\\x1b[2Jgone\\x0d\\x9b" in line
    show_rows([row], ("unit", "of"), as_json=False, none="")
    assert '{"ä": [{"ö": 1}]}' in capsys.readouterr().out


@pytest.mark.parametrize("name", ["folder", "file/in/it", "-"])
def test_what_cannot_be_written_is_refused_before_the_work(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("here")
    with pytest.raises(DataError, match="name a"):
        check_writable(None, Path("new/folder/file"), Path(name))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "folder"]
    check_writable(Path("file"), Path("new/folder/file"))


def test_a_text_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(DataError, match="cannot be written"):
        write_text(tmp_path / "file" / "x", "text")
    write_text(tmp_path / "new" / "x", "ü")
    assert (tmp_path / "new" / "x").read_text("utf-8") == "ü"
