"""Read-only registry: nothing is signed, and signed versions can be promoted."""

import os
import subprocess
from contextlib import contextmanager

import pytest

from steersman.errors import RegistryError
from steersman.learning.verify import verify
from steersman.points.policy_factory import load_policy
from steersman.registry.consumer import Consumer
from tests.faults.harness import small_disk
from tests.learning.shipping_world import promote_point, publish_point, registry_of
from tests.learning.world import bits, declared, learn_all, point_of, replica_of, traffic


@contextmanager
def read_only(folder):
    """Make a folder read-only, also for root."""

    def remount(how):
        as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        subprocess.run([*as_root, "mount", "-o", f"remount,{how}", folder], check=True)

    remount("ro")
    try:
        yield
    finally:
        remount("rw")


async def test_a_promotion_needs_no_write_and_publishing_goes_on_later(database, tenant, tmp_path):
    with small_disk(tmp_path / "registry", 8):
        signer = registry_of(tmp_path, tenant)
        row = await declared(database, tenant.id)
        await traffic(database, row, 20)
        await learn_all(database)
        first = await publish_point(database, tenant.id, signer)
        await traffic(database, row, 10, seed=1)
        await learn_all(database)
        root = signer.keys.trusted_root.read_bytes()
        folder = tmp_path / "registry" / tenant.name
        reader = Consumer(folder, root, tmp_path / "cache", refresh_s=0)
        with read_only(tmp_path / "registry"):
            read_only_said = "Read-only file system; fix this"
            with pytest.raises(RegistryError, match=read_only_said):
                await publish_point(database, tenant.id, signer)
            with pytest.raises(RegistryError, match=read_only_said):
                signer.refresh_timestamp()
            done = await promote_point(database, tenant.id, first.version)
            assert (done.snapshot, done.seq, done.lost) == (first.version, 10, 0)
            assert reader.load("search", "depth", first.version).reasons == ()
            await traffic(database, await point_of(database, tenant.id), 5, seed=2)
            await learn_all(database)
        made = await publish_point(database, tenant.id, signer)
        assert (made.line, made.line_seq) == (first.version, 15)
        published = load_policy(reader.load("search", "depth", made.version).state)
        assert bits(published) == bits((await replica_of(database, tenant.id)).policy)
        found = await verify(database, await point_of(database, tenant.id))
        assert (found.holds, found.not_learned) == (True, [])
