"""Exit of commands: system errors, limited terminals, signals."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from steersman.cli import main

COMMAND = [sys.executable, "-m", "steersman.cli"]


@pytest.mark.parametrize("command", ["doctor --migrate", "up"])
def test_a_home_that_cannot_be_is_told_without_a_traceback(command, tmp_path):
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "home"
    ran = CliRunner().invoke(
        main, [*command.split(), "--home", str(home)], env={"DATABASE_URL": None}
    )
    assert ran.exit_code == 1
    assert isinstance(ran.exception, SystemExit)
    assert str(home) in ran.output
    assert "Not a directory" in ran.output


def test_a_backup_into_a_folder_that_is_not_there_is_told(command, tmp_path):
    told = command("data", "backup", tmp_path / "nowhere" / "file", status=1)
    assert "No such file or directory" in told


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_help_is_shown_at_a_terminal_that_does_not_know_all_letters(encoding):
    told = subprocess.run(
        [*COMMAND, "tune", "run", "--help"],
        env=os.environ | {"PYTHONIOENCODING": f"{encoding}:strict"},
        capture_output=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert b"name=value" in told.stdout


@pytest.mark.slow
def test_a_signal_that_nohup_ignores_stays_ignored():
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from steersman.cli.signals import tidy_when_told\n"
        "with tidy_when_told():\n"
        "    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN\n"
        "    assert callable(signal.getsignal(signal.SIGTERM))\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_is_changed_in_a_thread(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(CliRunner().invoke, main, ["--version"]).result()
    assert ran.exit_code == 0
    assert signal.getsignal(signal.SIGTERM) is before
