"""Clocks that jump: what expired stays expired, what is stale stays stale, and mistakes heal."""

from __future__ import annotations

import pytest

from steersman.errors import MissingSnapshotError, StaleError
from steersman.registry.metadata_signer import at
from tests.registry.conftest import DAY, NOW, Clock


@pytest.fixture
def knowing(world):
    world.publish("0.1.0")
    consumer = world.consumer()
    consumer.load("assistant", "route")
    return consumer


def test_the_clock_that_counts_is_the_one_that_is_given(world):
    world.clock.now = NOW + 2 * DAY
    refreshed = world.consumer(cache="fresh").refresh()
    assert "timestamp.json is expired" in refreshed.reasons[0]
    assert refreshed.at == at(NOW + 2 * DAY)


def test_an_expired_timestamp_is_not_revived_by_a_clock_set_back(world, knowing):
    world.publish("0.1.1")
    assert knowing.refresh().online
    world.clock.now = NOW + 2 * DAY
    assert not knowing.refresh().online
    for back in (NOW, NOW - 30 * DAY):
        world.clock.now = back
        for one in (knowing, world.consumer()):  # here, and after a restart
            refreshed = one.refresh()
            assert not refreshed.online
            assert "timestamp.json is expired" in refreshed.reasons[0]
            assert refreshed.at == at(NOW + 2 * DAY)
            with pytest.raises(MissingSnapshotError, match="cannot be fetched offline"):
                one.load("assistant", "route", "0.1.1")


def test_a_newer_timestamp_that_was_seen_expired_is_not_revived_either(world, knowing):
    world.clock.now = NOW + DAY / 2
    world.publisher().refresh_timestamp()
    world.clock.now = NOW + 2 * DAY
    assert not knowing.refresh().online
    world.clock.now = NOW + DAY
    for _ in range(2):
        assert not knowing.refresh().online
    assert not world.consumer().refresh().online


def test_what_is_stale_is_not_freshened_by_a_clock_set_back(world, knowing):
    world.folder.rename(world.home / "away")
    world.clock.now = NOW + 8 * DAY
    knowing.refresh()
    with pytest.raises(StaleError):
        knowing.load("assistant", "route")
    world.clock.now = NOW + DAY
    for one in (knowing, world.consumer()):
        one.refresh()
        with pytest.raises(StaleError, match=r"last verified 8\.0 days ago"):
            one.load("assistant", "route")


def test_a_clock_set_back_within_a_process_does_not_make_anything_younger(world, knowing):
    world.clock.now = NOW + 8 * DAY
    with pytest.raises(StaleError):
        knowing.load("assistant", "route")
    world.clock.now = NOW
    with pytest.raises(StaleError):
        knowing.load("assistant", "route")


def test_a_clock_that_was_ahead_for_a_while_heals_with_what_is_published_next(world, knowing):
    other = world.consumer()
    other.refresh()
    world.clock.now = NOW + 500 * DAY  # even the root has expired by then
    for one in (knowing, other):
        assert not one.refresh().online
        with pytest.raises(StaleError):
            one.load("assistant", "route")
    world.clock.now = NOW + 60
    assert not knowing.refresh().online
    world.publisher().refresh_timestamp()
    for one in (knowing, other):  # every process that shares the cache
        refreshed = one.refresh()
        assert refreshed.online
        assert refreshed.at == at(NOW + 60)
        assert one.load("assistant", "route").source == "registry"


def test_a_clock_set_back_a_little_does_no_harm(world, knowing):
    world.clock.now = NOW - 5
    assert knowing.refresh().online
    assert knowing.load("assistant", "route").verified_at == at(NOW)


def test_processes_with_clocks_apart_agree_on_the_later_one(world, knowing):
    ahead = world.consumer(clock=Clock(NOW + DAY / 2))
    assert ahead.refresh().online
    assert knowing.refresh().at == at(NOW + DAY / 2)


def test_a_publisher_whose_clock_stepped_back_still_publishes(world, knowing):
    world.clock.now = NOW - 3600
    world.publish("0.1.1")
    world.clock.now = NOW + 60
    assert knowing.refresh().online
    assert knowing.load("assistant", "route").description.version == "0.1.1"
