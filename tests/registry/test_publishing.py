"""Publishing: the same bytes for the same version, the last ones for consumers, never a mix-up."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from tuf.api.metadata import Metadata

from steersman.errors import (
    InputError,
    MissingSnapshotError,
    RegistryError,
    SigningError,
    VerificationError,
)
from steersman.registry.keys import Keys
from steersman.registry.metadata_signer import at
from steersman.registry.repository import Publisher
from steersman.registry.versions import Version
from tests.registry.conftest import DAY, NOW, PASSPHRASE, snapshot_of


def files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_description_gets_what_only_the_place_knows(world):
    data, description = snapshot_of("0.1.0", samples=7, evidence={"value": 0.5})
    published = world.publisher().publish(data, description)
    assert published.size == len(data)
    assert published.url == f"targets/assistant/route/0.1.0/{published.sha256}.state.zst"
    assert (world.folder / published.url).read_bytes() == data
    assert published.etag == published.sha256
    assert (published.samples, published.evidence) == (7, {"value": 0.5})
    assert world.consumer().describe("assistant", "route", "0.1.0") == published


def test_publishing_again_changes_nothing(world):
    first = world.publisher().publish(*snapshot_of("0.1.0"))
    before = files(world.folder)
    data, later = snapshot_of("0.1.0", git_commit="another")
    assert world.publisher().publish(data, later) == first
    assert files(world.folder) == before


def test_a_version_never_changes(world):
    world.publish("0.1.0")
    before = files(world.folder)
    data, _ = snapshot_of("0.1.1")
    _, description = snapshot_of("0.1.0")
    with pytest.raises(VerificationError, match="published with other bytes; versions never"):
        world.publisher().publish(data, description)
    assert files(world.folder) == before


def test_lost_and_damaged_files_are_put_back_by_publishing_again(world):
    world.publish("0.1.0")
    before = files(world.folder)
    world.file("0.1.0").write_bytes(b"cut")
    world.file("0.1.0", "description.json").unlink()
    world.publish("0.1.0")
    assert files(world.folder) == before


def test_another_tenants_snapshot_is_refused(world):
    with pytest.raises(VerificationError, match="belongs to tenant 'acme', not 'other'"):
        world.publisher().publish(*snapshot_of("0.1.0", tenant="other"))
    with pytest.raises(VerificationError, match="not 'other'"):
        world.publisher().create("other", PASSPHRASE)


def test_a_description_of_other_bytes_is_refused(world):
    data, description = snapshot_of("0.1.0", sha256="0" * 64)
    with pytest.raises(VerificationError, match="other bytes"):
        world.publisher().publish(data, description)
    with pytest.raises(VerificationError, match="0 bytes; allowed"):
        world.publisher().publish(b"", description)


def test_creating_again_changes_nothing(world):
    world.publish("0.1.0")
    before = files(world.home)
    assert world.publisher().create("acme", PASSPHRASE) == world.root
    assert files(world.home) == before
    (world.keys.folder / "root.pem").unlink()  # moved offline
    assert world.publisher().create("acme", PASSPHRASE) == world.root
    assert not (world.keys.folder / "root.pem").exists()


def test_a_place_with_other_keys_is_refused(world, tmp_path):
    other = Publisher(world.place, Keys(tmp_path / "others"), clock=world.clock)
    with pytest.raises(SigningError, match="a registry with other keys"):
        other.create("acme", PASSPHRASE)
    with pytest.raises(SigningError, match="create the registry first"):
        other.publish(*snapshot_of("0.1.0"))


def test_consumers_find_the_last_ones_and_the_archive_has_the_others(world):
    world.keep = 3
    world.publish(*(f"0.1.{number}" for number in range(5)))
    world.publish("0.1.0", point="tool")
    assert world.consumer().versions("assistant", "route") == ["0.1.4", "0.1.3", "0.1.2"]
    assert world.consumer().versions("assistant", "tool") == ["0.1.0"]
    kept = {Path(path).parts[3] for path in files(world.folder) if path.startswith("targets/")}
    assert kept == {"0.1.0", "0.1.2", "0.1.3", "0.1.4"}
    archived = [path for path in files(world.folder) if path.startswith("archive/")]
    assert {Path(path).parts[3] for path in archived} == {"0.1.0", "0.1.1"}
    assert len(archived) == 4


def test_an_archived_version_is_published_already(world):
    world.keep = 1
    data, description = snapshot_of("0.1.0")
    first = world.publisher().publish(data, description)
    world.publish("0.1.1")
    assert world.publisher().publish(data, description) == first
    assert world.consumer().versions("assistant", "route") == ["0.1.1"]
    with pytest.raises(VerificationError, match="other bytes"):
        world.publisher().publish(snapshot_of("0.1.5")[0], description)


def test_the_newest_published_stays_though_its_number_is_lower(world):
    world.keep = 2
    world.publish("1.0.0", "1.0.1", "0.9.0")
    assert world.consumer().versions("assistant", "route") == ["1.0.1", "0.9.0"]


def test_a_retracted_version_is_gone_for_good(world):
    world.publish("0.1.0", "0.1.1")
    world.publisher().retract("assistant", "route", "0.1.1", reason="it was wrong")
    assert world.consumer().versions("assistant", "route") == ["0.1.0"]
    note = json.loads((world.folder / "archive/assistant/route/0.1.1/retracted.json").read_bytes())
    assert note == {"at": at(NOW).isoformat(), "reason": "it was wrong"}
    assert not (world.folder / "targets/assistant/route/0.1.1").exists()
    with pytest.raises(MissingSnapshotError, match="was retracted and cannot be published again"):
        world.publish("0.1.1")
    with pytest.raises(MissingSnapshotError, match=r"0\.1\.1 is not published"):
        world.publisher().retract("assistant", "route", "0.1.1")


def test_a_timestamp_is_refreshed_without_touching_anything_else(world):
    world.publish("0.1.0")
    before = files(world.folder)
    world.clock.now += 3600
    fresh = world.publisher().refresh_timestamp()
    assert fresh.expires == at(world.clock.now + DAY)
    assert fresh.root_expires == at(NOW) + timedelta(days=365)
    after = files(world.folder)
    assert {name for name in after if after[name] != before.get(name)} == {
        "metadata/timestamp.json"
    }


@pytest.mark.slow
def test_refreshing_renews_whatever_would_expire(world):
    world.publish("0.1.0")
    consumer = world.consumer()
    for _ in range(200):  # 100 days: longer than targets and snapshot live
        world.clock.now += DAY / 2
        world.publisher().refresh_timestamp()
    assert consumer.refresh().online
    versions = Metadata.from_file(str(world.metadata / "timestamp.json")).signed.version
    assert versions == 202


@pytest.mark.slow
def test_metadata_that_nobody_reads_any_more_is_removed_but_for_roots(world):
    for number in range(70):
        world.publisher().anchor(number + 1, bytes(32))
    world.publisher().renew_root(PASSPHRASE)
    names = {path.name for path in world.metadata.iterdir()}
    assert {"1.root.json", "2.root.json"} <= names
    assert 32 <= sum(name.endswith("targets.json") for name in names) <= 66
    assert world.consumer().refresh().online


def test_the_audit_head_is_signed_and_read_back(world):
    assert world.consumer().anchor() is None
    world.publisher().anchor(7, b"h" * 32)
    anchor = world.consumer().anchor()
    assert (anchor.seq, anchor.digest) == (7, b"h" * 32)
    before = files(world.folder)
    world.publisher().anchor(7, b"h" * 32)
    assert files(world.folder) == before
    world.publish("0.1.0")
    assert world.consumer().anchor() == anchor


@pytest.mark.parametrize(("seq", "digest"), [(6, b"h" * 32), (7, b"g" * 32)])
def test_an_audit_head_that_does_not_follow_is_refused(world, seq, digest):
    world.publisher().anchor(7, b"h" * 32)
    with pytest.raises(VerificationError, match="the audit log was truncated or rewritten"):
        world.publisher().anchor(seq, digest)


def test_arguments_are_checked(world):
    with pytest.raises(InputError, match="expected an entry >= 1 and 32"):
        world.publisher().anchor(0, bytes(32))
    with pytest.raises(InputError, match="keep is 0"):
        Publisher(world.place, world.keys, keep=0)


def test_a_publisher_signs_nothing_that_others_put_there(world):
    world.publish("0.1.0")
    path = max(world.metadata.glob("*.targets.json"), key=lambda it: int(it.name.split(".")[0]))
    forged = json.loads(path.read_bytes())
    forged["signed"]["targets"] = {}
    path.write_text(json.dumps(forged))
    with pytest.raises(VerificationError, match="registry metadata refused"):
        world.publish("0.1.1")


def test_keys_that_the_root_does_not_name_sign_nothing(world, tmp_path):
    other = Keys(tmp_path / "others")
    other.create(PASSPHRASE)
    world.keys.path_of("timestamp").write_bytes(other.path_of("timestamp").read_bytes())
    before = files(world.folder)
    with pytest.raises(SigningError, match="is not the one that root 1 names for timestamp"):
        world.publisher().refresh_timestamp()
    with pytest.raises(SigningError, match="is not the one"):
        world.publish("0.1.0")
    assert files(world.folder)["metadata/timestamp.json"] == before["metadata/timestamp.json"]


def test_versions_are_in_their_order(world):
    world.publish("0.9.0", "0.10.0", "0.2.0")
    found = world.consumer().versions("assistant", "route")
    assert found == ["0.10.0", "0.9.0", "0.2.0"]
    assert found == sorted(found, key=Version.of, reverse=True)


def test_a_place_that_cannot_be_written_is_told(world):
    (world.folder / "targets").write_text("a file where a folder belongs")
    with pytest.raises(RegistryError, match="cannot be written: Not a directory"):
        world.publish("0.1.0")
