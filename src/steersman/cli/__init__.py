"""The command line, ``steersman``.

Each command's module is imported when that command runs, so ``steersman --help`` starts fast. Exit
status: 0 done, 1 refused or failed (with the error's message), 2 bad usage.
"""

from __future__ import annotations

import errno
import importlib
import sys
from difflib import get_close_matches
from typing import Any

import click

from steersman import __version__
from steersman.cli.signals import tidy_when_told
from steersman.errors import SteersmanError

__all__ = ["main"]

_COMMANDS = {
    "audit": "List and verify the audit log.",
    "corpus": "Add documents to a corpus, search it, take snapshots of it.",
    "data": "Back up, compact, query and import rows; download sample data.",
    "decide": "Request one decision from the service.",
    "demo": "Run a shipped system from set-up to its report.",
    "doctor": "Check this machine, the database and the service; suggest fixes.",
    "evidence": "Train, evaluate and run evidence selection.",
    "events": "Send events about decisions to the service.",
    "key": "Create, list, rotate and revoke API keys.",
    "learn": "Run the learner; rebuild or verify learned states.",
    "monitor": "Monitor decision points and rollouts in the terminal.",
    "ope": "Estimate the reward of other policies from logged decisions.",
    "review": "List and resolve outputs that detectors flagged.",
    "rollout": "Start, control and explain staged rollouts of snapshots.",
    "run": "Train, evaluate, publish and roll out a candidate for a skill.",
    "serve": "Run service processes on an existing database.",
    "snapshot": "Publish, compare, reproduce and withdraw signed snapshots.",
    "status": "Show the state of the service and of each decision point.",
    "tenant": "Create tenants, declare decision points, export or erase data.",
    "tune": "Record, tune and evaluate retrieval configurations.",
    "up": "Run the database, the service and the workers until stopped.",
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
            # Escape characters that the terminal cannot encode, instead of failing on them.
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
            if error.errno == errno.EPIPE:  # the reader closed the pipe; click exits quietly
                raise
            raise click.ClickException(_told(error)) from error


def _told(error: OSError) -> str:
    if error.filename is None:
        return f"operating system error: {error.strerror or error}"
    advice = "name another path, or check its permissions and free space"
    return f"{error.filename}: {error.strerror}; {advice}"


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="steersman")
def main() -> None:
    """Learn the choices inside LLM and RAG applications from their own traffic."""
