"""Publishers killed anywhere, two at a time, on a full disk: consumers see all or nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path

import pytest

from steersman.errors import RegistryError
from steersman.registry.bucket import open_place
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.registry.storage import DirectoryPlace
from tests.faults.harness import small_disk
from tests.registry.conftest import PASSPHRASE, Clock, World, snapshot_of
from tests.registry.test_place import bucket_options, endpoint  # noqa: F401 -- a fixture

DIE = Path(__file__).with_name("publish_and_die.py")


@contextmanager
def killable(world):
    """Run `publish_and_die.py`; give a function that publishes there and returns its status."""
    command = [sys.executable, DIE, world.folder, world.keys.folder, world.keep]
    process = subprocess.Popen(
        [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def publish(version, *, step=0, seconds=0.0):
        process.stdin.write(f"{version} {step} {seconds}\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    with process:
        yield publish
        process.stdin.close()
        assert process.wait() == 0


def whole(world, expected):
    """Check that a consumer verifies everything and finds the versions, all of them loadable."""
    consumer = world.consumer(cache="fresh")
    assert consumer.refresh().online
    assert set(consumer.versions("assistant", "route")) == set(expected)
    if expected:
        assert consumer.load("assistant", "route", candidates=True).reasons == ()


def bytes_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted((folder / "targets").rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_killed_at_every_step_publishing_again_gives_the_same_bytes(world, tmp_path):
    world.keep = 2  # so that archiving is among the steps
    undisturbed = World(tmp_path / "undisturbed", keep=2)
    published, statuses = [], []
    with killable(world) as publish:
        for step in range(1, 28):
            version = f"0.1.{step}"
            statuses.append(publish(version, step=step))
            listed = world.consumer(cache=f"{step}").versions("assistant", "route")
            # All or nothing: what is listed can be loaded, whoever was killed.
            if version in listed:
                assert world.consumer(cache=f"{step}").load("assistant", "route", version).state
            assert publish(version) == 0
            undisturbed.publish(version)
            published.append(version)
            whole(world, published[-2:])
            assert bytes_of(world.folder) == bytes_of(undisturbed.folder)
    assert set(statuses) == {0, -signal.SIGKILL}
    assert statuses.count(-signal.SIGKILL) > 20


@pytest.mark.slow
def test_killed_at_any_moment_the_next_publication_completes(world):
    rng = random.Random(5)
    statuses, tried = [], []
    with killable(world) as publish:
        for number in range(1, 13):
            tried.append(f"0.1.{number}")
            statuses.append(publish(tried[-1], seconds=0.06 * rng.random()))
            assert publish(tried[-1]) == 0
            whole(world, tried[-10:])
    assert set(statuses) <= {0, -signal.SIGALRM}
    assert statuses.count(-signal.SIGALRM) > 1


def publish_all(folder, keys, numbers):
    publisher = Publisher(DirectoryPlace(folder), Keys(keys), clock=Clock(), keep=100)
    for number in numbers:
        publisher.publish(*snapshot_of(f"0.1.{number}"))


@pytest.mark.slow
def test_of_publishers_in_several_processes_none_is_lost(world):
    world.keep = 100
    context = get_context("spawn")
    processes = [
        context.Process(
            target=publish_all, args=(world.folder, world.keys.folder, range(first, 15, 3))
        )
        for first in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    whole(world, [f"0.1.{number}" for number in range(15)])


def test_two_that_publish_the_same_version_agree(world):
    publishers = [world.publisher() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda it: it.publish(*snapshot_of("0.1.0")), publishers))
    assert len({description.sha256 for description in found}) == 1
    whole(world, ["0.1.0"])


@pytest.mark.slow
def test_publishers_of_a_bucket_swap_its_timestamp(endpoint, tmp_path, world):  # noqa: F811
    """Both read the same timestamp, both write; the one that swaps later reads again."""
    url, options = f"s3://snapshots/{tmp_path.name}", bucket_options(endpoint)
    keys = Keys(tmp_path / "bucket-keys")
    root = Publisher(open_place(url, **options), keys, clock=world.clock).create("acme", PASSPHRASE)
    publishers = [Publisher(open_place(url, **options), keys, clock=world.clock) for _ in range(3)]

    def publish(number):
        publishers[number].publish(*snapshot_of(f"0.1.{number}"))
        publishers[number].publish(*snapshot_of(f"0.2.{number}"))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(publish, range(3)))
    place = open_place(url, **options)
    for path in place.list(""):  # a mirror: what a bucket would serve
        (tmp_path / "mirror" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mirror" / path).write_bytes(place.read(path).data)
    consumer = world.consumer(tmp_path / "mirror", root=root)
    expected = {f"0.{minor}.{number}" for minor in (1, 2) for number in range(3)}
    assert set(consumer.versions("assistant", "route")) == expected
    newest = consumer.load("assistant", "route", candidates=True)
    assert newest.description.version == "0.2.2"
    described = consumer.describe("assistant", "route", "0.2.2")
    assert described.etag.strip('"') != described.sha256


class Full(DirectoryPlace):
    """A disk that is full at one of the writes."""

    def __init__(self, root, step):
        super().__init__(root)
        self.left = step

    def write_new(self, path, data):
        self._step(path)
        return super().write_new(path, data)

    def replace(self, path, data, *, expected_tag):
        self._step(path)
        return super().replace(path, data, expected_tag=expected_tag)

    def _step(self, path):
        self.left -= 1
        if self.left == 0:
            raise RegistryError(f"{path} cannot be written: No space left on device")


def test_a_write_that_fails_publishes_nothing_and_is_repeated(world):
    world.publish("0.1.0")
    for step in range(1, 6):
        with pytest.raises(RegistryError, match="No space left"):
            world.publisher(Full(world.folder, step)).publish(*snapshot_of(f"0.2.{step}"))
        whole(world, ["0.1.0", *(f"0.2.{done}" for done in range(1, step))])
        world.publish(f"0.2.{step}")


def fill(path):
    """Write a file until the disk is full."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(512))


def test_a_full_disk_publishes_nothing_and_goes_on_with_room_again(tmp_path):
    home = tmp_path / "small"
    with small_disk(home, 2):
        world = World(home)
        world.publish("0.1.0")
        filler = home / "filler"
        fill(filler)
        with pytest.raises(RegistryError, match="No space left on device; fix this, then retry"):
            world.publish("0.1.1")
        assert [path.name for path in (world.folder / ".writing").iterdir()] == ["lock"]
        consumer = world.consumer(cache="../outside")
        assert consumer.load("assistant", "route").description.version == "0.1.0"
        filler.unlink()
        world.publish("0.1.1")
        whole(world, ["0.1.0", "0.1.1"])


def test_drafts_of_killed_writers_are_removed_after_a_while(world):
    drafts = world.folder / ".writing"
    for name, age_s in (("old", 7200), ("new", 60)):
        (drafts / name).write_bytes(b"half")
        os.utime(drafts / name, (time.time() - age_s,) * 2)
    world.publish("0.1.0")
    assert {path.name for path in drafts.iterdir()} == {"lock", "new"}


def test_a_consumer_with_a_full_disk_still_serves_what_verifies(world, tmp_path):
    world.publish("0.1.0")
    with small_disk(tmp_path / "small", 1):
        consumer = world.consumer(cache="small/cache")
        assert consumer.load("assistant", "route").description.version == "0.1.0"
        filler = tmp_path / "small" / "filler"
        fill(filler)
        world.publish("0.1.1")
        refreshed = consumer.refresh()
        assert not refreshed.online
        assert "No space left" in refreshed.reasons[0]
        assert consumer.load("assistant", "route").description.version == "0.1.0"
        filler.unlink()
        assert consumer.refresh().online
        assert consumer.load("assistant", "route").description.version == "0.1.1"
