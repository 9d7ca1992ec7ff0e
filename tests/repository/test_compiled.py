"""The one file in C: built where there is a compiler, and done without elsewhere."""

import ctypes
import shutil
import subprocess
import sys
import zipfile

import pytest

from steersman.cli import doctor_machine as checkup
from steersman.policies import gaussian_compiled
from tools import build_compiled


@pytest.fixture
def library(monkeypatch, tmp_path):
    library = tmp_path / "_gaussian_choice.so"
    monkeypatch.setattr(build_compiled, "LIBRARY", library)
    return library


def test_it_is_compiled_here():
    assert gaussian_compiled.is_compiled(), "python -m tools.build_compiled"


def test_what_is_built_can_be_loaded(library):
    assert build_compiled.compile_library() is None
    assert ctypes.CDLL(str(library)).steersman_gaussian_choice
    assert list(library.parent.iterdir()) == [library]


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("no-such-compiler", "no C compiler (no-such-compiler)"),
        ("", "no C compiler (CC is empty)"),
        ("false", "false failed: no word"),
    ],
)
def test_without_a_compiler_it_is_said_and_no_older_file_is_left(
    library, monkeypatch, compiler, said
):
    library.write_bytes(b"of an older source")
    monkeypatch.setenv("CC", compiler)
    assert build_compiled.compile_library() == said
    assert not library.exists()


def test_what_the_compiler_complained_of_is_said(library, monkeypatch, tmp_path):
    broken = tmp_path / "broken.c"
    broken.write_text("#warning first\nint main(void) { return missing; }\n")
    monkeypatch.setattr(build_compiled, "SOURCE", broken)
    library.write_bytes(b"of an older source")
    assert "error: " in build_compiled.compile_library()
    assert not library.exists()


def test_the_old_file_is_there_until_the_new_one_is(library, monkeypatch):
    library.write_bytes(b"of an older source")
    compiled = build_compiled.compile_to

    def watched(made):
        assert library.read_bytes() == b"of an older source"
        return compiled(made)

    monkeypatch.setattr(build_compiled, "compile_to", watched)
    assert build_compiled.compile_library() is None
    assert library.stat().st_size > 10_000


def test_where_nothing_can_be_written_it_is_said(library, monkeypatch):
    monkeypatch.setattr(build_compiled, "LIBRARY", library.parent / "missing" / library.name)
    assert "missing cannot be written: " in build_compiled.compile_library()


@pytest.mark.parametrize("source", ["no library", "int other(void) { return 0; }"])
def test_a_file_that_cannot_be_loaded_is_none(monkeypatch, tmp_path, source):
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"for another machine")
    if source.endswith("}"):
        monkeypatch.setattr(build_compiled, "SOURCE", tmp_path / "other.c")
        build_compiled.SOURCE.write_text(source)
        assert build_compiled.compile_to(broken) is None
    monkeypatch.setattr(gaussian_compiled, "LIBRARY", str(broken))
    assert gaussian_compiled._load() is None


@pytest.mark.parametrize("compiled", [True, False])
def test_the_doctor_tells(monkeypatch, compiled):
    monkeypatch.setattr(checkup, "is_compiled", lambda: compiled)
    told = next(found for found in checkup.look_at_python() if found.what == "compiled")
    assert told.verdict == ("ok" if compiled else "warn")
    assert ("C compiler" in told.advice) is not compiled


@pytest.mark.slow
@pytest.mark.parametrize(("compiler", "kind"), [("cc", "linux"), ("no-such-compiler", "any")])
def test_a_wheel_is_for_all_systems_only_without_it(monkeypatch, tmp_path, compiler, kind):
    if sys.platform != "linux":
        pytest.skip("the name of a wheel is that of the system")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "configs", "tools", "src/steersman"):
        here, there = build_compiled.ROOT / name, source / name
        there.parent.mkdir(exist_ok=True)
        (shutil.copytree if here.is_dir() else shutil.copy)(here, there)
    library_of(source).write_bytes(b"of this checkout")  # which stays, and goes into no wheel
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    monkeypatch.setenv("CC", compiler)
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    assert library_of(source).read_bytes() == b"of this checkout"
    (wheel,) = tmp_path.glob("*.whl")
    assert f"-py3-none-{kind}" in wheel.name
    held = zipfile.ZipFile(wheel)
    within = [name for name in held.namelist() if name.endswith(".so")]
    assert within == (["steersman/policies/_gaussian_choice.so"] if kind == "linux" else [])
    assert all(held.read(name).startswith(b"\x7fELF") for name in within)


def library_of(checkout):
    return checkout / build_compiled.LIBRARY.relative_to(build_compiled.ROOT)
