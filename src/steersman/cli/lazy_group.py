"""Commands of installed systems: a lazy group, and the names of systems as an argument.

Commands are imported when they run, so that ``--help`` starts fast.
"""

from __future__ import annotations

from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import click

from steersman.errors import InputError
from steersman.points.systems import load, load_of, systems_with

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.points.systems import Command

NO_SYSTEM = (
    "No system is installed; install the distribution steersman-systems, or one of your own."
)


class LazyGroup(click.Group):
    """A group of commands that are named by import strings.

    Args:
        part: attribute of `System` with the commands that installed systems add.
        own: commands of the product by name; a broken system does not stop them.
        args: arguments of `click.Group`.
        extra: likewise, by name.
    """

    def __init__(
        self,
        *args: Any,
        part: Literal["commands", "demo"],
        own: Mapping[str, Command] = MappingProxyType({}),
        **extra: Any,
    ) -> None:
        super().__init__(*args, **extra)
        self._part = part
        self._own = own

    def by_name(self) -> Mapping[str, tuple[str, Command]]:
        """Return owner and command by name, in alphabetical order.

        Raises:
            InputError: a system cannot be loaded, or the name of one of its commands is taken.
        """
        found = {name: ("Steersman", one) for name, one in self._own.items()}
        for system in systems_with(self._part).values():
            owner = f"the system {system.name!r}"
            for name, one in getattr(system, self._part).items():
                first, _ = found.setdefault(name, (owner, one))
                if first is not owner:
                    raise InputError(
                        f"two commands are named {name!r}: one of {first}, and one of {owner} "
                        f"({self._part}); rename one of them, or uninstall its distribution"
                    )
        return dict(sorted(found.items()))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in alphabetical order."""
        del ctx
        return list(self.by_name())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if the name is unknown."""
        del ctx
        if cmd_name in self._own:
            own: click.Command = load(self._own[cmd_name].target)
            return own
        named = self.by_name().get(cmd_name)
        if named is None:
            return None
        owner, found = named
        what = f"command {cmd_name!r} of {owner}"
        command = load_of(what, found.target)
        if not isinstance(command, click.Command):
            raise InputError(
                f"invalid {what}: {found.target!r} is a {type(command).__name__}, expected a "
                "click.Command; correct or uninstall its distribution"
            )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest the nearest name for an unknown one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as unknown:
            if near := get_close_matches(args[0], self.by_name()):
                message = f"{unknown.message} Did you mean {' or '.join(near)}?"
                raise click.UsageError(message, ctx) from unknown
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their help lines, without importing them."""
        del ctx
        if not (found := self.by_name()):
            formatter.write_paragraph()
            formatter.write_text(NO_SYSTEM)
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.help) for name, (_, one) in found.items()])


class SystemName(click.Choice[str]):
    """Name of an installed system that has a part.

    The systems are read when the name is needed: a broken one does not stop other commands.

    Args:
        part: name of an attribute of `System`.
    """

    def __init__(self, part: str) -> None:
        self.case_sensitive = True
        self._part = part

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names in alphabetical order."""
        return tuple(systems_with(self._part))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name; fail with the installed ones, or with how to install some."""
        if not self.choices:
            self.fail(NO_SYSTEM, param, ctx)
        return super().convert(value, param, ctx)
