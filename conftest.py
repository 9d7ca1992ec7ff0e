"""What all tests share: how examples are drawn, and the documentation as tests.

Every ``python`` block of the documentation is run, and the output it shows is compared. A block
that prints must be followed by a ``text`` block with exactly that output; a block written with
``>>>`` is a doctest. Blocks of one page share their names, from top to bottom.
"""

import gc
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from steersman.errors import DataError
from tools import read_late
from tools.snippets import collect

_ROOT = Path(__file__).parent
_INSTALLED_BY = {"torch": "tools/torch", "ray": "tools/install dev rag ray"}
_SOURCES = {
    "src": 1,
    "systems": 1,
    "sdk": 2,
    "benchmarks": 0,
}  # folder -> parents that are no package
_ABSENT = [name for name in _INSTALLED_BY if find_spec(name) is None]

# A busy machine is no failure: hypothesis otherwise fails an example that took more than 200 ms, or
# one that was slow to draw. All else is as hypothesis has it: fixed examples under CI.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

pytest_collect_file = collect(root=str(_ROOT), patterns=("README.md", "docs/*.md", "docs/**/*.md"))


def pytest_configure(config: pytest.Config) -> None:
    """Let nothing be looked through for cycles while nine thousand tests are made, to be kept."""
    if config.getoption("dist", "no") == "no":  # whoever only hands out tests makes none
        gc.disable()
    read_late.register(config)


def pytest_collection_finish() -> None:
    """From here on look through what a test leaves, seldom, and not at all the tests again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def pytest_unconfigure() -> None:
    """Let Python end as it does: DuckDB complains of what is left over, in a page of lines."""
    gc.unfreeze()


def pytest_report_header(config: pytest.Config) -> list[str]:  # noqa: ARG001 (pytest names it)
    """Say what is left out, and how it is had: these two stand in no lock of the tests."""
    return [
        f"without {name}: what needs it is left out; {_INSTALLED_BY[name]} installs it"
        for name in _ABSENT
    ]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Look for doctests only in what can be imported where those two are not; CI has them."""
    inside = collection_path.relative_to(_ROOT).with_suffix("").parts
    if not _ABSENT or inside[0] not in _SOURCES or collection_path.suffix != ".py":
        return None
    try:
        import_module(".".join(inside[_SOURCES[inside[0]] :]))
    except (ImportError, DataError):
        return True
    return None
