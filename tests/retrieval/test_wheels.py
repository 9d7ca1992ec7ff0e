"""Pinned wheels: only the very file that was meant is ever read."""

import hashlib
import io
import zipfile

import pytest

from steersman.errors import DataError
from steersman.platform.wheel_files import PinnedWheel, assemble, state_directory

FILENAME = "sample-1.0-py3-none-any.whl"


@pytest.fixture
def content():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("sample/data.json", b'{"a": 1}')
        wheel.writestr("sample/zeros", bytes(1_000_000))
        about = "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\nRequires-Dist: not-there\n"
        wheel.writestr("sample-1.0.dist-info/METADATA", about)
        wheel.writestr("sample-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    return buffer.getvalue()


@pytest.fixture
def wheel(content):
    digest = hashlib.sha256(content).hexdigest()
    return PinnedWheel("sample", "1.0", FILENAME, digest, len(content), "Apache-2.0")


@pytest.fixture
def home(tmp_path, wheel, content):
    wheel.path(tmp_path).parent.mkdir(parents=True)
    wheel.path(tmp_path).write_bytes(content)
    return tmp_path


def test_read_gives_members(wheel, home):
    assert wheel.fetch(home) == home / "wheels" / FILENAME
    assert wheel.read({"sample/data.json": 100}, home) == {"sample/data.json": b'{"a": 1}'}


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"sample/zeros": 999_999}, "more than 999999 bytes"),
        ({"sample/other": 10}, "sample/other is not in"),
    ],
)
def test_read_of_a_member_over_its_cap_or_unknown_is_refused(wheel, home, members, says):
    with pytest.raises(DataError, match=says):
        wheel.read(members, home)


@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: c[:-1] + b"?", lambda c: c[:0]])
def test_a_changed_file_is_refused(wheel, home, content, change):
    wheel.path(home).write_bytes(change(content))
    for use in (wheel.fetch, lambda home: wheel.read({"sample/data.json": 100}, home)):
        with pytest.raises(DataError, match="delete it and fetch it again"):
            use(home)


def test_a_missing_file_names_the_command(wheel, tmp_path):
    with pytest.raises(DataError, match="steersman data fetch"):
        wheel.read({"sample/data.json": 100}, tmp_path)


@pytest.mark.slow
def test_offline_is_an_error_that_says_what_to_do(wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(DataError, match="go online, or put the file"):
        wheel.fetch(tmp_path)
    assert list((tmp_path / "wheels").iterdir()) == []


@pytest.fixture
def index(tmp_path, monkeypatch):
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.slow
def test_fetch_takes_the_wheel_without_its_dependencies(wheel, content, tmp_path, index):
    (index / FILENAME).write_bytes(content)
    assert wheel.fetch(tmp_path).read_bytes() == content
    assert [path.name for path in (tmp_path / "wheels").iterdir()] == [FILENAME]


@pytest.mark.slow
def test_fetch_refuses_a_file_with_another_hash(wheel, content, tmp_path, index):
    (index / FILENAME).write_bytes(content[:-1] + b"\x01")
    with pytest.raises(DataError, match="pip could not download sample"):
        wheel.fetch(tmp_path)
    assert not wheel.path(tmp_path).exists()


def test_state_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("STEERSMAN_HOME", str(tmp_path))
    assert state_directory() == tmp_path
    assert state_directory(tmp_path / "other") == tmp_path / "other"
    monkeypatch.delenv("STEERSMAN_HOME")
    assert state_directory().name == ".steersman"


def test_a_member_is_unpacked_once_and_checked_always(wheel, home):
    digest = hashlib.sha256(b'{"a": 1}').hexdigest()
    file = wheel.unpack("sample/data.json", digest, home)
    assert file.read_bytes() == b'{"a": 1}'
    file.write_bytes(b"spoilt")
    assert wheel.unpack("sample/data.json", digest, home).read_bytes() == b'{"a": 1}'
    wheel.path(home).unlink()  # no longer needed
    assert wheel.unpack("sample/data.json", digest, home) == file


def test_a_file_in_parts_is_put_together_once_and_checked_always(wheel, home):
    parts = [(wheel, "sample/data.json")] * 2
    digest = hashlib.sha256(b'{"a": 1}' * 2).hexdigest()
    file = assemble(parts, "whole.bin", digest, home)
    assert (file.name, file.read_bytes()) == ("whole.bin", b'{"a": 1}' * 2)
    with pytest.raises(DataError, match=r"the sha256 of .* is not"):
        assemble(parts[:1], "whole.bin", digest[::-1], home)
    assert [one.name for one in file.parent.iterdir()] == ["whole.bin"]
    wheel.path(home).unlink()  # no longer needed
    assert assemble(parts, "whole.bin", digest, home) == file


def test_unpack_refuses_another_member_than_was_meant(wheel, home):
    with pytest.raises(DataError, match=r"the sha256 of .* is not"):
        wheel.unpack("sample/data.json", "0" * 64, home)
    with pytest.raises(DataError, match="sample/other is not in"):
        wheel.unpack("sample/other", "0" * 64, home)
    assert not list((home / "wheels" / "sample-1.0").iterdir())
