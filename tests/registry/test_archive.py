"""The archive: what somebody put there is not believed, and what was retracted stays away."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest

from steersman.errors import MissingSnapshotError
from tests.registry.conftest import snapshot_of


class Between:
    """A place where others do something right after a file of a version was written."""

    def __init__(self, place, act):
        self.place = place
        self.act = act

    def __getattr__(self, name):
        return getattr(self.place, name)

    def write_new(self, path, data):
        done = self.place.write_new(path, data)
        if path.startswith("targets/") and path.endswith("description.json") and self.act:
            act, self.act = self.act, None
            act()
        return done


def test_a_version_that_was_retracted_while_it_was_published_stays_away(world):
    """Two publishers publish the same version, and a person retracts it between."""
    world.publish("0.1.0")

    def overlap():
        world.publish("0.2.0")
        world.publisher().retract("assistant", "route", "0.2.0", reason="harmful")

    late = world.publisher(Between(world.place, overlap))
    with pytest.raises(MissingSnapshotError, match="was retracted and cannot be published again"):
        late.publish(*snapshot_of("0.2.0"))
    assert world.consumer().versions("assistant", "route") == ["0.1.0"]


def test_a_version_that_was_retracted_while_it_was_mended_stays_away(world):
    """Its file was lost, so that it is written again."""
    world.publish("0.1.0", "0.2.0")
    world.file("0.2.0").unlink()

    def overlap():
        world.publisher().retract("assistant", "route", "0.2.0", reason="harmful")

    late = world.publisher(Between(world.place, overlap))
    with pytest.raises(MissingSnapshotError, match="was retracted"):
        late.publish(*snapshot_of("0.2.0"))
    assert world.consumer().versions("assistant", "route") == ["0.1.0"]


def plant(world, number, named=None, **changed):
    """Put a description into the archive, as whoever can write there may; return its bytes."""
    data, described = snapshot_of(number)
    told = described.to_json() | {"sha256": sha256(data).hexdigest()} | changed
    text = msgspec.json.encode(told)
    folder = world.folder / "archive/assistant/route" / number
    folder.mkdir(parents=True)
    (folder / f"{named or sha256(text).hexdigest()}.description.json").write_bytes(text)
    return data, described


@pytest.mark.parametrize(
    "planted",
    [
        {"tenant": "evil"},
        {"skill": "other"},
        {"point": "other"},
        {"version": "9.9.9"},
        {"named": "0" * 64},
    ],
)
def test_a_description_that_does_not_fit_is_none(world, planted):
    data, described = plant(world, "0.1.2", **planted)
    published = world.publisher().publish(data, described)
    assert published.tenant == "acme"
    assert world.consumer().versions("assistant", "route") == ["0.1.2"]


def test_of_a_planted_description_nothing_is_returned(world):
    """It fits by all its names; what it says besides was never signed."""
    forged = {"algorithm": "forged", "samples": 10**9, "url": "http://evil/", "etag": "evil"}
    data, described = plant(world, "0.1.2", **forged)
    published = world.publisher().publish(data, described)
    assert (published.algorithm, published.samples) == ("lin_ucb", described.samples)
    assert published.url == f"targets/assistant/route/0.1.2/{published.sha256}.state.zst"
    assert published.etag is None


def test_what_is_no_description_blocks_nothing(world):
    folder = world.folder / "archive/assistant/route/0.1.2"
    folder.mkdir(parents=True)
    for text in (b"{}", b"x" * ((1 << 20) + 1)):
        (folder / f"{sha256(text).hexdigest()}.description.json").write_bytes(text)
    world.publish("0.1.2")
    assert world.consumer().versions("assistant", "route") == ["0.1.2"]


def test_all_versions_that_were_ever_published_are_taken(world):
    world.keep = 1
    world.publish("0.1.0", "0.1.1", "0.1.2")
    world.publisher().retract("assistant", "route", "0.1.2")
    (world.folder / "archive/assistant/route/no version").mkdir()
    (world.folder / "archive/assistant/route/no version/x").touch()
    assert world.publisher().taken("assistant", "route") == {"0.1.0", "0.1.1", "0.1.2"}
