"""A publisher killed at any step leaves one version, which the next call publishes."""

import asyncio
import signal

import pytest

from steersman.snapshots.reproduce import reproduce
from tests.forked import call
from tests.learning.publishing_process import publish_until_killed
from tests.learning.shipping_world import publish_point, registry_of
from tests.learning.world import declared, document, learn_all, rows, traffic


def killed(database, tenant, root, spec, steps):
    """Return whether the publisher was killed after some steps; else it has published."""
    told = database.url, tenant.id, root, tenant.name, spec, steps
    status = call(publish_until_killed, *told).wait(60)
    assert status in {0, -signal.SIGKILL}
    return status != 0


async def some_more(database, row, seed):
    await traffic(database, row, 2, seed=seed)
    await learn_all(database)


async def check(database, tenant, publisher, version, candidate):
    """Publish again: same version and bytes, each version once among the targets."""
    query = "SELECT id, sha256 FROM snapshot WHERE reason = 'published' AND published_at IS NULL"
    waiting = [(one["id"], bytes(one["sha256"])) for one in await rows(database, tenant.id, query)]
    made = await publish_point(database, tenant.id, publisher, **candidate)
    assert len(waiting) <= 1
    if waiting:
        assert (made.version, made.sha256) == (waiting[0][0], waiting[0][1].hex())
    assert made.version == version
    assert await rows(database, tenant.id, query) == []
    again = await reproduce(database, tenant.id, "search", "depth", version)
    files = publisher.place.list(f"targets/search/depth/{version}")
    (file,) = [path for path in files if path.endswith(".state.zst")]
    assert publisher.place.read(file).data == again
    published = "SELECT count(*) FROM audit WHERE action = 'snapshot.publish'"
    return (await rows(database, tenant.id, published))[0][0]


@pytest.mark.slow
def test_killed_anywhere_it_goes_on_with_the_same_version(database, tenant, tmp_path):
    publisher = registry_of(tmp_path, tenant)
    row = asyncio.run(declared(database, tenant.id))
    steps = 0
    while True:
        steps += 1
        asyncio.run(some_more(database, row, steps))
        was_killed = killed(database, tenant, tmp_path, None, steps)
        version = f"0.1.{steps}"
        audited = asyncio.run(check(database, tenant, publisher, version, {}))
        assert audited == steps
        if not was_killed:
            break
    assert steps > 15


@pytest.mark.slow
def test_a_killed_candidate_is_relearned_once(database, tenant, tmp_path):
    publisher = registry_of(tmp_path, tenant)
    row = asyncio.run(declared(database, tenant.id))
    steps = 0
    while True:
        steps += 3
        asyncio.run(some_more(database, row, steps))
        candidate = {"dim": 16 + steps}
        was_killed = killed(database, tenant, tmp_path, document(**candidate), steps)
        version = f"0.{1 + steps // 3}.1"
        asyncio.run(check(database, tenant, publisher, version, candidate))
        if not was_killed:
            break
    assert steps > 15
