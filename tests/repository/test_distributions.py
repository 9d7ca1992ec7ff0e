"""What the distributions hold."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


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
