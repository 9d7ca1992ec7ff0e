"""Places: a directory and a bucket keep the same promises; two writers never both win."""

from __future__ import annotations

import http.client
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from steersman.errors import InputError, RegistryError, VerificationError
from steersman.registry.bucket import BucketPlace, open_place
from steersman.registry.storage import DirectoryPlace


def bucket_options(endpoint):
    return {
        "endpoint": endpoint,
        "access_key_id": "test",
        "secret_access_key": "test",
        "region": "us-east-1",
        "client_options": {"allow_http": True},
        "retry_config": {"max_retries": 0},
    }


@pytest.fixture(scope="module")
def endpoint():
    server = pytest.importorskip("moto.server").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    server.start()
    host, port = server.get_host_and_port()
    connection = http.client.HTTPConnection(host, port)
    connection.request("PUT", "/snapshots")
    connection.getresponse().read()
    connection.close()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["directory", "bucket"])
def place(request, tmp_path):
    if request.param == "directory":
        return open_place(tmp_path / "registry")
    options = bucket_options(request.getfixturevalue("endpoint"))
    return open_place(f"s3://snapshots/{tmp_path.name}", **options)


def test_a_file_is_written_once_and_read_back(place):
    assert place.read("a/b.json") is None
    tag = place.write_new("a/b.json", b"one")
    assert tag
    assert place.write_new("a/b.json", b"two") is None
    assert place.read("a/b.json") == (b"one", tag)


def test_a_file_is_replaced_only_if_it_is_what_was_read(place):
    first = place.write_new("a", b"one")
    second = place.replace("a", b"two", expected_tag=first)
    assert second not in (None, first)
    assert place.replace("a", b"three", expected_tag=first) is None
    assert place.read("a") == (b"two", second)
    assert place.replace("a", b"four", expected_tag=None)
    assert place.replace("not there", b"x", expected_tag=first) is None
    assert place.replace("new", b"x", expected_tag=None)


def test_of_many_that_swap_at_once_one_wins(place):
    tag = place.write_new("a", b"begin")
    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(lambda n: place.write_new("b", b"%d" % n), range(8)))
        swapped = list(
            pool.map(lambda n: place.replace("a", b"%d" % n, expected_tag=tag), range(8))
        )
    assert sum(it is not None for it in written) == 1
    assert sum(it is not None for it in swapped) == 1
    assert place.read("b").data == b"%d" % next(n for n in range(8) if written[n])
    assert place.read("a").data == b"%d" % next(n for n in range(8) if swapped[n])


def test_files_are_listed_and_removed(place):
    for path in ("b/2", "b/1", "a/c/1", "z"):
        place.write_new(path, b"x")
    assert list(place.list("b")) == ["b/1", "b/2"]
    assert list(place.list("")) == ["a/c/1", "b/1", "b/2", "z"]
    assert list(place.list("none")) == []
    place.remove("a/c/1")
    place.remove("a/c/1")
    assert list(place.list("")) == ["b/1", "b/2", "z"]


def test_no_more_is_read_than_is_allowed(place):
    place.write_new("a", bytes(100))
    assert len(place.read("a", max_bytes=100).data) == 100
    with pytest.raises(VerificationError, match="longer than 99 bytes"):
        place.read("a", max_bytes=99)


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "/etc/passwd", "a//b", ".", "", "a\\b", "a\0"]
)
def test_paths_that_lead_out_of_a_directory_are_refused(tmp_path, path):
    place = DirectoryPlace(tmp_path / "registry")
    for attempt in (
        lambda: place.read(path),
        lambda: place.write_new(path, b""),
        lambda: place.replace(path, b"", expected_tag=None),
        lambda: place.remove(path),
    ):
        with pytest.raises(VerificationError, match="points outside the registry"):
            attempt()


def test_a_pipe_in_a_directory_does_not_hold_a_reader(tmp_path):
    os.mkfifo(tmp_path / "timestamp.json")
    with pytest.raises(VerificationError, match="not a regular file"):
        DirectoryPlace(tmp_path).read("timestamp.json")


def test_a_file_served_to_others_is_readable_for_them(tmp_path):
    DirectoryPlace(tmp_path).write_new("a", b"x")
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_bucket_that_is_not_there_is_told(endpoint):
    place = BucketPlace("s3://nowhere/x", **bucket_options(endpoint))
    with pytest.raises(RegistryError, match="check its name"):
        place.write_new("a", b"x")


def test_a_server_that_is_away_is_told():
    place = BucketPlace("s3://snapshots/x", **bucket_options("http://127.0.0.1:9"))
    with pytest.raises(RegistryError, match="bucket request failed for a"):
        place.read("a")


def test_places_are_opened_by_url(tmp_path):
    assert open_place(f"file://{tmp_path}/with%20space").root == tmp_path / "with space"
    with pytest.raises(InputError, match="allowed: a directory or s3"):
        open_place("https://example.org/registry")


def test_folders_that_vanish_while_they_are_listed_are_none(tmp_path, monkeypatch):
    """Another publisher tidies away what was archived."""
    place = DirectoryPlace(tmp_path)
    for path in ("a/1/x", "a/2/x", "b/x"):
        place.write_new(path, b"x")
    scan = os.scandir

    def late(folder):
        if str(folder).endswith("a/2"):
            place.remove("a/2/x")
        return scan(folder)

    monkeypatch.setattr(os, "scandir", late)
    assert list(place.list("")) == ["a/1/x", "b/x"]


def test_a_folder_that_is_removed_while_a_file_is_written_is_made_again(tmp_path, monkeypatch):
    place = DirectoryPlace(tmp_path)
    place.write_new("a/old", b"x")
    flush = os.fsync

    def late(handle):
        monkeypatch.setattr(os, "fsync", flush)
        place.remove("a/old")  # and the folder, which is empty then
        flush(handle)

    monkeypatch.setattr(os, "fsync", late)
    assert place.write_new("a/new", b"y")
    assert list(place.list("")) == ["a/new"]
