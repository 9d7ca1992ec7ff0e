"""The candidate's files are gone when it is to be promoted: it is held and told, and goes on later.

What a registry signed is asked for at every look, so files that went after the start are missed
before anything is promoted; what the cache has verified is as good as the registry.
"""

import shutil

import pytest

from steersman.errors import SnapshotError
from steersman.registry.keys import Keys
from steersman.registry.repository import Publisher
from steersman.registry.storage import DirectoryPlace
from steersman.rollouts.commands import act
from steersman.snapshots.verified_bases import VerifiedBases
from tests.rollouts.world import check_history, world

pytestmark = pytest.mark.slow


def _gone(registry, _aside):
    """Whoever tidies up removes the folder."""


def _other_thing(registry, _aside):
    registry.write_text("a file where the folder was")


def _unreadable(registry, _aside):
    registry.symlink_to(registry)  # nobody can follow it, whatever they may read


def _without_target(registry, aside):
    shutil.copytree(aside, registry)
    for path in (registry / "targets").rglob("*.zst"):
        path.unlink()


def put_back(registry, aside):
    if registry.is_dir() and not registry.is_symlink():
        shutil.rmtree(registry)
    else:
        registry.unlink(missing_ok=True)
    shutil.move(aside, registry)


def at_live(row):
    return row.stage == "live" or not row.is_under_way


async def shipped(database, tenant, root):
    """Return a world whose candidate lies in a registry that a home trusts, and both folders."""
    registry, trust = root / "registry" / tenant.name, root / "trust" / tenant.name
    publisher = Publisher(DirectoryPlace(registry), Keys(root / "keys" / tenant.name))
    trust.mkdir(parents=True)
    (trust / "root.json").write_bytes(publisher.create(tenant.name, "correct horse battery"))
    return await world(database, tenant.id, signer=publisher), registry, root / "aside"


@pytest.mark.parametrize("harm", [_gone, _other_thing, _unreadable, _without_target])
async def test_what_cannot_be_verified_is_held_until_it_can(harm, database, tenant, tmp_path):
    w, registry, aside = await shipped(database, tenant, tmp_path)
    begun, bases = await w.start(), VerifiedBases(tmp_path)
    good = {"candidate": 0.9, "control": 0.4}
    async with w.controlled(bases=bases):
        now = await w.drive(begun.id, steps=40, until=at_live, **good)
        assert now.stage == "live", (await w.verdicts(begun.id))[-1].reasons
        shutil.move(registry, aside)
        harm(registry, aside)
        # At once: the controller may write into it meanwhile, and a folder that fills is not empty.
        (tmp_path / "cache").rename(tmp_path / "cache-gone")
        now = await w.drive(begun.id, steps=8, **good)
        assert (now.status, now.stage) == ("running", "live")
        rows = await check_history(w, begun.id)
        assert (rows[-1].verdict, rows[-1].acted) == ("hold", "held")
        assert f"the candidate {w.candidate} cannot be loaded" in rows[-1].reasons[0]
        (incident,) = await w.incidents()
        assert (incident.kind, incident.closed_at) == ("candidate", None)
        assert w.candidate in incident.summary
        who = {"actor": "ann", "reason": "hurry", "clock": w.clock.wall, "bases": bases}
        with pytest.raises(SnapshotError):  # nobody can force what does not verify
            await act(database, tenant.id, begun.id, "promote", force=True, **who)
        assert (await w.point()).snapshot == "0.1.0"
        put_back(registry, aside)
        ended = await w.drive(begun.id, steps=200, **good)  # it is asked again after a second or so
    bases.close()
    rows = await check_history(w, begun.id)
    assert ended.status == "promoted", rows[-1].reasons
    assert (await w.point()).snapshot == w.candidate
    assert len(await w.incidents()) == 1  # told once, however long it took


async def test_what_was_verified_before_is_promoted_while_the_registry_is_away(
    database, tenant, tmp_path
):
    w, registry, aside = await shipped(database, tenant, tmp_path)
    begun, bases = await w.start(), VerifiedBases(tmp_path)
    good = {"candidate": 0.9, "control": 0.4}
    async with w.controlled(bases=bases):
        await w.drive(begun.id, steps=40, until=at_live, **good)
        shutil.move(registry, aside)
        ended = await w.drive(begun.id, steps=20, **good)
    bases.close()
    rows = await check_history(w, begun.id)
    assert ended.status == "promoted", rows[-1].reasons
    assert await w.incidents() == []
