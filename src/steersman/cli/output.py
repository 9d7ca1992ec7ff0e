"""Printed output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import os
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec
from rich.console import Console
from rich.table import Table

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_EMPTY = "–"
_WIDE = 1_000
_CONTROLS = {code: f"\\x{code:02x}" for code in {*range(32), *range(127, 160)} - {*b"\n\t"}}
"""Control characters: logged texts must not move the cursor or change colours."""


def show(result: Mapping[str, Any], *, as_json: bool) -> None:
    """Print one result: one field per line, or a JSON object."""
    if as_json:
        click.echo(as_text(result))
        return
    width = max((len(name) for name in result), default=0) + 2
    for name, value in result.items():
        click.echo(f"{name.replace('_', ' '):<{width}}{_told(value)}")


def write_file(file: Path, content: bytes) -> None:
    """Write a file that a user asked for; overwrite an existing one.

    Raises:
        click.FileError: it cannot be written; the exit status is 1.
    """
    try:
        file.write_bytes(content)
    except OSError as error:
        hint = f"{error.strerror}; name a file in an existing, writable folder"
        raise click.FileError(str(file), hint) from error


def check_writable(*files: Path | None) -> None:
    """Check that files can be written, before work that takes minutes.

    Args:
        files: files to write, whose folders may not exist yet; None is skipped.

    Raises:
        DataError: a file is a folder or ``-``, or its folder is not writable.

    >>> check_writable(Path("-"))
    Traceback (most recent call last):
    steersman.errors.DataError: invalid file '-': expected a file, not standard output; name a file
    """
    for file in files:
        if file is None:
            continue
        if str(file) == "-":
            raise DataError("invalid file '-': expected a file, not standard output; name a file")
        there = next(one for one in (file, *file.absolute().parents) if one.exists())
        if (there == file) == there.is_dir() or not os.access(there, os.W_OK):
            raise DataError(f"{file} cannot be written because of {there}; name another file")


def write_text(file: Path, text: str) -> None:
    """Write a text in UTF-8, and create its folders; overwrite an existing file.

    Raises:
        DataError: it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"{file} cannot be written: {error}; name a file in a writable folder"
        raise DataError(message) from error


def show_rows(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, none: str
) -> None:
    """Print rows: a table, or a JSON list of objects with all fields.

    In a terminal too narrow for the table, each field is a line.

    Args:
        none: text printed instead of an empty table.
    """
    found = list(rows)
    if as_json:
        click.echo(as_text(found))
    elif not found:
        click.echo(none)
    else:
        console = Console(emoji=False)
        unlimited = Console(width=_WIDE, emoji=False, markup=False)
        table = Table(*(name.replace("_", " ") for name in columns), box=None, pad_edge=False)
        for row in found:
            table.add_row(*(_told(row.get(name)) for name in columns))
        if not console.is_terminal:
            console = unlimited  # do not wrap lines in a pipe
        elif unlimited.measure(table).maximum > console.width:
            _show_records(found, columns)
            return
        console.print(table, highlight=False, markup=False)


def _show_records(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print one field per line: a table would break its cells in a terminal this narrow."""
    for number, row in enumerate(rows):
        if number:
            click.echo()
        show({name: row.get(name) for name in columns}, as_json=False)


def as_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, one level deep.

    >>> as_fields(dataclasses.make_dataclass("Point", ["x", "y"])(1, 2))
    {'x': 1, 'y': 2}
    """
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def as_text(value: Any) -> str:
    """Return a value as indented JSON; NaN and infinity become null.

    >>> print(as_text({"id": UUID(int=1), "mean": float("nan")}))
    {
      "id": "00000000-0000-0000-0000-000000000001",
      "mean": null
    }
    """
    text = json.dumps(value, default=_plain, ensure_ascii=False)
    plain = json.loads(text, parse_constant=lambda _: None)
    return json.dumps(plain, indent=2, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, UUID | Path):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if dataclasses.is_dataclass(value):
        return as_fields(value)
    return msgspec.to_builtins(value)


def _told(value: Any) -> str:
    return _cell(value).translate(_CONTROLS)


def _cell(value: Any) -> str:
    if value is None or value in ([], (), {}, ""):
        return _EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict) and all(isinstance(v, int | float | str) for v in value.values()):
        return ", ".join(f"{name} {_cell(v)}" for name, v in value.items())
    if isinstance(value, list | tuple | dict):
        simple = isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)
        return ", ".join(value) if simple else json.dumps(value, default=_plain, ensure_ascii=False)
    return str(value)
