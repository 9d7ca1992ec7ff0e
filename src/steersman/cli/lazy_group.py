"""Commands of installed systems: a lazy group, and the names of systems as an argument.

Commands are imported when they run, so that ``--help`` starts fast.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from steersman.points.systems import load, systems_with

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from steersman.points.systems import Command

NO_SYSTEM = (
    "No system is installed; install the distribution steersman-systems, or one of your own."
)


class LazyGroup(click.Group):
    """A group of commands that are named by import strings.

    Args:
        commands_of: returns the commands by name; called when they are first needed.
        args: arguments of `click.Group`.
        extra: likewise, by name.
    """

    def __init__(
        self, *args: Any, commands_of: Callable[[], Mapping[str, Command]], **extra: Any
    ) -> None:
        super().__init__(*args, **extra)
        self._commands_of = commands_of

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in alphabetical order."""
        del ctx
        return sorted(self._commands_of())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if the name is unknown."""
        del ctx
        found = self._commands_of().get(cmd_name)
        if found is None:
            return None
        command: click.Command = load(found.target)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest the nearest name for an unknown one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as unknown:
            if near := get_close_matches(args[0], self._commands_of()):
                message = f"{unknown.message} Did you mean {' or '.join(near)}?"
                raise click.UsageError(message, ctx) from unknown
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their help lines, without importing them."""
        del ctx
        if not self._commands_of():
            formatter.write_paragraph()
            formatter.write_text(NO_SYSTEM)
            return
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.help) for name, one in sorted(self._commands_of().items())]
            )


class SystemName(click.Choice[str]):
    """Name of an installed system that has a part.

    Args:
        part: name of an attribute of `System`.
    """

    def __init__(self, part: str) -> None:
        super().__init__(sorted(systems_with(part)))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name; fail with the installed ones, or with how to install some."""
        if not self.choices:
            self.fail(NO_SYSTEM, param, ctx)
        return super().convert(value, param, ctx)
