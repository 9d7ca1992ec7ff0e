"""Pages about the structure of the project name files and folders that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = (
    "docs/ARCHITECTURE.md",
    "docs/adr/0*.md",
    "systems/steersman_systems/*/README.md",
    "CONTRIBUTING.md",
)
NAMED = re.compile(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.(?:py|c|md|yaml|toml|json|npz)))`")
FOLDER_OF_TABLE = re.compile(r"^\| `([\w./]+)` \|", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:\s]+)\)")
# Names by which a text means another place than one of ours.
ELSEWHERE = frozenset({"benchmarks/NAME.py", "config.json", "manifest.jsonl"})


def bases(page: Path) -> list[Path]:
    systems = ROOT / "systems/steersman_systems"
    ours = [ROOT, ROOT / "src/steersman", ROOT / "src", ROOT / "sdk/python/steersman_client"]
    return [*ours, systems, page.parent, *systems.iterdir()]


def absent(page: Path, text: str) -> list[str]:
    named = {*NAMED.findall(text), *FOLDER_OF_TABLE.findall(text)} - ELSEWHERE
    named = {name for name in named if "/" in name or name.endswith((".py", ".c"))}
    missing = [
        name for name in sorted(named) if not any((base / name).exists() for base in bases(page))
    ]
    return missing + [link for link in LINK.findall(text) if not (page.parent / link).exists()]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)))
        for name in PAGES
        for page in ROOT.glob(name)
    ],
)
def test_every_named_path_exists(page):
    assert absent(page, page.read_text(encoding="utf-8")) == []


def test_a_path_that_does_not_exist_is_found():
    page = ROOT / "docs/ARCHITECTURE.md"
    text = "`src/steersman/nowhere/`, `ope/away.py`, [a](gone.md)\n| `src/steersman/gone` | x |\n"
    assert absent(page, text) == [
        "ope/away.py",
        "src/steersman/gone",
        "src/steersman/nowhere/",
        "gone.md",
    ]


def test_every_band_has_a_row_in_the_architecture():
    text = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = FOLDER_OF_TABLE.findall(text)
    bands = [
        f"src/steersman/{folder.name}"
        for folder in (ROOT / "src/steersman").iterdir()
        if (folder / "__init__.py").exists()
    ]
    assert [band for band in sorted(bands) if band not in rows] == []
