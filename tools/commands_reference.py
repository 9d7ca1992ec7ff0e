"""Writes ``docs/reference/commands.md`` from the ``--help`` of each command.

usage: python -m tools.commands_reference
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steersman.cli import main as steersman

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "commands.md"
_WIDTH = 96
_HEAD = """\
# Commands

What `steersman COMMAND --help` prints, written by `python -m tools.commands_reference`; a test
compares.

- Exit status: 0 done, 1 refused or failed (the message says why and what to do), 2 bad usage.
- `--json` prints one JSON value on standard output, for programs.
- `STEERSMAN_HOME` (or `--home`) names the directory of all state, `DATABASE_URL` a PostgreSQL
  server to use instead of the embedded one. `STEERSMAN_URL` and `STEERSMAN_API_KEY` say where the
  service is, and who asks.
- Commands that need no service (`tenant`, `key`, `learn`, `corpus`, `audit`, `data`, `doctor`) talk
  to the database; `decide` and `events` talk to the service; `status` asks both.
"""


def write() -> str:
    """Return the page as Markdown."""
    pages = [_HEAD]
    for path, command in commands(steersman, ()):
        heading = "#" * min(2 + len(path) - 1, 3)
        pages.append(
            f"{heading} steersman {' '.join(path)}\n\n```console\n{_help(path, command)}\n```\n"
        )
    return "\n".join(pages)


def commands(
    group: click.Group, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every visible command below a group with its path, groups before their commands.

    Args:
        group: parent group.
        path: path of the group.

    Yields:
        (names, command).
    """
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def _help(path: tuple[str, ...], command: click.Command) -> str:
    parent = click.Context(steersman, info_name="steersman", **steersman.context_settings)
    for name in path[:-1]:
        parent = click.Context(click.Group(name), info_name=name, parent=parent)
    context = click.Context(
        command, info_name=path[-1], parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


if __name__ == "__main__":
    PAGE.write_text(write(), encoding="utf-8")
    print(f"wrote {PAGE}")
