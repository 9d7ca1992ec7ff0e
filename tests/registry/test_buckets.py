"""Buckets that lose an answer, or ignore conditions; and URLs that hold what nobody may read."""

from __future__ import annotations

import re
import threading
from hashlib import md5
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from steersman.errors import InputError, RegistryError
from steersman.registry.bucket import open_place
from steersman.registry.fetch import open_source
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from tests.registry.conftest import PASSPHRASE, served, snapshot_of


class Bucket(BaseHTTPRequestHandler):
    """As much of S3 as a registry uses; each test has objects of its own."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    turn: threading.Lock
    conditions = frozenset({"If-Match", "If-None-Match"})
    lose: list[str]
    """Parts of paths: the answer to the next write of such an object is lost."""

    def log_message(self, *given):
        pass

    @property
    def key(self):
        return unquote(urlsplit(self.path).path)

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        asked = parse_qs(urlsplit(self.path).query)
        if "list-type" in asked:
            self.answer(200, self.listing(asked.get("prefix", [""])[0]))
        elif self.key in self.objects:
            data = self.objects[self.key]
            date = "Thu, 01 Jan 2026 00:00:00 GMT"
            self.answer(200, data, ETag=tag_of(data), Last_Modified=date)
        else:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    do_HEAD = do_GET  # noqa: N815 (its name)

    def listing(self, prefix):
        found = [key.removeprefix("/b/") for key in sorted(self.objects)]
        parts = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<Size>1</Size></Contents>"
            for key in found
            if key.startswith(prefix)
        )
        head = f"<Name>b</Name><Prefix>{prefix}</Prefix><IsTruncated>false</IsTruncated>"
        return f"<ListBucketResult>{head}{parts}</ListBucketResult>".encode()

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        with self.turn:
            if self.refuses():
                return self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            self.objects[self.key] = data
            lost = next((part for part in self.lose if part in self.key), None)
        if lost is not None:
            self.lose.remove(lost)
            return self.answer(500, b"<Error><Code>InternalError</Code></Error>")
        return self.answer(200, ETag=tag_of(data))

    def refuses(self):
        there, wanted = self.objects.get(self.key), self.headers.get("If-Match")
        if "If-None-Match" in self.headers and "If-None-Match" in self.conditions:
            return there is not None
        if wanted is None or "If-Match" not in self.conditions:
            return False
        return there is None or wanted != tag_of(there)

    def do_POST(self):
        """Remove what is listed."""
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        found = re.findall("<Key>(.*?)</Key>", text)
        for key in found:
            self.objects.pop(f"/b/{key}", None)
        done = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in found)
        self.answer(200, f"<DeleteResult>{done}</DeleteResult>".encode())


def tag_of(data):
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


@pytest.fixture
def bucket():
    pytest.importorskip("obstore")
    members = {"objects": {}, "turn": threading.Lock(), "lose": []}
    kind = type("Bucket", (Bucket,), members)
    with served(kind) as url:
        kind.url = url
        yield kind


def place_in(bucket):
    return open_place(
        "s3://b/acme",
        endpoint=bucket.url,
        access_key_id="test",
        secret_access_key="test",  # noqa: S106
        region="us-east-1",
        client_options={"allow_http": True},
    )


@pytest.fixture
def publisher(bucket, world):
    made = Publisher(place_in(bucket), Keys(world.home / "bucket-keys"), clock=world.clock)
    made.create("acme", PASSPHRASE)
    return made


@pytest.mark.slow
def test_a_change_whose_answer_was_lost_is_told_as_done(bucket, publisher):
    """The library tries again by itself, and is refused, since it was done."""
    for version in ("0.1.0", "0.2.0"):
        publisher.publish(*snapshot_of(version))
    bucket.lose.append("timestamp.json")
    assert publisher.mark("assistant", "route", {"0.1.0": "released"})
    bucket.lose.append("timestamp.json")
    publisher.retract("assistant", "route", "0.2.0", reason="harmful")
    assert publisher.standings("assistant", "route") == {"0.1.0": "released"}
    bucket.lose.append("2.root.json")
    publisher.rotate("timestamp", PASSPHRASE)
    assert not bucket.lose


def test_what_another_wrote_is_not_taken_for_ours(bucket, publisher):
    place = place_in(bucket)
    tag = place.write_new("a", b"one")
    assert place.write_new("a", b"two") is None
    assert place.write_new("a", b"a longer one") is None
    assert place.replace("a", b"two", expected_tag=tag)
    assert place.replace("a", b"three", expected_tag=tag) is None


@pytest.mark.parametrize("ignored", ["If-Match", "If-None-Match"])
def test_a_bucket_that_ignores_conditions_is_refused(bucket, world, ignored):
    bucket.conditions = Bucket.conditions - {ignored}
    publisher = Publisher(place_in(bucket), Keys(world.home / "others"), clock=world.clock)
    with pytest.raises(RegistryError, match=f"the bucket ignores {ignored}: two publishers"):
        publisher.create("acme", PASSPHRASE)
    assert not bucket.objects
    assert not (world.home / "others").exists()


def test_the_probe_leaves_nothing_behind(bucket, publisher):
    assert not [key for key in bucket.objects if "probe" in key]


@pytest.mark.parametrize(
    "url",
    [
        "https://ann:hunter2@example.org/acme",
        "https://example.org/acme?token=hunter2",
        "https://example.org/acme#hunter2",
        "ftp://ann:hunter2@example.org/acme",
        "s3://AKIA:hunter2@bucket/acme",
        "s3://bucket/acme?secret=hunter2",
    ],
)
def test_errors_show_no_secret_of_a_url(url):
    with pytest.raises(InputError) as refused:
        open_source(url)
    assert "hunter2" not in str(refused.value)
    assert "acme" in str(refused.value)


@pytest.mark.parametrize("url", ["s3://", "s3:///acme"])
def test_a_url_without_a_bucket_is_told(url):
    with pytest.raises(InputError, match=r"does not name a bucket; expected s3://bucket/prefix"):
        open_place(url)


def test_a_file_on_another_host_is_not_looked_for_on_this_one(tmp_path):
    with pytest.raises(InputError, match="is on another host; mount it"):
        open_place("file://host/acme")
    assert open_place(f"file://localhost{tmp_path}").root == tmp_path
