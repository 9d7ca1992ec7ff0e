"""Consumers: the newest that verifies, the last good ones when nothing newer does."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from multiprocessing import get_context

import numpy as np
import pytest

from steersman.errors import (
    InputError,
    MissingSnapshotError,
    RegistryError,
    StaleError,
    VerificationError,
)
from steersman.points.state_bytes import pack_state
from steersman.registry.consumer import Consumer, manifest
from steersman.registry.metadata_signer import at
from steersman.registry.snapshot import pack_snapshot
from tests.registry.conftest import DAY, NOW, Clock, snapshot_of, state_of


def version_of(loaded):
    return loaded.description.version


@pytest.fixture(params=["directory", "http"])
def source(request, world):
    if request.param == "directory":
        return world.folder
    return request.getfixturevalue("web")


def test_a_state_is_loaded_as_it_was_published(world, source):
    world.publish("0.1.0", "0.1.1")
    consumer = world.consumer(source)
    loaded = consumer.load("assistant", "route")
    assert (version_of(loaded), loaded.source, loaded.reasons) == ("0.1.1", "registry", ())
    assert loaded.verified_at == at(NOW)
    expected = state_of(11)
    assert loaded.state.keys() == expected.keys()
    assert all(np.array_equal(loaded.state[name], expected[name]) for name in expected)
    assert version_of(consumer.load("assistant", "route", "0.1.0")) == "0.1.0"
    assert consumer.points() == [("assistant", "route")]


def test_consumer_refuses_a_state_that_is_not_the_described_one(world):
    world.publish("0.1.0")
    data, described = snapshot_of("0.1.1", number=10)[0], snapshot_of("0.1.1")[1]
    world.publisher().publish(data, described, standing="released")
    consumer = world.consumer()
    with pytest.raises(VerificationError, match="but its description names"):
        consumer.load("assistant", "route", "0.1.1")
    assert version_of(consumer.load("assistant", "route")) == "0.1.0"
    _, unsaid = snapshot_of("0.1.2", state_sha256=None)  # described by an earlier release
    world.publisher().publish(data, unsaid, standing="released")
    consumer.refresh()
    assert version_of(consumer.load("assistant", "route")) == "0.1.2"


def test_what_is_not_there_is_told(world, source):
    world.publish("0.1.0")
    consumer = world.consumer(source)
    with pytest.raises(MissingSnapshotError, match=r"no version of assistant/tool is published"):
        consumer.load("assistant", "tool")
    for name in ("0.1.9", "latest", "../../0.1.0"):
        with pytest.raises(MissingSnapshotError, match="is not among the published versions"):
            consumer.load("assistant", "route", name)
    assert consumer.versions("assistant", "tool") == []


def test_other_major_versions_are_ignored(world):
    world.publish("0.1.0")
    consumer = world.consumer()
    assert version_of(consumer.load("assistant", "route")) == "0.1.0"
    world.publish("0.1.1", "1.0.0")
    consumer.refresh()
    assert version_of(consumer.load("assistant", "route")) == "0.1.1"
    assert version_of(world.consumer().load("assistant", "route")) == "0.1.1"
    assert version_of(consumer.load("assistant", "route", "1.0.0")) == "1.0.0"
    assert version_of(consumer.load("assistant", "route")) == "0.1.1"
    strict = world.consumer(major=1)
    assert version_of(strict.load("assistant", "route")) == "1.0.0"
    assert strict.versions("assistant", "route") == ["1.0.0"]
    with pytest.raises(MissingSnapshotError):
        strict.load("assistant", "route", "0.1.1")


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["deleted", "truncated", "tampered", "longer"])
@pytest.mark.parametrize("kind", ["state.zst", "description.json"])
def test_a_candidate_that_cannot_be_loaded_leaves_the_last_good(world, source, damage, kind):
    world.publish("0.1.0")
    consumer = world.consumer(source)
    consumer.load("assistant", "route")
    world.publish("0.1.1")
    path = world.file("0.1.1", kind)
    data = path.read_bytes()
    if damage == "deleted":
        path.unlink()
    else:
        changed = {"truncated": data[:-1], "tampered": data[:-1] + b"?", "longer": data + b"?"}
        path.write_bytes(changed[damage])
    assert consumer.refresh().online
    loaded = consumer.load("assistant", "route")
    assert version_of(loaded) == "0.1.0"
    assert "0.1.1" in loaded.reasons[0]
    expected = (
        MissingSnapshotError
        if damage == "deleted"
        else (
            VerificationError,
            MissingSnapshotError,
        )
    )
    with pytest.raises(expected, match=r"0\.1\.1"):
        consumer.load("assistant", "route", "0.1.1")
    shutil.rmtree(world.folder / "targets")
    fresh = world.consumer(source, cache="fresh")
    with pytest.raises(VerificationError, match="no version of assistant/route can be loaded"):
        fresh.load("assistant", "route")


def test_offline_what_verified_is_served_and_nothing_new_is_loaded(world):
    world.publish("0.1.0", "0.1.1")
    consumer = world.consumer()
    consumer.load("assistant", "route", "0.1.0")
    world.folder.rename(world.home / "away")
    refreshed = consumer.refresh()
    assert not refreshed.online
    assert "metadata/timestamp.json not found" in refreshed.reasons[0]
    for one in (consumer, world.consumer()):  # a process that starts offline too
        world.clock.now += DAY
        loaded = one.load("assistant", "route")
        assert (version_of(loaded), loaded.source) == ("0.1.0", "cache")
        assert loaded.verified_at == at(NOW)
        assert any("cannot be fetched offline" in reason for reason in loaded.reasons)
        assert one.versions("assistant", "route") == ["0.1.1", "0.1.0"]
        with pytest.raises(MissingSnapshotError, match="cannot be fetched offline"):
            one.load("assistant", "route", "0.1.1")
    world.clock.now = NOW + 7 * DAY + 1
    for one in (consumer, world.consumer()):
        one.refresh()
        with pytest.raises(StaleError, match=r"last verified 7\.0 days ago, the maximum is 7"):
            one.load("assistant", "route")
    (world.home / "away").rename(world.folder)
    world.publisher().refresh_timestamp()
    assert consumer.refresh().online
    assert version_of(consumer.load("assistant", "route")) == "0.1.1"


def test_nothing_is_loaded_before_something_verified(world):
    consumer = world.consumer(world.home / "nowhere")
    with pytest.raises(VerificationError, match="no registry metadata has verified yet"):
        consumer.load("assistant", "route")


def test_the_registry_is_asked_again_after_a_while(world):
    world.publish("0.1.0")
    consumer = world.consumer(refresh_s=30)
    assert version_of(consumer.load("assistant", "route")) == "0.1.0"
    world.publish("0.1.1")
    world.clock.now += 29
    assert version_of(consumer.load("assistant", "route")) == "0.1.0"
    world.clock.now += 2
    assert version_of(consumer.load("assistant", "route")) == "0.1.1"


def test_the_cache_keeps_the_last_good_ones(world):
    consumer = world.consumer(keep=2)
    for number in range(5):
        world.publish(f"0.1.{number}")
        consumer.refresh()
        consumer.load("assistant", "route")
    files = {path.name for path in (world.home / "cache" / "files").iterdir()}
    newest = ("0.1.4", "0.1.3")
    kept = {consumer.describe("assistant", "route", version).sha256 for version in newest}
    assert kept < files
    assert len(files) == 4
    shutil.rmtree(world.folder / "targets")
    assert version_of(consumer.load("assistant", "route")) == "0.1.4"
    assert version_of(consumer.load("assistant", "route", "0.1.3")) == "0.1.3"
    with pytest.raises(MissingSnapshotError):
        consumer.load("assistant", "route", "0.1.2")


def test_a_retracted_version_is_served_no_more(world):
    world.publish("0.1.0", "0.1.1")
    consumer = world.consumer()
    assert version_of(consumer.load("assistant", "route")) == "0.1.1"
    world.publisher().retract("assistant", "route", "0.1.1")
    assert consumer.refresh().online
    assert version_of(consumer.load("assistant", "route")) == "0.1.0"
    with pytest.raises(MissingSnapshotError):
        consumer.load("assistant", "route", "0.1.1")


def test_a_damaged_cache_is_made_again(world):
    world.publish("0.1.0")
    world.consumer().load("assistant", "route")
    for path in sorted((world.home / "cache").rglob("*")):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(path.read_bytes()[:10] + b"\x00damaged")
    consumer = world.consumer()
    assert version_of(consumer.load("assistant", "route")) == "0.1.0"
    assert consumer.refresh().online


def test_what_was_changed_in_the_cache_is_not_served_offline(world):
    world.publish("0.1.0")
    world.consumer().load("assistant", "route")
    memory = world.home / "cache" / "memory.json"
    kept = json.loads(memory.read_bytes())
    kept["texts"][2] = kept["texts"][2].replace("0.1.0", "6.6.6")
    memory.write_text(json.dumps(kept))
    world.folder.rename(world.home / "away")
    with pytest.raises(VerificationError, match="the cache: VerificationError"):
        world.consumer().load("assistant", "route")


def test_without_anything_that_verifies_there_is_a_warm_start_or_the_prior(world, tmp_path):
    consumer = world.consumer(world.home / "nowhere")
    warm, plain = tmp_path / "warm.zst", tmp_path / "warm.safetensors"
    warm.write_bytes(pack_snapshot(state_of(5)))
    plain.write_bytes(pack_state(state_of(5)))
    for path in (warm, plain):
        loaded = consumer.load_or("assistant", "route", warm_start=path, prior=dict)
        assert (loaded.source, loaded.description, loaded.verified_at) == ("warm_start", None, None)
        assert np.array_equal(loaded.state["moment"], state_of(5)["moment"])
        assert "no registry metadata has verified" in loaded.reasons[0]
    for bad in (b"nonsense", warm.read_bytes()[:-9]):
        warm.write_bytes(bad)
        loaded = consumer.load_or("assistant", "route", warm_start=warm, prior=lambda: state_of(0))
        assert loaded.source == "prior"
        assert "warm.zst" in loaded.reasons[1]
    assert consumer.load_or("assistant", "route", prior=lambda: state_of(0)).source == "prior"
    world.publish("0.1.0")
    found = world.consumer().load_or("assistant", "route", warm_start=plain, prior=dict)
    assert found.source == "registry"


def test_a_watch_tells_what_is_new(world, caplog):
    caplog.set_level(logging.ERROR)
    world.publish("0.1.0")
    consumer, stop = world.consumer(), threading.Event()
    steps = iter(
        [
            lambda: world.publish("0.1.1"),
            lambda: (world.publish("0.1.2"), world.file("0.1.2").unlink(), world.publish("0.1.3")),
            lambda: world.publish("0.1.0", point="tool"),
            stop.set,
        ]
    )
    told = []

    def on_new(loaded):
        told.append((loaded.description.point, version_of(loaded)))
        next(steps)()

    consumer.watch(on_new, interval_s=0.01, stop=stop)
    assert told == [("route", "0.1.0"), ("route", "0.1.1"), ("route", "0.1.3"), ("tool", "0.1.0")]


def test_a_watch_leaves_what_was_retracted(world):
    world.publish("0.1.0", "0.1.1")
    consumer, stop, told = world.consumer(), threading.Event(), []

    def on_new(loaded):
        told.append(version_of(loaded))
        world.publisher().retract("assistant", "route", version_of(loaded), reason="a bot")

    def on_gone(*what):
        told.append(what)
        stop.set()

    consumer.watch(on_new, interval_s=0.01, stop=stop, on_gone=on_gone)
    assert told == ["0.1.1", "0.1.0", ("assistant", "route", "0.1.0")]


def test_a_watch_outlives_what_cannot_be_loaded(world):
    consumer, stop, told = world.consumer(), threading.Event(), []

    def on_new(loaded):
        told.append(version_of(loaded))
        stop.set()

    world.folder.rename(world.home / "away")
    thread = threading.Thread(
        target=consumer.watch,
        args=(on_new,),
        kwargs={"interval_s": 0.01, "stop": stop, "points": [("assistant", "route")]},
    )
    thread.start()
    (world.home / "away").rename(world.folder)
    world.publish("0.1.0")
    thread.join(20)
    assert told == ["0.1.0"]


def load_often(source, root, cache, versions, failures):
    """Load again and again, as one of several processes with the same cache."""
    try:
        consumer = Consumer(source, root, cache, clock=Clock(), refresh_s=0, keep=2)
        seen = []
        for _ in range(12):
            loaded = consumer.load("assistant", "route")
            assert consumer.refresh().online
            seen.append(version_of(loaded))
        assert seen == sorted(seen)
        assert set(seen) <= set(versions)
    except BaseException as error:  # told to who waits
        failures.put(repr(error))
        raise


@pytest.mark.slow
def test_processes_share_a_cache(world):
    versions = [f"0.1.{number}" for number in range(8)]
    world.publish(versions[0])
    context = get_context("spawn")
    failures = context.Queue()
    given = world.folder, world.root, world.home / "cache", versions, failures
    processes = [context.Process(target=load_often, args=given) for _ in range(4)]
    for process in processes:
        process.start()
    for version in versions[1:]:
        world.publish(version)
    for process in processes:
        process.join()
    assert failures.empty(), failures.get()
    assert [process.exitcode for process in processes] == [0] * 4
    consumer = world.consumer()
    assert version_of(consumer.load("assistant", "route")) == versions[-1]


def test_the_manifest_has_a_line_for_each_version(world):
    assert manifest(world.consumer()) == manifest(world.place) == ""
    world.publish("0.9.0", "0.10.0")
    world.publish("0.1.0", point="tool")
    lines = [json.loads(line) for line in manifest(world.consumer()).splitlines()]
    assert [(it["point"], it["version"]) for it in lines] == [
        ("route", "0.10.0"),
        ("route", "0.9.0"),
        ("tool", "0.1.0"),
    ]
    assert manifest(world.place) == manifest(world.consumer())
    assert all(
        {"sha256", "url", "etag", "size", "samples", "git_commit"} <= it.keys() for it in lines
    )
    world.file("0.9.0", "description.json").unlink()
    with pytest.raises(VerificationError, match="not found"):
        manifest(world.place)


def test_arguments_are_checked(world, tmp_path):
    with pytest.raises(VerificationError, match="trusted root refused"):
        world.consumer(root=b"{}")
    for name in ("keep", "max_age_days", "timeout_s"):
        with pytest.raises(InputError, match=f"{name} is 0"):
            world.consumer(**{name: 0})
    with pytest.raises(InputError, match="allowed"):
        world.consumer("ftp://example.org/registry")
    with pytest.raises(InputError, match="not a registry URL"):
        world.consumer("https://user:secret@example.org/registry")
    (tmp_path / "file").write_text("")
    with pytest.raises(RegistryError, match="the cache"):
        world.consumer(cache="file")


def test_a_cache_that_is_tidied_away_is_made_again(world):
    world.publish("0.1.0", "0.2.0")
    consumer = world.consumer(refresh_s=0)
    assert consumer.load("assistant", "route").description.version == "0.2.0"
    shutil.rmtree(world.home / "cache")
    assert consumer.load("assistant", "route").source == "registry"
    shutil.rmtree(world.home / "cache")
    world.folder.rename(world.home / "elsewhere")
    with pytest.raises(MissingSnapshotError, match="cannot be fetched offline") as refused:
        consumer.load("assistant", "route", "0.2.0")
    assert str(world.home) not in str(refused.value)
    assert str(world.home) not in "; ".join(consumer.refresh().reasons)
    (world.home / "elsewhere").rename(world.folder)
    assert consumer.load("assistant", "route", "0.2.0").source == "registry"
