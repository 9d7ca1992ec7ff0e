"""The command line, ``steersman``.

Each command's module is imported when that command runs, so ``steersman --help`` starts fast. Exit
status: 0 done, 1 refused or failed (with the error's message), 2 bad usage.
"""

from __future__ import annotations

import errno
import sys
from typing import Any

import click

from steersman import __version__
from steersman.cli.lazy_group import LazyGroup
from steersman.cli.signals import tidy_when_told
from steersman.errors import SteersmanError
from steersman.points.systems import Command

__all__ = ["main"]

_COMMANDS = {
    "audit": "List and verify the audit log.",
    "corpus": "Add documents to a corpus, search it, take snapshots of it.",
    "data": "Back up, compact, query and import rows; download sample data.",
    "decide": "Request one decision from the service.",
    "demo": "Run a shipped system from set-up to its report.",
    "doctor": "Check this machine, the database and the service; suggest fixes.",
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
    "up": "Run the database, the service and the workers until stopped.",
}
"""Name -> help line; the module ``steersman.cli.<name>`` holds the click command ``command``."""


class _MainGroup(LazyGroup):
    """The main group: handles interrupts, encodings and errors."""

    def main(self, *args: Any, **extra: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            # Escape characters that the terminal cannot encode, instead of failing on them.
            if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        with tidy_when_told():
            try:
                return super().main(*args, **extra)
            except SteersmanError as refused:  # before a command runs: a broken system
                click.ClickException(str(refused)).show()
                sys.exit(1)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except _refusals() as refused:
            raise click.ClickException(str(refused)) from refused
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader closed the pipe; click exits quietly
                raise
            raise click.ClickException(_told(error)) from error


def _refusals() -> tuple[type[Exception], ...]:
    """Return the errors that are shown as messages; the client's only where it was imported."""
    client = sys.modules.get("steersman.client")
    return (SteersmanError,) if client is None else (SteersmanError, client.ClientError)


def _told(error: OSError) -> str:
    if error.filename is None:
        return f"operating system error: {error.strerror or error}"
    advice = "name another path, or check its permissions and free space"
    return f"{error.filename}: {error.strerror}; {advice}"


@click.group(
    cls=_MainGroup,
    part="commands",
    own={name: Command(text, f"steersman.cli.{name}:command") for name, text in _COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="steersman")
def main() -> None:
    """Learn the choices inside LLM and RAG applications from their own traffic."""
