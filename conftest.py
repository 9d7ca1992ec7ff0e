"""Shared setup of all tests: hypothesis profile, and the documentation as tests.

Every ``python`` block of the documentation is run and its output compared. A block that prints must
be followed by a ``text`` block with exactly that output; a block with ``>>>`` is a doctest. Blocks
of one page share a namespace, from top to bottom.
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
}  # folder -> parents that are not packages
_ABSENT = [name for name in _INSTALLED_BY if find_spec(name) is None]

# By default hypothesis fails an example that takes more than 200 ms, or a slow draw; on a busy
# machine this is not a failure. Other settings are the defaults: fixed examples under CI.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

pytest_collect_file = collect(root=str(_ROOT), patterns=("README.md", "docs/*.md", "docs/**/*.md"))


def pytest_configure(config: pytest.Config) -> None:
    """Disable garbage collection while nine thousand tests are collected, because all are kept."""
    if config.getoption("dist", "no") == "no":  # the xdist controller collects no tests
        gc.disable()
    read_late.register(config)


def pytest_collection_finish() -> None:
    """Collect garbage rarely from here on, and never scan the collected tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def pytest_unconfigure() -> None:
    """Unfreeze the objects for Python's exit; DuckDB prints complaints about leftover ones."""
    gc.unfreeze()


def pytest_report_header(config: pytest.Config) -> list[str]:  # noqa: ARG001 (pytest names it)
    """Report missing optional libraries, which are in no lock of the tests."""
    return [
        f"without {name}: what needs it is left out; {_INSTALLED_BY[name]} installs it"
        for name in _ABSENT
    ]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Skip doctests of modules whose optional libraries are missing; CI has them."""
    inside = collection_path.relative_to(_ROOT).with_suffix("").parts
    if not _ABSENT or inside[0] not in _SOURCES or collection_path.suffix != ".py":
        return None
    try:
        import_module(".".join(inside[_SOURCES[inside[0]] :]))
    except (ImportError, DataError):
        return True
    return None
