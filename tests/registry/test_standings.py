"""What is untried, on trial or rolled back is loaded by nobody who does not ask for it."""

import threading

import pytest

from steersman.errors import InputError, MissingSnapshotError, VerificationError
from steersman.registry.chain import signed_standing
from steersman.registry.consumer import manifest
from tests.registry.conftest import snapshot_of
from tests.registry.test_attacks import newest
from tests.registry.test_consumer import version_of

ROUTE = ("assistant", "route")


def unmarked(world):
    """Let a registry look as an earlier release wrote it: the same, without any mark."""
    chain, tag = world.publisher()._writer.read()
    for target in chain.targets.targets.values():
        if target.custom is not None:
            target.custom.pop("standing", None)
    chain.targets.version += 1
    assert world.publisher()._writer._write((chain, tag), chain.targets) is not None


def test_a_consumer_loads_what_is_released(world):
    world.publish("0.1.0")
    world.publish("0.2.0", "1.0.0", standing="candidate")
    consumer = world.consumer()
    assert version_of(consumer.load(*ROUTE)) == "0.1.0"
    assert consumer.load(*ROUTE).reasons == ()
    assert consumer.standings(*ROUTE) == {
        "1.0.0": "candidate",
        "0.2.0": "candidate",
        "0.1.0": "released",
    }
    assert version_of(consumer.load(*ROUTE, candidates=True)) == "0.2.0"
    assert version_of(consumer.load(*ROUTE, "0.2.0")) == "0.2.0"
    assert version_of(consumer.load(*ROUTE, among={"0.2.0"})) == "0.2.0"
    assert version_of(consumer.load_or(*ROUTE, prior=dict, candidates=True)) == "0.2.0"
    assert version_of(world.consumer(cache="fresh").load(*ROUTE, candidates=True)) == "1.0.0"
    assert version_of(consumer.load(*ROUTE)) == "0.1.0"


def test_a_candidate_that_was_loaded_decides_no_major(world):
    world.publish("0.1.0")
    world.publish("1.0.0", standing="candidate")
    consumer = world.consumer()
    assert version_of(consumer.load(*ROUTE, candidates=True)) == "1.0.0"
    assert version_of(consumer.load(*ROUTE)) == "0.1.0"


def test_without_a_released_one_it_is_told_what_there_is(world):
    world.publish("0.1.0", standing="candidate")
    with pytest.raises(MissingSnapshotError, match=r"none of the 1 published .* newest is 0\.1\.0"):
        world.consumer().load(*ROUTE)
    assert world.consumer().load_or(*ROUTE, prior=dict).source == "prior"


def test_what_is_published_without_a_word_is_a_candidate(world):
    world.publisher().publish(*snapshot_of("0.1.0"))
    assert world.publisher().standings(*ROUTE) == {"0.1.0": "candidate"}
    with pytest.raises(InputError, match="allowed: candidate, released, rolled_back"):
        world.publish("0.1.1", standing="live")


def test_promotion_and_rollback_change_the_mark_alone(world):
    world.publish("0.1.0")
    world.publish("0.2.0", standing="candidate")
    consumer, publisher = world.consumer(), world.publisher()
    before = {it.name for it in (world.folder / "targets").rglob("*")}, manifest(world.place)
    assert publisher.mark(*ROUTE, {"0.2.0": "released"})
    assert not publisher.mark(*ROUTE, {"0.2.0": "released"})
    assert consumer.refresh().online
    assert version_of(consumer.load(*ROUTE)) == "0.2.0"
    publisher.mark(*ROUTE, {"0.2.0": "rolled_back"})
    consumer.refresh()
    assert version_of(consumer.load(*ROUTE)) == "0.1.0"
    assert version_of(consumer.load(*ROUTE, candidates=True)) == "0.1.0"
    assert version_of(consumer.load(*ROUTE, "0.2.0")) == "0.2.0"
    assert ({it.name for it in (world.folder / "targets").rglob("*")}, manifest(world.place)) == (
        before
    )
    assert publisher.publish(*snapshot_of("0.2.0"), standing="released").version == "0.2.0"
    assert publisher.standings(*ROUTE)["0.2.0"] == "rolled_back"  # what is there keeps its mark
    with pytest.raises(MissingSnapshotError, match=r"0\.9\.9 is not published"):
        publisher.mark(*ROUTE, {"0.1.0": "candidate", "0.9.9": "released"})
    assert publisher.standings(*ROUTE)["0.1.0"] == "released"


def test_a_watch_follows_the_marks(world):
    world.publish("0.1.0")
    world.publish("0.2.0", standing="candidate")
    marks = iter([("0.2.0", "released"), ("0.2.0", "rolled_back"), ("0.1.0", "rolled_back")])
    consumer, stop, told = world.consumer(), threading.Event(), []

    def on_new(loaded):
        told.append(version_of(loaded))
        world.publisher().mark(*ROUTE, dict([next(marks)]))

    def on_gone(*what):
        told.append(what)
        stop.set()

    consumer.watch(on_new, interval_s=0.01, stop=stop, on_gone=on_gone)
    assert told == ["0.1.0", "0.2.0", "0.1.0", (*ROUTE, "0.1.0")]


def test_a_forged_mark_is_refused(world):
    world.publish("0.1.0")
    world.publish("0.2.0", standing="candidate")
    knowing = world.consumer()
    assert version_of(knowing.load(*ROUTE)) == "0.1.0"
    _, path = newest(world, "targets")
    text = path.read_bytes()
    assert text.count(b'"candidate"') == 1
    path.write_bytes(text.replace(b'"candidate"', b'"released"'))
    fresh = world.consumer(cache="fresh")
    assert not fresh.refresh().online
    with pytest.raises(VerificationError, match="no registry metadata has verified"):
        fresh.load(*ROUTE)
    assert version_of(knowing.load(*ROUTE)) == "0.1.0"
    assert knowing.standings(*ROUTE)["0.2.0"] == "candidate"


def test_marks_that_are_brought_back_are_refused(world):
    world.publish("0.1.0", "0.2.0")
    world.copy("old")
    world.publisher().mark(*ROUTE, {"0.2.0": "rolled_back"})
    consumer = world.consumer()
    assert version_of(consumer.load(*ROUTE)) == "0.1.0"
    world.bring_back("old")
    assert not consumer.refresh().online
    assert version_of(consumer.load(*ROUTE)) == "0.1.0"


def test_a_registry_without_marks_is_read_as_before(world):
    world.publish("0.1.0", "0.2.0")
    unmarked(world)
    consumer = world.consumer()
    assert world.publisher().standings(*ROUTE) == {"0.1.0": None, "0.2.0": None}
    assert version_of(consumer.load(*ROUTE)) == "0.2.0"
    world.publish("0.1.0", point="tool", standing="candidate")  # another point's mark
    consumer.refresh()
    assert version_of(consumer.load(*ROUTE)) == "0.2.0"
    world.publisher().mark(*ROUTE, {"0.1.0": "released"})
    consumer.refresh()
    assert version_of(consumer.load(*ROUTE)) == "0.1.0"  # beside a mark, none is a candidate
    assert consumer.standings(*ROUTE)["0.2.0"] == "candidate"


def test_publishing_beside_what_has_no_mark_takes_nothing_away(world):
    world.publish("0.1.0", "0.2.0")
    unmarked(world)
    consumer = world.consumer()
    world.publish("0.3.0", standing="candidate")
    consumer.refresh()
    assert version_of(consumer.load(*ROUTE)) == "0.2.0"
    assert world.publisher().standings(*ROUTE) == {
        "0.1.0": "released",
        "0.2.0": "released",
        "0.3.0": "candidate",
    }


def test_a_watch_leaves_a_major_of_which_nothing_is_left(world):
    world.publish("1.0.0")
    world.publish("0.9.0", standing="candidate")
    consumer, stop, told = world.consumer(), threading.Event(), []

    def on_new(loaded):
        told.append(version_of(loaded))
        if len(told) == 2:
            stop.set()
            return
        world.publisher().retract(*ROUTE, "1.0.0")
        world.publisher().mark(*ROUTE, {"0.9.0": "released"})

    patience = threading.Timer(20.0, stop.set)
    patience.start()
    consumer.watch(on_new, interval_s=0.01, stop=stop)
    patience.cancel()
    assert told == ["1.0.0", "0.9.0"]
    assert version_of(consumer.load(*ROUTE)) == "0.9.0"


def test_a_mark_of_a_later_release_is_a_candidate(world):
    world.publish("0.1.0")
    chain, _ = world.publisher()._writer.read()
    (target,) = [it for it in chain.targets.targets.values() if it.custom]
    target.custom["standing"] = "blessed"
    assert signed_standing(target) == "candidate"


def test_two_publishers_keep_each_others_marks(world):
    world.publish("0.1.0", "0.1.1", standing="candidate")
    one, two = world.publisher(), world.publisher()
    one.standings(*ROUTE)
    two.mark(*ROUTE, {"0.1.1": "rolled_back"})
    one.mark(*ROUTE, {"0.1.0": "released"})
    two.publish(*snapshot_of("0.1.2"))
    assert one.standings(*ROUTE) == {
        "0.1.0": "released",
        "0.1.1": "rolled_back",
        "0.1.2": "candidate",
    }


def test_candidates_push_no_released_version_out(world):
    world.keep = 2
    world.publish("0.1.0")
    world.publish(*(f"0.2.{number}" for number in range(4)), standing="candidate")
    consumer = world.consumer()
    assert consumer.versions(*ROUTE) == ["0.2.3", "0.2.2", "0.1.0"]
    assert version_of(consumer.load(*ROUTE)) == "0.1.0"
