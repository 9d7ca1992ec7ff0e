"""The gates find what they are for; a gate that always passes is worse than none."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.without_torch import without_torch
from tools import docs_gate, sizes, sql_gate

ROOT = Path(__file__).parent.parent.parent


def test_a_function_is_measured_without_its_docstring():
    source = 'def f(a: int, *rest, b: str = ""):\n    """One.\n\n    Two.\n    """\n    return a\n'
    (function,) = sizes.measure_file(Path("a.py"), source).functions
    assert (function.lines, function.arguments, function.typed) == (2, 3, 2)


@pytest.mark.parametrize(("lines", "stops"), [(59, 0), (60, 1)])
def test_a_function_of_more_than_sixty_lines_stops(lines, stops):
    source = "def f() -> None:\n" + "    pass\n" * lines
    assert len(sizes._stops(sizes.measure_file(Path("a.py"), source))) == stops


@pytest.mark.parametrize(("lines", "stops"), [(600, 0), (601, 1)])
def test_a_file_of_more_than_six_hundred_code_lines_stops(lines, stops):
    source = '"""One.\n\nTwo.\n"""\n\n# Three.\n' + "x = 1\n" * lines
    assert len(sizes._stops(sizes.measure_file(Path("a.py"), source))) == stops


@pytest.mark.parametrize(("lines", "stops"), [(120, 0), (121, 1)])
def test_a_readme_of_more_than_a_hundred_and_twenty_lines_stops(lines, stops):
    assert len(sizes._readme_stops("x\n" * lines)) == stops


@pytest.mark.parametrize(("words", "stops"), [(600, 0), (601, 1)])
def test_a_decision_record_of_more_than_six_hundred_words_stops(words, stops):
    assert len(sizes._record_stops("0001.md", "| – |\n" + "word " * words)) == stops


def test_code_docstrings_and_exports_are_counted_apart():
    source = (
        '"""Module."""\n\n__all__ = ["A", "b"]\n\n\nclass A:\n    """One.\n\n    Two."""\n\n'
        '    x = 1  # why\n    """Attribute."""\n    y = """text\n\n    text"""\n'
    )
    file = sizes.measure_file(Path("__init__.py"), source)
    assert (file.code, file.docstrings, file.exported) == (6, 5, 2)


def test_a_figure_beyond_its_limit_says_no():
    found = sizes.figures([sizes.measure_file(Path("a/reading.py"), "x = 1\n")], 31)
    assert [figure.name for figure in found if not figure.holds] == [
        "median code lines a file",
        found[-1].name,
    ]
    assert found[-1].row().endswith("| 31 | ≤ 30 | NO |")
    assert [figure.value for figure in found if "-ing" in figure.name] == [1]


def bare(x: int) -> int:
    """Return x."""
    if x < 0:
        raise ValueError(x)
    return x


def full(x: int) -> int:
    """Return x.

    Args:
        x: At least 0.

    Returns:
        The same.

    Raises:
        ValueError: Below 0.
    """
    if x < 0:
        raise ValueError(x)
    return x


def test_the_docs_gate_names_each_missing_section():
    assert list(docs_gate._function_gaps(bare)) == [
        "has no Args:",
        "has no Returns:",
        "has no Raises:",
    ]
    assert list(docs_gate._function_gaps(full)) == []


@pytest.mark.slow
def test_the_docs_gate_leaves_out_what_is_not_installed_but_in_ci():
    """`make check` of a fresh checkout has no torch."""
    gate = without_torch(
        "import os\n"
        "from tools import docs_gate\n"
        "for ci in ('', 'true'):\n"
        "    os.environ['CI'] = ci\n"
        "    print('status', docs_gate.main())\n"
    )
    left_out = "DOCS steersman.training.ppo is left out: PPO needs the package torch"
    assert gate.stdout.count(left_out) == 2, gate.stdout + gate.stderr
    told = [line for line in gate.stdout.splitlines() if line.startswith("status")]
    assert told == ["status 0", "status 1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "outcome"),
    [
        ("```python\nprint(1 + 1)\n```\n\n```text\n2\n```\n", "2 passed"),
        ("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", "1 failed"),
        ("```python\nprint(1 + 1)\n```\n", "1 error"),
        ("```python\n>>> 1 + 1\n3\n```\n", "1 failed"),
        ("```python\nx = 1\n```\n\n```python\n>>> x\n1\n```\n", "2 passed"),
    ],
    ids=["shown", "shown wrongly", "not shown", "doctest", "one namespace"],
)
def test_snippets_are_run_and_their_output_is_compared(tmp_path, page, outcome):
    (tmp_path / "page.md").write_text(page)
    (tmp_path / "conftest.py").write_text(
        "from tools.snippets import collect\n"
        f"pytest_collect_file = collect(root={str(tmp_path)!r}, patterns=('*.md',))\n"
    )
    call = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", ".", "page.md"]
    ran = subprocess.run(
        call,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in ran.stdout, ran.stdout


@pytest.mark.slow
def test_a_pure_floor_that_reads_the_clock_breaks_its_contract(tmp_path):
    floor = tmp_path / "pure" / "policies"
    floor.mkdir(parents=True)
    (tmp_path / "pure" / "__init__.py").touch()
    (floor / "__init__.py").write_text("import json\nimport numpy\nimport time\nimport rich\n")
    (tmp_path / ".importlinter").write_text(
        "[importlinter]\nroot_package = pure\ninclude_external_packages = True\n"
        "contract_types =\n    pure: tools.pure_floor.PureFloor\n"
        "[importlinter:contract:1]\nname = pure\ntype = pure\nfloors = policies\n"
        "allowed = numpy\nforbidden_standard = time\n"
    )
    call = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    ran = subprocess.run(
        call,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    refused = [line for line in ran.stdout.splitlines() if "must not import" in line]
    assert [line.split()[-1] for line in refused] == ["rich", "time"]


@pytest.mark.parametrize(
    "source",
    [
        'run("SELECT 1")',
        'run(f"UPDATE {table} SET x = 1")',
        'run("INSERT OR IGNORE INTO answer VALUES (?)")',
        'query = """\nWITH newest AS MATERIALIZED (\n"""',
        'run("pg_try_advisory_lock(1)")',
        'run(f"SET lock_timeout = {seconds}")',
    ],
)
def test_sql_outside_db_is_found(source):
    assert [one.line for one in sql_gate.find(source)] == [1]


@pytest.mark.parametrize(
    "source",
    [
        '"""Run one SELECT over all rows."""',
        'def f():\n    """Like INSERT INTO."""',
        'say("select another update; set a = b")',
        'say("SELECT pg_reload_conf()")  # sql: shown - advice',
    ],
)
def test_words_and_shown_sql_are_left_alone(source):
    assert sql_gate.find(source) == []


def test_no_sql_stands_outside_db(capsys):
    assert sql_gate.main() == 0, capsys.readouterr().out
