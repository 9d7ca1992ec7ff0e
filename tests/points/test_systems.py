"""Systems are plug-ins: an installed distribution adds them, and the product works without any."""

import json
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
ABSENT = SYSTEM.replace("greeter:greet", "no_such_module:greet")
NO_COMMAND = SYSTEM.replace("greeter:greet", "greeter:SYSTEM")
PARTIAL = """
    from steersman.points.systems import System
    SYSTEM = System("greeter", "Chooses.", skill="greeter", points=("tone",), sample=True)
"""
NO_SERVICE = PARTIAL.replace("sample=True", 'service="no_such_module:Part"')


@pytest.fixture
def run(tmp_path):
    """Run ``steersman`` with a distribution beside those installed; its entry point may vary."""

    def run(*arguments, entry="greeter:SYSTEM", code=SYSTEM, program=("-m", "steersman.cli")):
        folder = tmp_path / "greeter-1.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1\n")
        (folder / "entry_points.txt").write_text(f"[steersman.systems]\ngreeter = {entry}\n")
        (tmp_path / "greeter.py").write_text(textwrap.dedent(code))
        paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return subprocess.run(
            [sys.executable, *program, *arguments],
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


@pytest.mark.parametrize(
    ("arguments", "code", "status", "said"),
    [
        (
            ("greet",), ABSENT, 1,
            "cannot load the command 'greet' of the system 'greeter', 'no_such_module:greet'",
        ),
        (
            ("demo", "greeter"), NO_COMMAND, 1,
            "invalid command 'greeter' of the system 'greeter': 'greeter:SYSTEM' is a System",
        ),
        (
            ("run", "greeter"), PARTIAL, 2,
            "the system 'greeter' has no configuration; name a file with --config",
        ),
    ],
    ids=["target not found", "target not a command", "no pipeline"],
)  # fmt: skip
def test_a_broken_part_ends_with_an_error_that_names_it(run, arguments, code, status, said):
    ran = run(*arguments, code=code)
    assert (ran.returncode, "Traceback" in ran.stderr) == (status, False)
    assert said in ran.stderr


@pytest.mark.parametrize(
    ("entry", "code", "said"),
    [
        ("greeter:SYSTEM", "import no_such_package", "cannot load the entry point 'greeter'"),
        ("greeter:SYSTEM", TAKEN, "two commands are named 'key'"),
        ("greeter:SYSTEM", NO_SERVICE, "cannot load the field service of the system 'greeter'"),
    ],
    ids=["entry point", "command", "service"],
)
def test_the_doctor_reports_a_broken_system_and_goes_on(run, tmp_path, entry, code, said):
    ran = run("doctor", "--home", tmp_path / "none", "--json", entry=entry, code=code)
    findings = {row["what"]: row for row in json.loads(ran.stdout)}
    assert findings["systems"]["verdict"] == "fail"
    assert said in findings["systems"]["found"]
    assert "service" in findings  # the last check
    assert ran.returncode == 1


@pytest.mark.parametrize("arguments", [("data", "backup"), ("rollout", "rollback"), ("up",)])
def test_a_broken_system_does_not_stop_other_commands(run, arguments):
    ran = run(*arguments, "--help", code="import no_such_package")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_sample_system_without_declarations_is_left_out(run):
    program = "from steersman.cli import up; print(len(up._sample_documents()))"
    ran = run(code=PARTIAL, program=("-c", program))
    assert (ran.stdout, ran.stderr) == ("3\n", "")  # those of the assistant
