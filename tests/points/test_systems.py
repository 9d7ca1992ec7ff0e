"""Systems are plug-ins: an installed distribution adds them, and the product works without any."""

import os
import subprocess
import sys
import textwrap

import pytest

SYSTEM = """
    import click
    from steersman.points.systems import Command, System

    @click.command()
    def greet():
        "Print a greeting."
        click.echo("good morning")

    SYSTEM = System(
        "greeter",
        "Chooses a greeting.",
        commands={"greet": Command("Print a greeting.", "greeter:greet")},
        demo={"greeter": Command("Greet once.", "greeter:greet")},
    )
"""


TWICE = SYSTEM.replace('"greeter",', '"assistant",', 1)
TAKEN = SYSTEM.replace('"greet":', '"key":')
TAKEN_DEMO = SYSTEM.replace('demo={"greeter"', 'demo={"assistant"')


@pytest.fixture
def run(tmp_path):
    """Run ``steersman`` with a distribution beside those installed; its entry point may vary."""

    def run(*arguments, entry="greeter:SYSTEM", code=SYSTEM, name="greeter"):
        folder = tmp_path / "greeter-1.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1\n")
        (folder / "entry_points.txt").write_text(f"[steersman.systems]\n{name} = {entry}\n")
        (tmp_path / "greeter.py").write_text(textwrap.dedent(code))
        paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return subprocess.run(
            [sys.executable, "-m", "steersman.cli", *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    return run


def test_an_installed_system_adds_a_command_and_a_demo(run):
    assert "Print a greeting." in run("--help").stdout
    assert run("greet").stdout == "good morning\n"
    assert "Greet once." in run("demo", "--help").stdout
    assert run("demo", "greeter").stdout == "good morning\n"


@pytest.mark.parametrize(
    ("entry", "code", "said"),
    [
        ("greeter:greet", SYSTEM, "expected a steersman.points.systems.System"),
        ("greeter:SYSTEM", TWICE, "two installed systems are named 'assistant'"),
        ("greeter:SYSTEM", "import no_such_package", "cannot load the entry point 'greeter'"),
    ],
)  # fmt: skip
def test_a_broken_system_ends_with_an_error_that_names_it(run, entry, code, said):
    ran = run("--help", entry=entry, code=code)
    assert ran.returncode == 1
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_command_cannot_take_a_name_that_is_taken(run):
    listed = run("--help", code=TAKEN)
    assert listed.returncode == 1
    assert "two commands are named 'key': one of Steersman, and one of the system 'greeter'" in (
        listed.stderr
    )
    assert "Create, list, rotate" in run("key", "--help", code=TAKEN).stdout
    demos = run("demo", "assistant", code=TAKEN_DEMO)
    assert demos.returncode == 1
    assert "one of the system 'assistant', and one of the system 'greeter' (demo)" in demos.stderr
