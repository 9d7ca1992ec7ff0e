"""The command reference equals the commands' help, and each command has a help text."""

import click
import pytest
from click.testing import CliRunner

from steersman.cli import main
from tools.commands_reference import PAGE, commands, write

ALL = list(commands(main, ()))


def test_the_page_is_what_the_commands_say(monkeypatch):
    for name in ("STEERSMAN_HOME", "STEERSMAN_URL", "STEERSMAN_API_KEY", "STEERSMAN_COLD"):
        monkeypatch.delenv(name, raising=False)
    assert PAGE.read_text() == write(), "run python -m tools.commands_reference"


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_command_helps(path, command):
    ran = CliRunner().invoke(main, [*path, "--help"])
    assert ran.exit_code == 0
    assert len(command.help) > 20
    if isinstance(command, click.Group):
        return
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    without = [option.name for option in options if not option.help]
    assert without == []


def test_every_command_that_prints_a_result_prints_json_too():
    silent = {"serve", "learn run", "data keep", "rollout run", "tenant export", "demo assistant"}
    names = {
        " ".join(path)
        for path, command in ALL
        if not isinstance(command, click.Group)
        and not any("--json" in param.opts for param in command.params)
    }
    assert names <= silent
