"""The cache: what serves stays in it, what nobody serves goes, and nobody waits for a note."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading

import pytest

from steersman.registry.consumer import manifest
from tests.registry.conftest import DAY


def load(consumer, *versions):
    return [consumer.load("assistant", "route", it).description.version for it in versions]


def test_what_serves_is_not_pushed_out_by_what_was_asked_for_by_name(world):
    world.publish("0.1.0")
    consumer = world.consumer(keep=2)
    assert load(consumer, None) == ["0.1.0"]
    others = ("0.2.0", "0.3.0", "0.4.0")
    world.publish(*others, standing="candidate")
    consumer.refresh()
    load(consumer, *others)
    shutil.rmtree(world.folder)
    assert not consumer.refresh().online
    assert load(consumer, None, "0.4.0") == ["0.1.0", "0.4.0"]


def test_the_major_that_was_begun_with_is_not_forgotten(world):
    world.publish("0.1.0")
    consumer = world.consumer(keep=1)
    load(consumer, None)
    world.publish("1.0.0", "1.1.0")
    consumer.refresh()
    assert load(consumer, "0.1.0", "1.0.0", "1.1.0", None) == ["0.1.0", "1.0.0", "1.1.0", "0.1.0"]


@pytest.mark.slow
def test_a_load_does_not_wait_for_who_holds_the_list(world):
    """A process that hangs, or was stopped, must not stop the others from serving."""
    world.publish("0.1.0")
    consumer = world.consumer()
    consumer.refresh()
    handle = os.open(world.home / "cache" / "files.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    found = []
    loading = threading.Thread(target=lambda: found.extend(load(consumer, None)), daemon=True)
    loading.start()
    loading.join(60)
    os.close(handle)
    assert found == ["0.1.0"]
    assert not (world.home / "cache" / "good.json").exists()
    assert load(consumer, None) == ["0.1.0"]
    assert (world.home / "cache" / "good.json").exists()


def test_files_that_were_only_looked_at_go_after_a_day(world):
    world.publish("0.1.0", "0.1.1", "0.1.2")
    consumer = world.consumer()
    manifest(consumer)
    files = world.home / "cache" / "files"
    assert len(list(files.iterdir())) == 3
    for path in files.iterdir():
        before = path.stat().st_mtime - 2 * DAY
        os.utime(path, (before, before))
    load(consumer, None)
    assert len(list(files.iterdir())) == 2  # state and description of what serves
