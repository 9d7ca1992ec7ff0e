"""Pages about rollouts: their commands, options and incident kinds exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

from steersman.cli import main

PAGES = [Path("docs/how-to/rollouts.md"), Path("docs/runbook.md")]
TYPED = re.compile(r"^\$ steersman (.+)$|`steersman ([^`…]+)`", re.MULTILINE)


def commands(page):
    found = [one or two for one, two in TYPED.findall(page.read_text())]
    assert len(found) > 5
    return [" ".join(line.split()) for line in found]


@pytest.mark.parametrize(
    "line", sorted({line for page in PAGES for line in commands(page)}), ids=str
)
def test_every_command_can_be_typed(line):
    words = shlex.split(line)
    context = click.Context(main, info_name="steersman")
    command = main
    while isinstance(command, click.Group) and words:
        name = words.pop(0)
        command = command.get_command(context, name)
        assert command is not None, f"there is no {name} in {line}"
    required = [p for p in command.params if p.required] if not words else []
    if words or not required:  # a command that is merely named needs no arguments
        with command.make_context(line, list(words), resilient_parsing=not words):
            pass


def test_the_kinds_of_incidents_are_those_that_are_opened():
    told = re.findall(r"^\| (`[^|]+`) \|", PAGES[1].read_text(), re.MULTILINE)
    kinds = {kind.strip("` ") for cell in told for kind in cell.split(",")}
    assert len(kinds) >= 10
    folders = [
        Path("src/steersman") / name for name in ("rollouts", "learning", "snapshots", "workers")
    ]
    source = "".join(path.read_text() for folder in folders for path in folder.glob("*.py"))
    assert [kind for kind in sorted(kinds) if f'"{kind}"' not in source] == []
