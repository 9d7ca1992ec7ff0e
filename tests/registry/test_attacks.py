"""What TUF is for: old, mixed, frozen and forged metadata is refused, and the last good served."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp

from steersman.errors import MissingSnapshotError, SigningError, StaleError, VerificationError
from steersman.registry.keys import Keys
from steersman.registry.metadata_signer import at
from tests.registry.conftest import DAY, NOW, PASSPHRASE, World, snapshot_of


def newest(world, role):
    """Return the metadata of a role as it stands there, and its file."""
    if role == "timestamp":
        path = world.metadata / "timestamp.json"
    else:
        path = max(world.metadata.glob(f"*.{role}.json"), key=lambda it: int(it.name.split(".")[0]))
    return Metadata.from_file(str(path)), path


def sign(world, metadata, role):
    metadata.signatures.clear()
    metadata.sign(world.keys.signer(role))


def stand(world, targets):
    """Publish targets with the tenant's own keys: what whoever stole them would do."""
    metadata, path = newest(world, "targets")
    metadata.signed.targets = targets
    metadata.signed.version += 1
    sign(world, metadata, "targets")
    text = metadata.to_bytes()
    (path.parent / f"{metadata.signed.version}.targets.json").write_bytes(text)
    name(world, metadata.signed.version, text)


def name(world, version, text, *, hashes=("sha256",)):
    """Have snapshot and timestamp name a targets metadata."""
    metadata, path = newest(world, "snapshot")
    metadata.signed.version += 1
    metadata.signed.meta["targets.json"] = MetaFile.from_data(version, text, list(hashes))
    sign(world, metadata, "snapshot")
    text = metadata.to_bytes()
    (path.parent / f"{metadata.signed.version}.snapshot.json").write_bytes(text)
    stamp, path = newest(world, "timestamp")
    stamp.signed.version += 1
    stamp.signed.snapshot_meta = MetaFile.from_data(metadata.signed.version, text, list(hashes))
    sign(world, stamp, "timestamp")
    path.write_bytes(stamp.to_bytes())


def refused(world, consumer, why, *, serves="0.1.1"):
    """Check that metadata is refused, and that what verified before is served."""
    refreshed = consumer.refresh()
    assert not refreshed.online
    assert why in refreshed.reasons[0]
    loaded = consumer.load("assistant", "route")
    assert (loaded.description.version, loaded.source) == (serves, "cache")
    assert why in loaded.reasons[0]


@pytest.fixture
def knowing(world):
    """Return a consumer that has 0.1.0 and 0.1.1; ``old`` is from before the latter."""
    world.publish("0.1.0")
    consumer = world.consumer()
    consumer.load("assistant", "route")
    world.clock.now += 3600
    world.copy("old")
    world.publish("0.1.1")
    consumer.refresh()
    consumer.load("assistant", "route")
    return consumer


def test_a_rollback_of_everything_is_refused(world, knowing):
    world.bring_back("old")
    refused(world, knowing, "New timestamp version 2 must be >= 3")
    refused(world, world.consumer(), "New timestamp version 2 must be >= 3")  # and after a restart


def test_a_rollback_of_the_snapshot_under_a_new_timestamp_is_refused(world, knowing):
    """By a thief of the timestamp's key."""
    metadata, path = newest(world, "timestamp")
    old = Metadata.from_file(str(world.home / "old/metadata/timestamp.json"))
    metadata.signed.version += 1
    metadata.signed.snapshot_meta = old.signed.snapshot_meta
    sign(world, metadata, "timestamp")
    path.write_bytes(metadata.to_bytes())
    refused(world, knowing, "New snapshot version must be >= 3")


def test_a_rollback_of_targets_under_a_new_snapshot_is_refused(world, knowing):
    """By a thief of the snapshot's and the timestamp's keys."""
    name(world, 2, (world.metadata / "2.targets.json").read_bytes())
    refused(world, knowing, "Expected targets.json version")


def test_a_freeze_ends_when_the_timestamp_expires(world, knowing):
    world.copy("frozen")
    world.clock.now += DAY / 2
    world.publish("0.2.0")
    world.bring_back("frozen")
    assert knowing.refresh().online  # nobody can know yet
    world.clock.now += DAY / 2 + 1
    refused(world, knowing, "timestamp.json is expired")
    with pytest.raises(MissingSnapshotError):
        knowing.load("assistant", "route", "0.2.0")
    world.clock.now += 8 * DAY
    knowing.refresh()
    with pytest.raises(StaleError, match=r"timestamp\.json is expired"):
        knowing.load("assistant", "route")


@pytest.mark.parametrize("role", ["snapshot", "targets"])
def test_old_parts_mixed_with_new_ones_are_refused(world, knowing, role):
    world.publish("0.2.0")
    _, path = newest(world, role)
    path.write_bytes((world.home / f"old/metadata/2.{role}.json").read_bytes())
    refused(world, knowing, "does not match expected")


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
def test_changed_metadata_is_refused(world, knowing, role):
    world.publish("0.2.0")
    _, path = newest(world, role)
    text = path.read_bytes()
    if role == "timestamp":
        path.write_bytes(text.replace(b'"version":4', b'"version":9'))
        refused(world, knowing, "timestamp was signed by 0/1 keys")
    else:
        path.write_bytes(text.replace(b'"version"', b'"vErsion"'))
        refused(world, knowing, "does not match expected")


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
def test_metadata_by_another_key_is_refused(world, knowing, role):
    world.publish("0.2.0")
    other = Keys(world.home / "other")
    other.create(PASSPHRASE)
    metadata, path = newest(world, role)
    metadata.signed.version += 1
    metadata.signatures.clear()
    metadata.sign(other.signer(role))
    text = metadata.to_bytes()
    path.write_bytes(text)
    if role == "snapshot":
        (world.metadata / f"{metadata.signed.version}.snapshot.json").write_bytes(text)
        stamp, path = newest(world, "timestamp")
        stamp.signed.version += 1
        stamp.signed.snapshot_meta = MetaFile.from_data(metadata.signed.version, text, ["sha256"])
        sign(world, stamp, "timestamp")
        path.write_bytes(stamp.to_bytes())
    if role == "targets":
        (world.metadata / f"{metadata.signed.version}.targets.json").write_bytes(text)
        name(world, metadata.signed.version, text)
    refused(world, knowing, f"{role} was signed by 0/1 keys")


@pytest.mark.parametrize(
    "junk", [b"", b"{}", b"[" * 200_000, b"\xff\xfe", b'{"signed": 1}', b"nul"]
)
@pytest.mark.parametrize("name", ["timestamp.json", "2.root.json"])
def test_junk_for_metadata_is_refused(world, knowing, name, junk):
    (world.metadata / name).write_bytes(junk)
    refreshed = knowing.refresh()
    assert not refreshed.online
    assert knowing.load("assistant", "route").description.version == "0.1.1"
    with pytest.raises(VerificationError, match="no registry metadata has verified yet"):
        world.consumer(cache="fresh").load("assistant", "route")


def test_a_revoked_key_signs_nothing_that_is_believed(world, knowing):
    stolen = world.home / "stolen"
    stolen.mkdir()
    for role in ("targets", "snapshot", "timestamp"):
        (stolen / f"{role}.pem").write_bytes(world.keys.path_of(role).read_bytes())
        (stolen / f"{role}.pem").chmod(0o600)
        world.publisher().rotate(role, PASSPHRASE)
    assert knowing.refresh().online
    ours, world.keys = world.keys, Keys(stolen)
    metadata, path = newest(world, "timestamp")
    metadata.signed.version += 1
    sign(world, metadata, "timestamp")
    path.write_bytes(metadata.to_bytes())
    refused(world, knowing, "timestamp was signed by 0/1 keys")
    world.keys = ours
    with pytest.raises(VerificationError, match="registry metadata refused"):
        world.publish("0.2.0")


def test_a_thief_who_counted_ahead_is_outlived_by_changing_the_key(world, knowing):
    """Fast-forward: the highest number there is, so that nothing later would be believed."""
    metadata, path = newest(world, "timestamp")
    metadata.signed.version = 10**30
    sign(world, metadata, "timestamp")
    path.write_bytes(metadata.to_bytes())
    assert knowing.refresh().online
    ours = world.copy("ahead") / "metadata/timestamp.json"
    world.publisher().rotate("timestamp", PASSPHRASE)
    world.publish("0.2.0")
    assert knowing.refresh().online
    assert knowing.load("assistant", "route").description.version == "0.2.0"
    path.write_bytes(ours.read_bytes())
    refused(world, knowing, "timestamp was signed by 0/1 keys", serves="0.2.0")


def test_the_revoked_key_of_a_tampered_registry_is_not_believed_after_a_sleep(world, knowing):
    """The consumer slept through the rotation, and the thief serves what was before it."""
    world.publisher().rotate("timestamp", PASSPHRASE)
    assert knowing.refresh().online
    for part in ("timestamp.json", "3.snapshot.json", "3.targets.json"):
        if (world.home / "old/metadata" / part).exists():
            world.bring_back("old", f"metadata/{part}")
    refused(world, knowing, "timestamp was signed by 0/1 keys")


@pytest.mark.slow
def test_a_root_with_too_few_signatures_is_refused(tmp_path):
    world = World(tmp_path / "strict", roots=3, threshold=2)
    world.publish("0.1.1")
    consumer = world.consumer()
    consumer.load("assistant", "route")
    metadata, path = newest(world, "root")
    metadata.signed.version += 1
    metadata.signatures.clear()
    metadata.sign(world.keys.root_signers(PASSPHRASE)[0])
    (path.parent / "2.root.json").write_bytes(metadata.to_bytes())
    refused(world, consumer, "root was signed by 1/2 keys")


def test_a_root_that_lowers_its_own_threshold_needs_that_of_before(tmp_path):
    world = World(tmp_path / "strict", roots=2, threshold=2)
    world.publish("0.1.1")
    consumer = world.consumer()
    consumer.load("assistant", "route")
    metadata, path = newest(world, "root")
    metadata.signed.version += 1
    metadata.signed.roles["root"].threshold = 1
    metadata.signatures.clear()
    metadata.sign(world.keys.root_signers(PASSPHRASE)[0])
    (path.parent / "2.root.json").write_bytes(metadata.to_bytes())
    refused(world, consumer, "root was signed by 1/2 keys")


def test_a_root_of_others_is_refused(world, knowing):
    signer = CryptoSigner(Ed25519PrivateKey.generate())
    root = Root(version=2, expires=at(NOW) + timedelta(days=9), consistent_snapshot=True)
    for role in ("root", "targets", "snapshot", "timestamp"):
        root.add_key(signer.public_key, role)
    metadata = Metadata(root)
    metadata.sign(signer)
    metadata.to_file(str(world.metadata / "2.root.json"))
    refused(world, knowing, "root was signed by 0/1 keys")


def test_a_root_out_of_its_order_is_refused(world, knowing):
    metadata, _ = newest(world, "root")
    metadata.signed.version = 7
    metadata.signatures.clear()
    metadata.sign(world.keys.root_signers(PASSPHRASE)[0])
    metadata.to_file(str(world.metadata / "2.root.json"))
    refused(world, knowing, "Expected root version 2")


def test_an_expired_root_is_refused_until_it_is_renewed(world, knowing):
    world.clock.now = NOW + 364 * DAY
    world.publisher().refresh_timestamp()
    assert knowing.refresh().online
    world.clock.now = NOW + 365 * DAY + 3601
    world.publisher().refresh_timestamp()
    refused(world, knowing, "Final root.json is expired")
    world.publisher().renew_root(PASSPHRASE)
    assert knowing.refresh().online


@pytest.mark.parametrize("role", ["snapshot", "targets"])
def test_other_expired_metadata_is_refused(world, knowing, role):
    metadata, path = newest(world, role)
    metadata.signed.version += 1
    metadata.signed.expires = at(world.clock.now - 1)
    sign(world, metadata, role)
    text = metadata.to_bytes()
    (path.parent / f"{metadata.signed.version}.{role}.json").write_bytes(text)
    if role == "targets":
        name(world, metadata.signed.version, text)
    else:
        stamp, path = newest(world, "timestamp")
        stamp.signed.version += 1
        stamp.signed.snapshot_meta = MetaFile.from_data(metadata.signed.version, text, ["sha256"])
        sign(world, stamp, "timestamp")
        path.write_bytes(stamp.to_bytes())
    refused(world, knowing, "is expired")


@pytest.mark.parametrize(
    "path",
    [
        "../../../etc/0.1.9/state.zst",
        "assistant/../route/0.1.9/state.zst",
        "/assistant/route/0.1.9/state.zst",
        "assistant/route/0.1.9/../state.zst",
        "assistant/route/..%2f0.1.9/state.zst",
        "assistant/route/0.1.9\n/state.zst",
        "assistant/route\\..\\x/0.1.9/state.zst",
        "ässistant/route/0.1.9/state.zst",
        "assistant/route/٠.١.٩/state.zst",
        "assistant/route/0.1.9/state.zst/",
    ],
)
def test_names_that_lead_out_of_a_folder_are_no_versions(world, path):
    """Signed, by a thief of all online keys."""
    world.publish("0.1.1")
    metadata, _ = newest(world, "targets")
    targets = dict(metadata.signed.targets)
    described = path.replace("state.zst", "description.json")
    targets[path] = TargetFile.from_data(path, b"evil", ["sha256"])
    targets[described] = TargetFile.from_data(described, b"evil", ["sha256"])
    stand(world, targets)
    consumer = world.consumer()
    assert consumer.points() == [("assistant", "route")]
    assert consumer.versions("assistant", "route") == ["0.1.1"]
    assert consumer.load("assistant", "route").description.version == "0.1.1"
    for skill, point, version in (
        ("..", "..", "0.1.9"),
        ("assistant", "../route", "0.1.1"),
        ("assistant", "route", "0.1.1/.."),
    ):
        with pytest.raises(MissingSnapshotError):
            consumer.load(skill, point, version)


@pytest.mark.parametrize(
    "hashes",
    [{"sha256": "../../../../tmp/x"}, {"sha256": "A" * 64}, {"md5": "a" * 32}, {"sha512": "0"}],
)
def test_hashes_that_are_none_are_no_versions(world, hashes):
    world.publish("0.1.1")
    metadata, _ = newest(world, "targets")
    targets = dict(metadata.signed.targets)
    for kind in ("state.zst", "description.json"):
        path = f"assistant/route/0.1.9/{kind}"
        targets[path] = TargetFile(4, hashes, path)
    stand(world, targets)
    assert world.consumer().versions("assistant", "route") == ["0.1.1"]


def test_a_version_of_another_name_is_refused(world):
    """Right bytes, right signatures, under a name that they were not described by."""
    world.publish("0.1.1")
    metadata, _ = newest(world, "targets")
    targets = dict(metadata.signed.targets)
    for kind in ("state.zst", "description.json"):
        old = targets[f"assistant/route/0.1.1/{kind}"]
        path = f"assistant/tool/0.1.1/{kind}"
        targets[path] = TargetFile(old.length, old.hashes, path)
        folder = world.folder / "targets/assistant/tool/0.1.1"
        folder.mkdir(parents=True, exist_ok=True)
        there = world.file("0.1.1", kind)
        (folder / there.name).write_bytes(there.read_bytes())
    stand(world, targets)
    with pytest.raises(VerificationError, match="but it is signed as"):
        world.consumer().load("assistant", "tool", "0.1.1")


def test_a_signed_state_that_is_none_is_refused(world):
    """A thief of all online keys can sign anything; what is no state is still not loaded."""
    world.publish("0.1.0", "0.1.1")
    _, description = snapshot_of("0.1.9")
    bad = b"\x28\xb5\x2f\xfd not a frame"
    world.publisher().publish(bad, description, standing="released")
    consumer = world.consumer()
    with pytest.raises(VerificationError, match="the snapshot"):
        consumer.load("assistant", "route", "0.1.9")
    assert consumer.load("assistant", "route").description.version == "0.1.1"


def test_a_target_that_claims_to_be_huge_is_not_fetched(world):
    world.publish("0.1.1")
    metadata, _ = newest(world, "targets")
    targets = dict(metadata.signed.targets)
    for kind in ("state.zst", "description.json"):
        path = f"assistant/route/0.1.9/{kind}"
        targets[path] = TargetFile(1 << 40, {"sha256": "0" * 64}, path)
    stand(world, targets)
    with pytest.raises(VerificationError, match="1,099,511,627,776 bytes; the maximum is"):
        world.consumer().load("assistant", "route", "0.1.9")
    assert world.consumer().load("assistant", "route").description.version == "0.1.1"


def test_another_tenants_metadata_is_refused(world, tmp_path):
    other = World(tmp_path / "other")
    other.publish("0.1.0")
    consumer = world.consumer(other.folder)
    refreshed = consumer.refresh()
    assert not refreshed.online
    with pytest.raises(VerificationError):
        consumer.load("assistant", "route")


def test_kinds_of_metadata_are_not_confused(world, knowing):
    """A snapshot is no timestamp, even if one key signed both."""
    for kind, role in ((Snapshot, "snapshot"), (Targets, "targets")):
        metadata = Metadata(kind(version=99, expires=at(NOW) + timedelta(days=9)))
        metadata.sign(world.keys.signer("timestamp"))
        metadata.to_file(str(world.metadata / "timestamp.json"))
        refused(world, knowing, f"Expected 'timestamp', got '{role}'")
    assert Timestamp.type == "timestamp"


def test_an_audit_head_that_is_none_is_refused(world):
    metadata, path = newest(world, "targets")
    metadata.signed.unrecognized_fields["audit"] = {"seq": "many"}
    metadata.signed.version += 1
    sign(world, metadata, "targets")
    text = metadata.to_bytes()
    (path.parent / f"{metadata.signed.version}.targets.json").write_bytes(text)
    name(world, metadata.signed.version, text)
    consumer = world.consumer()
    with pytest.raises(VerificationError, match="invalid signed head of the audit log"):
        consumer.anchor()


def test_a_publisher_without_the_root_that_it_trusts_does_nothing(world):
    world.keys.trusted_root.unlink()
    with pytest.raises(SigningError, match="create the registry first"):
        world.publish("0.1.0")


def test_a_publisher_refuses_a_root_that_was_not_signed_by_the_one_before(world):
    metadata = json.loads((world.metadata / "1.root.json").read_bytes())
    metadata["signed"]["version"] = 2
    (world.metadata / "2.root.json").write_text(json.dumps(metadata))
    with pytest.raises(VerificationError, match="root was signed by 0/1 keys"):
        world.publish("0.1.0")
