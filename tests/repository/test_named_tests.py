"""Docstrings and pages say which test shows something: that test is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NAMED = re.compile(r"(?<![\w/])tests/[\w/]+(?:\.py)?")
PLACES = ("src/**/*.py", "benchmarks/*.py", "tools/*.py", "docs/**/*.md", "deploy/**/*.md", "*.md")


@pytest.mark.slow
def test_every_test_that_is_named_is_there():
    absent = [
        f"{path.relative_to(ROOT)}: {name}"
        for place in PLACES
        for path in ROOT.glob(place)
        for name in NAMED.findall(path.read_text(encoding="utf-8"))
        if not (ROOT / name).exists() and not (ROOT / f"{name}.py").exists()
    ]
    assert absent == []
