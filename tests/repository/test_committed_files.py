"""Nothing that belongs to one machine, and no registry, is written into a committed file."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
# Written so that this file does not match itself.
MACHINE_PATH = re.compile(
    r"(?<![\w.~-])/(?:work|root|tmp|home/[a-z]\w*|opt/pypi|Users/\w+)(?![\w-])"
)
REGISTRY_HOST = re.compile(
    r"pypi[.]org|pythonhosted[.]org|registry[.]npmjs|(?:extra-)?index-url\s*[=:]", re.IGNORECASE
)


def committed_files() -> list[Path]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files are committed is not known")
    listed = subprocess.run(
        [git, "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def texts() -> dict[str, str]:
    found = {}
    for path in committed_files():
        if path == Path(__file__) or not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            found[str(path.relative_to(ROOT))] = data.decode("utf-8", errors="replace")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY_HOST], ids=["path", "registry"])
def test_no_committed_file_names_a_machine_path_or_a_registry(pattern):
    offences = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for name, text in texts().items()
        for match in pattern.finditer(text)
    ]
    assert offences == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (MACHINE_PATH, "see /ro" + "ot/.cache"),
        (MACHINE_PATH, "in '/tm" + "p'"),
        (REGISTRY_HOST, "https://py" + "pi.org/simple"),
        (REGISTRY_HOST, "--index-" + "url=x"),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern, text):
    assert pattern.search(text)


@pytest.mark.parametrize("text", ["~/tmp", "docs/work/x", "frame/root", "./root"])
def test_relative_paths_and_other_words_pass(text):
    assert not MACHINE_PATH.search(text)


def test_every_committed_file_is_small_enough_to_read_in_a_clone():
    large = {
        str(path.relative_to(ROOT)): path.stat().st_size
        for path in committed_files()
        if path.is_file() and path.stat().st_size > 4_000_000
    }
    assert large == {}
