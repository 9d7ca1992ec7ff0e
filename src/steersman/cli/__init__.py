"""The command ``steersman``: a thin skin over the floors below; nothing imports it.

Commands are loaded when they are called, so ``steersman --help`` answers at once. Exit status: 0
done, 1 refused or failed (with the message of the error), 2 bad usage.
"""

from __future__ import annotations

import errno
import importlib
import sys
from difflib import get_close_matches
from typing import Any

import click

from steersman import __version__
from steersman.cli.ending import tidy_when_told
from steersman.errors import SteersmanError

__all__ = ["main"]

_COMMANDS = {
    "audit": "Show who did what, and whether that is still what was written.",
    "corpus": "Add documents to a corpus, search it, name a state of it that stays.",
    "data": "Keep, query and import the rows; fetch what the shipped systems run on.",
    "decide": "Ask the service for one decision.",
    "demo": "Run a shipped system from nothing to its report.",
    "doctor": "Check this machine, the store and the service, and say what to do.",
    "evidence": "Select passages one after the other; measure, train and use who selects.",
    "events": "Tell the service what came of its decisions.",
    "key": "Make, list, rotate and revoke API keys.",
    "learn": "Run the learner; relearn or verify what was learned.",
    "monitor": "Watch decision points and rollouts.",
    "ope": "Say what other policies would have earned, by the log.",
    "review": "Look at what detectors flagged, and say whether they were right.",
    "rollout": "Let a candidate take over in stages, on evidence, or take it back.",
    "run": "Take what a shipped system learned through gates to what serves.",
    "serve": "Run service processes over a store that is there.",
    "snapshot": "Publish what was learned, signed; compare, make again or take back versions.",
    "status": "Show what the service decides and has learned.",
    "tenant": "Make tenants, declare their decision points, hand out or erase their rows.",
    "tune": "Record, tune and judge retrieval configurations.",
    "up": "Run everything until it is stopped.",
}
"""Name -> help line; the module ``steersman.cli.<name>`` holds the click command ``command``."""


class _LazyGroup(click.Group):
    """A group that imports a command's module only when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"steersman.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as unknown:
            if near := get_close_matches(args[0], _COMMANDS):
                message = f"{unknown.message} Did you mean {' or '.join(near)}?"
                raise click.UsageError(message, ctx) from unknown
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name]) for name in self.list_commands(ctx)])

    def main(self, *args: Any, **extra: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            # Not every terminal can show every name: it sees what it is, instead of a traceback.
            if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        with tidy_when_told():
            return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except SteersmanError as refused:
            raise click.ClickException(str(refused)) from refused
        except OSError as error:
            if error.errno == errno.EPIPE:  # who read our output has seen enough: click's to end
                raise
            raise click.ClickException(_told(error)) from error


def _told(error: OSError) -> str:
    """Return what the system refused: a file, a folder or an address, and why."""
    if error.filename is None:
        return f"the system refused: {error.strerror or error}"
    return f"{error.filename}: {error.strerror}; name another, or see to its rights and its disk"


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="steersman")
def main() -> None:
    """Learn the choices inside LLM and RAG applications from their own traffic."""
