"""A publisher signs nothing on top of a registry that is older than what it has seen."""

from __future__ import annotations

import shutil

import pytest

from steersman.errors import SigningError
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.registry.rollback_guard import Memory, SeenVersions
from tests.registry.conftest import DAY, PASSPHRASE, snapshot_of
from tests.registry.test_attacks import newest, sign

AUDIT = (500, b"h" * 32)


@pytest.fixture
def went_back(world):
    """A registry without 0.2.0, which was retracted; then somebody puts the old state back."""
    world.publish("0.1.0", "0.2.0")
    world.copy("old")
    world.publisher().retract("assistant", "route", "0.2.0", reason="harmful")
    world.publisher().anchor(*AUDIT)
    world.copy("new")
    world.bring_back("old")
    return world


ACTS = {
    "publish": lambda it: it.publish(*snapshot_of("0.1.1")),
    "refresh": lambda it: it.refresh_timestamp(),
    "retract": lambda it: it.retract("assistant", "route", "0.1.0"),
    "mark": lambda it: it.mark("assistant", "route", {"0.1.0": "rolled_back"}),
    "anchor": lambda it: it.anchor(501, b"i" * 32),
    "rotate": lambda it: it.rotate("timestamp", PASSPHRASE),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_nothing_is_signed_on_top_of_an_older_registry(went_back, act):
    before = (went_back.metadata / "timestamp.json").read_bytes()
    with pytest.raises(SigningError, match=r"registry rollback detected.*--accept-older REASON"):
        act(went_back.publisher())
    assert (went_back.metadata / "timestamp.json").read_bytes() == before
    went_back.bring_back("new")
    act(went_back.publisher())


def test_an_old_timestamp_that_has_expired_is_not_refreshed(went_back):
    went_back.clock.now += 10 * DAY
    with pytest.raises(SigningError, match="timestamp has version 3, but version 5 was seen"):
        went_back.publisher().refresh_timestamp()


def test_who_restored_a_backup_goes_on_and_so_do_consumers(went_back):
    went_back.bring_back("new")
    consumer = went_back.consumer()
    assert consumer.versions("assistant", "route") == ["0.1.0"]
    went_back.bring_back("old")
    assert not consumer.refresh().online
    went_back.publisher().accept_older()
    assert consumer.refresh().online  # the numbers are above all that it has seen
    assert consumer.versions("assistant", "route") == ["0.2.0", "0.1.0"]
    went_back.publish("0.2.1")
    assert consumer.refresh().online


def test_a_registry_that_was_emptied_is_not_begun_anew_unasked(went_back):
    shutil.rmtree(went_back.folder)
    with pytest.raises(SigningError, match="timestamp not found, but version 5 was seen"):
        went_back.publisher().create("acme", PASSPHRASE)
    went_back.publisher().accept_older()
    went_back.publish("0.3.0")
    assert went_back.publisher().listed() == {("assistant", "route", "0.3.0")}


def test_a_key_folder_of_an_earlier_release_begins_its_memory(went_back):
    (went_back.keys.folder / "seen.json").unlink()
    went_back.publish("0.1.1")
    went_back.bring_back("old")
    with pytest.raises(SigningError, match="registry rollback detected"):
        went_back.publish("0.1.2")


def test_every_publisher_has_a_memory_of_its_own(world):
    shutil.copytree(world.keys.folder, world.home / "elsewhere")
    other = Publisher(world.place, Keys(world.home / "elsewhere"), clock=world.clock)
    world.publish("0.1.0")
    world.copy("old")
    other.publish(*snapshot_of("0.1.1"))
    world.bring_back("old")
    with pytest.raises(SigningError, match="timestamp has version 2, but version 3 was seen"):
        other.refresh_timestamp()
    world.publish("0.1.2")  # it has seen no more than this
    with pytest.raises(SigningError, match="targets version 3 differs from the one seen before"):
        other.publish(*snapshot_of("0.1.3"))
    other.accept_older()
    world.publish("0.1.3")


def test_a_thief_of_the_timestamps_key_brings_no_older_snapshot_back(world):
    world.publish("0.1.0")
    old, _ = newest(world, "timestamp")
    world.publish("0.1.1")
    stamp, path = newest(world, "timestamp")
    stamp.signed.version += 5
    stamp.signed.snapshot_meta = old.signed.snapshot_meta
    sign(world, stamp, "timestamp")
    path.write_bytes(stamp.to_bytes())
    with pytest.raises(SigningError, match="snapshot has version 2, but version 3 was seen"):
        world.publisher().refresh_timestamp()


def test_a_memory_moves_up_only(tmp_path):
    memory = Memory(tmp_path)
    memory.note(SeenVersions(7, 5, 4, "ab"))
    memory.note(SeenVersions(9, 3, 2, "cd"))
    assert memory.read() == SeenVersions(9, 5, 4, "ab")
    memory.note(SeenVersions(8, 8, 8, "ef"))
    assert memory.read() == SeenVersions(9, 8, 8, "ef")


def test_a_damaged_memory_is_told(world):
    (world.keys.folder / "seen.json").write_bytes(b"{")
    with pytest.raises(SigningError, match=r"seen\.json.*cannot be read"):
        world.publish("0.1.0")


def test_a_key_folder_that_cannot_be_written_signs_and_says_so(world, caplog):
    lock = world.keys.folder / "seen.lock"
    lock.unlink()
    lock.mkdir()
    world.publish("0.1.0")
    assert "a rollback of the registry cannot be detected here" in caplog.text
