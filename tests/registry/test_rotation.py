"""Changing keys: consumers follow, also those that slept; old keys count no more."""

from __future__ import annotations

import shutil

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from steersman.errors import InputError, RaceError, SigningError, VerificationError
from steersman.registry.keys import Keys, save_key
from steersman.registry.repository import Publisher
from steersman.registry.rotation import Rotation
from steersman.registry.storage import DirectoryPlace
from steersman.registry.trusted_metadata import TrustedReader
from tests.registry.conftest import DAY, PASSPHRASE, World, snapshot_of

NEW = "another long passphrase"


@pytest.mark.parametrize("role", ["targets", "snapshot", "timestamp", "root"])
def test_consumers_follow_a_rotation(world, role):
    world.publish("0.1.0")
    consumer = world.consumer()
    assert consumer.refresh().online
    world.publisher().rotate(role, PASSPHRASE)
    assert consumer.refresh().online
    world.publish("0.1.1")
    assert consumer.refresh().online
    assert consumer.load("assistant", "route").description.version == "0.1.1"
    assert world.consumer(cache="fresh").refresh().online


@pytest.mark.slow
def test_consumers_follow_a_chain_of_rotations_that_they_slept_through(world):
    world.publish("0.1.0")
    consumer = world.consumer()
    assert consumer.refresh().online
    passphrase = PASSPHRASE
    for number in range(4):
        world.clock.now += 30 * DAY
        world.publisher().rotate("timestamp", passphrase)
        world.publisher().rotate("root", passphrase, new_passphrase=f"{NEW} {number}")
        passphrase = f"{NEW} {number}"
        world.publisher().rotate("targets", passphrase)
    world.publish("0.2.0")
    world.clock.now += 300  # the first root would expire long before the last
    assert consumer.refresh().online
    assert consumer.load("assistant", "route").description.version == "0.2.0"
    assert (world.metadata / "1.root.json").read_bytes() == world.root
    assert len(list(world.metadata.glob("*.root.json"))) == 13


@pytest.mark.parametrize("rotations", [0, 1])
def test_consumers_who_are_given_another_root_leave_the_old_registry(world, rotations):
    """As the runbook says where a root key was stolen or lost: their cache is not in the way."""
    world.publish("0.1.0")
    for _ in range(2):
        world.publisher().rotate("timestamp", PASSPHRASE)
    assert world.consumer().load("assistant", "route").source == "registry"
    new = World(world.home / "new", clock=world.clock)
    for _ in range(rotations):
        new.publisher().rotate("timestamp", PASSPHRASE)
    new.publish("0.2.0")
    moved = world.consumer(new.folder, root=new.root)
    assert moved.refresh().reasons == ()
    assert moved.load("assistant", "route").description.version == "0.2.0"
    again = world.consumer(new.folder, root=new.root)
    assert again.refresh().online
    assert (new.publisher().leads_from(new.root), new.publisher().leads_from(world.root)) == (
        True,
        False,
    )
    # What the old keys sign is nothing to them.
    assert not world.consumer(root=new.root).refresh().online


def test_a_new_passphrase_replaces_the_old_one(world):
    world.publisher().rotate("root", PASSPHRASE, new_passphrase=NEW)
    with pytest.raises(SigningError, match="its passphrase is wrong"):
        world.publisher().rotate("targets", PASSPHRASE)
    world.publisher().rotate("targets", NEW)


def test_a_wrong_passphrase_changes_nothing(world):
    before = sorted(world.keys.folder.iterdir()), sorted(world.metadata.iterdir())
    with pytest.raises(SigningError, match="its passphrase is wrong"):
        world.publisher().rotate("targets", "a wrong passphrase")
    assert before == (sorted(world.keys.folder.iterdir()), sorted(world.metadata.iterdir()))


def test_an_unknown_role_is_refused(world):
    with pytest.raises(InputError, match="unknown role 'admin'; allowed: root, targets"):
        world.publisher().rotate("admin", PASSPHRASE)


def test_the_old_key_signs_nothing_any_more(world):
    old = Keys(world.home / "stolen")
    shutil.copytree(world.keys.folder, old.folder)
    world.publisher().rotate("timestamp", PASSPHRASE)
    world.keys = old
    with pytest.raises(SigningError, match="is not the one that root 2 names for timestamp"):
        world.publisher().refresh_timestamp()


def test_the_root_is_renewed_before_it_expires(world):
    world.publish("0.1.0")
    world.clock.now += 300 * DAY
    world.publisher().renew_root(PASSPHRASE)
    world.publisher().refresh_timestamp()
    world.clock.now += 300 * DAY
    world.publisher().refresh_timestamp()
    assert world.consumer().refresh().online


@pytest.mark.slow
def test_several_root_keys_must_sign_together(tmp_path):
    strict = World(tmp_path / "strict", roots=3, threshold=2)
    strict.publish("0.1.0")
    consumer = strict.consumer()
    (strict.keys.folder / "root-2.pem").unlink()
    strict.publisher().rotate("snapshot", PASSPHRASE)
    assert consumer.refresh().online
    (strict.keys.folder / "root-3.pem").unlink()
    with pytest.raises(
        SigningError, match=r"1 distinct keys .* belong to root 2; 2 are needed; add the others"
    ):
        strict.publisher().rotate("snapshot", PASSPHRASE)


def test_a_threshold_above_the_number_of_keys_is_refused(tmp_path):
    publisher = Publisher(DirectoryPlace(tmp_path / "other"), Keys(tmp_path / "k"))
    with pytest.raises(InputError, match="threshold is 3; allowed: 1 to 2"):
        publisher.create("acme", PASSPHRASE, roots=2, threshold=3)


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


class Deadly:
    """A place whose user is killed before or after one of its writes."""

    def __init__(self, place, step):
        self.place = place
        self.left = step

    def __getattr__(self, name):
        method = getattr(self.place, name)
        if name not in ("write_new", "replace", "remove"):
            return method

        def dying(*given, **further):
            self._step()
            done = method(*given, **further)
            self._step()
            return done

        return dying

    def _step(self):
        self.left -= 1
        if self.left == 0:
            raise Killed


@pytest.mark.slow
@pytest.mark.parametrize("role", ["targets", "snapshot", "timestamp", "root"])
def test_a_rotation_that_was_killed_at_any_step_is_completed(world, role):
    world.publish("0.1.0")
    consumer = world.consumer()
    killed = 0
    for step in range(1, 12):
        try:
            world.publisher(Deadly(world.place, step)).rotate(role, PASSPHRASE)
        except Killed:
            killed += 1
        assert consumer.load("assistant", "route").state
        if step % 2:  # whoever comes next: a publisher, or the same rotation again
            world.publish(f"0.1.{step}")
        else:
            world.publisher().rotate(role, PASSPHRASE)
        assert consumer.refresh().online
    assert killed >= 2
    world.publisher().rotate(role, PASSPHRASE)
    left = {path.name for path in world.keys.folder.iterdir()} - {"seen.json", "seen.lock"}
    assert left == {"root.json", "root.pem", "targets.pem", "snapshot.pem", "timestamp.pem"}


@pytest.mark.slow
def test_a_rotation_of_root_that_was_killed_takes_either_passphrase(world):
    rotation = Rotation(TrustedReader(Deadly(world.place, 2), world.keys), world.clock)
    with pytest.raises(Killed):
        rotation.of_root(PASSPHRASE, NEW)
    with pytest.raises(SigningError, match="if that is refused, the new one"):
        world.publisher().rotate("targets", PASSPHRASE)
    world.publisher().rotate("targets", NEW)
    assert world.consumer().refresh().online


def test_a_rotation_of_root_that_was_killed_early_takes_the_passphrase_from_before(world):
    """What waits has the new one already, and was never named."""
    save_key(world.keys.root_folder / "root.next.pem", Ed25519PrivateKey.generate(), NEW)
    with pytest.raises(SigningError, match="use the passphrase from before"):
        world.publisher().rotate("targets", NEW)
    world.publisher().rotate("targets", PASSPHRASE)
    assert not (world.keys.root_folder / "root.next.pem").exists()
    assert world.consumer().refresh().online


@pytest.mark.slow
@pytest.mark.parametrize("world", [{"roots": 2, "threshold": 1}], indirect=True)
def test_a_root_key_that_was_not_yet_put_in_place_is_not_lost(world):
    """The first of two took its place, then the publisher was killed."""
    before = {path: path.read_bytes() for path in world.keys.root_folder.glob("root*.pem")}
    world.publisher().rotate("root", PASSPHRASE, new_passphrase=NEW)
    second = world.keys.root_folder / "root-2.pem"
    second.rename(second.with_name("root-2.next.pem"))
    second.write_bytes(before[second])
    with pytest.raises(SigningError, match="use the passphrase from before"):
        world.publisher().rotate("targets", PASSPHRASE)
    world.publisher().rotate("targets", NEW)
    assert len(world.keys.root_signers(NEW)) == 2


@pytest.mark.parametrize("world", [{"roots": 3, "threshold": 2}], indirect=True)
def test_copies_of_one_root_key_count_once(world):
    stick = world.home / "stick"
    stick.mkdir()
    for name in ("root.pem", "root-backup.pem"):
        shutil.copy(world.keys.folder / "root.pem", stick / name)
    keys = Keys(world.keys.folder, root_folder=stick)
    with pytest.raises(SigningError, match=r"1 distinct keys .* belong to root 1; 2 are needed"):
        Publisher(world.place, keys, clock=world.clock).rotate("timestamp", PASSPHRASE)
    twice = Keys(world.home / "others")
    twice.create(PASSPHRASE)
    shutil.copy(twice.folder / "root.pem", twice.folder / "root-2.pem")
    other = Publisher(DirectoryPlace(world.home / "other"), twice, clock=world.clock)
    with pytest.raises(InputError, match="allowed: 1 to 1"):
        other.create("acme", PASSPHRASE, roots=2, threshold=2)


def test_of_two_rotations_at_once_one_is_told_to_repeat(world):
    class Late(Deadly):
        def __getattr__(self, name):
            if name == "write_new" and self.left:
                self.left = 0
                world.publisher().renew_root(PASSPHRASE)
            return getattr(self.place, name)

    with pytest.raises(RaceError, match="another rotation was faster; retry"):
        world.publisher(Late(world.place, 1)).renew_root(PASSPHRASE)


def test_what_a_revoked_key_signed_later_is_not_signed_anew(world):
    """An interrupted rotation believes the old keys once, and only until it is completed."""
    world.publish("0.1.0")
    stolen = world.home / "stolen"
    shutil.copytree(world.keys.folder, stolen)
    world.copy("before")
    world.publisher().rotate("targets", PASSPHRASE)
    after = world.copy("after")
    # The thief publishes as if nothing had happened, on top of what was there before.
    world.bring_back("before")
    thief = Publisher(world.place, Keys(stolen), clock=world.clock)
    thief.publish(*snapshot_of("6.6.6"))
    shutil.copy(after / "metadata/2.root.json", world.metadata / "2.root.json")
    with pytest.raises(VerificationError, match="registry metadata refused"):
        world.publish("0.1.1")
