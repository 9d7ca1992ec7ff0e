"""Publishing: versions by change, and the publish guard."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from hashlib import sha256

import numpy as np
import pytest

from steersman.errors import (
    GuardError,
    InputError,
    SigningError,
    SpecError,
    StateError,
    VerificationError,
)
from steersman.learning.rebuild import rebuild
from steersman.points import state_bytes
from steersman.points.state_bytes import compress_state, pack_state, state_sha256, unpack_state
from steersman.policies import LinUCB
from steersman.registry.consumer import Consumer
from steersman.registry.description import describe
from steersman.registry.repository import Publisher
from steersman.registry.snapshot import pack_snapshot
from steersman.snapshots.publish import publish
from steersman.snapshots.publish_guard import Reason
from tests.db.rows import connected
from tests.learning.shipping_world import (
    WHY,
    lessons,
    promote_point,
    publish_point,
    registry_of,
    snapshot_of,
)
from tests.learning.world import declared, document, learn_all, point_of, rows, traffic


async def test_a_version_for_every_change_of_data_and_none_without(database, tenant, signer):
    row = await declared(database, tenant.id)
    first = await publish_point(database, tenant.id, signer(tenant))  # the prior may be shipped too
    assert (first.version, first.line, first.line_seq, first.samples) == ("0.1.1", "0.1.0", 0, 0)
    await traffic(database, row, 12)
    await learn_all(database)
    second = await publish_point(database, tenant.id, signer(tenant))
    assert (second.version, second.line_seq, second.samples) == ("0.1.2", 12, 12)
    assert second.parents == ("0.1.0",)
    assert await publish_point(database, tenant.id, signer(tenant)) == second
    await promote_point(database, tenant.id, "0.1.2")
    assert await publish_point(database, tenant.id, signer(tenant)) == second
    await traffic(database, row, 3, seed=1)
    await learn_all(database)
    third = await publish_point(database, tenant.id, signer(tenant))
    assert (third.version, third.line, third.line_seq) == ("0.1.3", "0.1.2", 3)
    assert third.samples == 15


async def test_versions_tell_what_kind_of_change_it_was(database, tenant, signer):
    row = await declared(database, tenant.id)
    await traffic(database, row, 12)
    await learn_all(database)
    made = [
        await publish_point(database, tenant.id, signer(tenant), **candidate)
        for candidate in ({}, {"dim": 16}, {"policy": "lin_ts"}, {"dim": 24})
    ]
    assert [one.version for one in made] == ["0.1.1", "0.2.1", "1.0.1", "0.3.1"]
    assert [one.algorithm for one in made] == ["lin_ucb", "lin_ucb", "lin_ts", "lin_ucb"]
    assert made[1].evidence["relearned"] == {
        "line": "0.1.0",
        "seq": 12,
        "kept": 12,
        "excluded": 0,
        "lost": 0,
    }
    assert (await point_of(database, tenant.id)).snapshot == "0.1.0"  # nothing was switched
    assert await publish_point(database, tenant.id, signer(tenant), dim=16) == made[1]


async def test_what_is_signed_says_where_it_comes_from(database, tenant, signer):
    row = await declared(database, tenant.id)
    await traffic(database, row, 12)
    await learn_all(database)
    why = Reason(actor="ann", evidence={"why": "weekly"}, git_commit="c0ffee")
    made = await publish_point(database, tenant.id, signer(tenant), why=why)
    assert (made.tenant, made.skill, made.point) == (tenant.name, "search", "depth")
    assert made.spec_hash == row.spec_hash.hex()
    assert made.feature_hash == row.feature_hash.hex()
    assert made.git_commit == "c0ffee"
    assert made.evidence["why"] == "weekly"
    assert made.evidence["held_out"]["against"] == "0.1.0"
    stored, state = await snapshot_of(database, tenant.id, made.version)
    assert stored.created_at == made.created_at
    assert stored.published_at is not None
    assert unpack_state(state).keys() >= {"meta", "gram"}
    (act,) = await rows(database, tenant.id, "SELECT * FROM audit WHERE action LIKE 'snapshot%'")
    assert act["actor"] == "ann"
    assert act["detail"]["sha256"] == made.sha256


async def test_publish_packs_a_state_once_and_signs_the_stored_bytes(
    database, tenant, signer, monkeypatch, tmp_path
):
    row = await declared(database, tenant.id)
    await traffic(database, row, 12)
    await learn_all(database)
    packed, unpacked, save, load = Counter(), Counter(), state_bytes.save, state_bytes.load

    def counted_save(arrays):
        data = save(arrays)
        packed[sha256(data).hexdigest()] += 1
        return data

    def counted_load(data):
        unpacked[sha256(data).hexdigest()] += 1
        return load(data)

    monkeypatch.setattr(state_bytes, "save", counted_save)
    monkeypatch.setattr(state_bytes, "load", counted_load)
    publisher = signer(tenant)
    made = await publish_point(database, tenant.id, publisher)
    assert packed == {made.state_sha256: 1}
    assert unpacked.pop(made.state_sha256) == 2  # the learner's checkpoint, and what is signed
    stored, data = await snapshot_of(database, tenant.id, made.version)
    assert sha256(data).hexdigest() == stored.sha256.hex() == made.sha256
    root = publisher.keys.trusted_root.read_bytes()
    consumer = Consumer(publisher.place.root, root, tmp_path / "cache")
    loaded = consumer.load("search", "depth", made.version)
    assert unpacked[made.state_sha256] == 1
    assert consumer.data("search", "depth", made.version) == data
    assert state_bytes.state_sha256(loaded.state) == made.state_sha256


async def test_candidates_that_could_not_be_compared_are_refused(database, tenant, signer):
    row = await declared(database, tenant.id)
    other = document(reward="window_s: 60")
    for text, message in (
        (other, "changes the reward"),
        (document().replace("deep]", "deep, deeper]"), "changes the actions"),
        (document().replace("decision: depth", "decision: width"), "changes the point"),
    ):
        with pytest.raises(InputError, match=message):
            await publish(database, row, signer(tenant), WHY, spec=text)
    with pytest.raises(SpecError):
        await publish(database, row, signer(tenant), WHY, spec="format: 1")


async def test_the_guard_refuses_what_decides_worse_unless_it_is_overruled(
    database, tenant, signer
):
    row = await declared(database, tenant.id, policy="lin_ts")
    await lessons(database, row, 4000)
    await learn_all(database)
    good = await publish_point(database, tenant.id, signer(tenant))
    assert good.evidence["held_out"]["low"] > 0
    bad = document(policy="fixed").replace("action: deep}", "action: middle}")
    with pytest.raises(GuardError, match="held-out") as refused:
        await publish(database, row, signer(tenant), WHY, spec=bad)
    assert len(refused.value.reasons) == 1
    query = "SELECT count(*) FROM snapshot"
    assert (await rows(database, tenant.id, query))[0][0] == 2  # it left nothing behind
    with pytest.raises(GuardError):
        await publish(database, row, signer(tenant), Reason(actor="ann", force=" "), spec=bad)
    force = Reason(actor="ann", force="to be rolled back in the demo")
    forced = await publish(database, row, signer(tenant), force, spec=bad)
    assert forced.version == "1.0.1"
    assert forced.evidence["overruled"] == refused.value.reasons
    query = "SELECT detail FROM audit WHERE action = 'snapshot.publish' ORDER BY seq"
    assert (await rows(database, tenant.id, query))[-1]["detail"]["force"] == force.force


async def test_the_guard_refuses_another_scale(database, tenant, signer):
    row = await declared(database, tenant.id)
    await traffic(database, row, 130)
    await learn_all(database)
    await publish_point(database, tenant.id, signer(tenant))
    await rows(database, tenant.id, "SELECT set_config('app.tenant', $1, true)", str(tenant.id))
    await traffic(database, row, 40, seed=1)
    await learn_all(database)
    await scaled(database, tenant.id, 5.0)
    with pytest.raises(GuardError, match="largest eigenvalue"):
        await publish_point(database, tenant.id, signer(tenant))


async def scaled(database, tenant, factor):
    """Learn the newest updates again with scaled contexts."""
    query = (
        "INSERT INTO update SELECT tenant, skill, point, snapshot, seq + 40, gen_random_uuid(), "
        "revision, (SELECT array_agg(e * $1) FROM unnest(x) AS e), key, action, reward_change, "
        "weight_change, weight, bucket, traceparent, at FROM update WHERE seq > 130"
    )
    await rows(database, tenant, query, factor)
    await rows(database, tenant, "UPDATE learner SET seq = seq + 40")


async def test_a_line_that_changed_meanwhile_is_published_as_it_is(database, tenant, signer):
    row = await declared(database, tenant.id)
    await traffic(database, row, 12)
    await learn_all(database)
    await rebuild(database, row, actor="test")
    made = await publish(database, row, signer(tenant), WHY)  # `row` is what was before
    assert (made.version, made.line) == ("0.2.1", "0.2.0")


async def test_a_retracted_version_is_published_anew_under_another(database, tenant, signer):
    row = await declared(database, tenant.id)
    await traffic(database, row, 12)
    await learn_all(database)
    first = await publish_point(database, tenant.id, signer(tenant))
    await rows(database, tenant.id, "UPDATE snapshot SET retracted_at = now() WHERE id = '0.1.1'")
    second = await publish_point(database, tenant.id, signer(tenant))
    assert (first.version, second.version) == ("0.1.1", "0.1.2")
    assert first.state_sha256 == second.state_sha256
    with pytest.raises(StateError, match="retracted"):
        await promote_point(database, tenant.id, "0.1.1")


async def test_what_serves_stays_where_services_find_it(database, tenant, tmp_path):
    publisher = registry_of(tmp_path, tenant)
    keeper = Publisher(publisher.place, publisher.keys, keep=2)
    row = await declared(database, tenant.id)
    for seed in range(5):
        await traffic(database, row, 2, seed=seed)
        await learn_all(database)
        made = await publish_point(database, tenant.id, keeper)
        if seed == 0:
            await promote_point(database, tenant.id, made.version)
    found = {path.split("/")[3] for path in publisher.place.list("targets")}
    assert found == {"0.1.1", "0.1.4", "0.1.5"}


async def test_who_publishes_at_the_same_time_gets_the_same_version(database, tenant, signer):
    row = await declared(database, tenant.id)
    await traffic(database, row, 12)
    await learn_all(database)
    both = [publish_point(database, tenant.id, signer(tenant)) for _ in range(3)]
    made = await asyncio.gather(*both)
    assert made[0] == made[1] == made[2]
    query = "SELECT count(*) FROM audit WHERE action = 'snapshot.publish'"
    assert (await rows(database, tenant.id, query))[0][0] == 1


async def test_what_could_not_be_signed_waits_with_its_evidence(database, tenant, signer):
    row = await declared(database, tenant.id)
    await traffic(database, row, 12)
    await learn_all(database)
    key = signer(tenant).keys.path_of("targets")
    away = key.rename(key.with_suffix(".away"))
    with pytest.raises(SigningError):
        await publish_point(database, tenant.id, signer(tenant))
    away.rename(key)
    await traffic(database, row, 5, seed=1)
    await learn_all(database)
    first = await publish_point(database, tenant.id, signer(tenant))
    assert (first.version, first.line_seq) == ("0.1.1", 12)
    second = await publish_point(database, tenant.id, signer(tenant))
    assert (second.version, second.line_seq) == ("0.1.2", 17)


@pytest.mark.parametrize("damage", ["other", "not finite"])
async def test_publish_refuses_to_sign_a_stored_state_that_is_not_the_described_one(
    database, tenant, signer, damage
):
    row = await declared(database, tenant.id)
    await traffic(database, row, 12)
    await learn_all(database)
    key = signer(tenant).keys.path_of("targets")
    away = key.rename(key.with_suffix(".away"))
    with pytest.raises(SigningError):  # 0.1.1 waits, stored and described
        await publish_point(database, tenant.id, signer(tenant))
    away.rename(key)
    _, data = await snapshot_of(database, tenant.id, "0.1.1")
    state = unpack_state(data)
    if damage == "other":  # valid, but not the described state
        state["gram"] = 2 * state["gram"]
    else:
        state["gram"] = np.full_like(state["gram"], np.nan)
        described = "jsonb_build_object('state_sha256', $1::text)"
        query = f"UPDATE snapshot SET description = description || {described} WHERE id = '0.1.1'"
        await rows(database, tenant.id, query, state_sha256(state))
    query = "UPDATE snapshot SET state = $1, sha256 = sha256($1) WHERE id = '0.1.1'"
    async with connected(database, "owner", tenant.id) as connection:
        await connection.execute(query, compress_state(pack_state(state)))
    with pytest.raises(VerificationError, match=r"`steersman snapshot retract search depth 0.1.1"):
        await publish_point(database, tenant.id, signer(tenant))
    assert not signer(tenant).taken("search", "depth")
    await rows(database, tenant.id, "UPDATE snapshot SET retracted_at = now() WHERE id = '0.1.1'")
    assert (await publish_point(database, tenant.id, signer(tenant))).version == "0.1.2"


async def test_after_an_older_database_was_restored_the_next_free_version_is_taken(
    database, tenant, signer
):
    """The registry has versions that the restored database does not know."""
    row = await declared(database, tenant.id)
    await traffic(database, row, 12)
    await learn_all(database)
    publisher = signer(tenant)
    await publish_point(database, tenant.id, publisher)
    for version in ("0.1.2", "0.1.3"):  # published after the backup
        description = describe(
            LinUCB(["a", "b"], dim=2).state(),
            tenant=tenant.name,
            skill=row.skill,
            point=row.point,
            version=version,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        publisher.publish(pack_snapshot(LinUCB(["a", "b"], dim=2).state()), description)
    publisher.retract(row.skill, row.point, "0.1.3")
    await traffic(database, row, 7, seed=9)
    await learn_all(database)
    made = await publish_point(database, tenant.id, publisher)
    assert made.version == "0.1.4"
    assert await publish_point(database, tenant.id, publisher) == made
