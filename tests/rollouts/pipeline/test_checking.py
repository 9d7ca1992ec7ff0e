"""Looking before anything is done: what is wrong is found, and nothing is changed by looking."""

from dataclasses import replace

from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.pipeline.preflight import check_pipeline
from steersman.rollouts.pipeline.steps import RunOptions, run_pipeline
from tests.rollouts.pipeline.world import ASSISTANT, assistant, config, tables


async def checked(made, loaded):
    return {one.name: one for one in await check_pipeline(made, ASSISTANT, loaded)}


async def test_a_tampered_snapshot_is_found(database, tenant, tmp_path):
    made = await assistant(database, tenant, tmp_path)
    loaded = config(tmp_path)
    await run_pipeline(made, ASSISTANT, loaded, RunOptions(step="package", only=("route",)))
    before = await tables(database, tenant.id)
    found = await checked(made, loaded)
    assert all(one.ok for one in found.values()), found
    assert found["route: snapshots"].said == "0.1.1 verify"
    assert found["tool: snapshots"].said == "none published yet"
    assert await tables(database, tenant.id) == before

    (file,) = (tmp_path / "registry").rglob("*.state.zst")
    good = file.read_bytes()
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    broken = await checked(made, loaded)
    assert [name for name, one in broken.items() if not one.ok] == ["route: snapshots"]
    file.write_bytes(good)
    assert (await checked(made, loaded))["route: snapshots"].ok

    # Who may write to the database changes state and hash together: only the signature can tell.
    connection = await database.connect("owner")
    async with as_tenant(connection, tenant.id):
        await connection.execute(
            "UPDATE snapshot SET state = other.state, sha256 = other.sha256 FROM snapshot AS other "
            "WHERE snapshot.point = 'route' AND snapshot.id = '0.1.1' "
            "AND other.point = 'route' AND other.id = '0.1.0'"
        )
    await connection.close()
    said = (await checked(made, loaded))["route: snapshots"]
    assert not said.ok
    assert "differs from the signed" in said.said


async def test_keys_declarations_and_parameters_are_looked_at(database, tenant, tmp_path):
    made = await assistant(database, tenant, tmp_path, n=0)
    found = await checked(replace(made, signer=None), config(tmp_path))
    assert [name for name, one in found.items() if not one.ok] == ["keys"]
    made.signer.keys.path_of("targets").unlink()
    assert not (await checked(made, config(tmp_path)))["keys"].ok
    bad = config(tmp_path, "training: {route: {alpha: -1}, nowhere: {}}")
    wrong = await checked(made, bad)
    assert "unknown decision point" in wrong["configuration"].said
    assert "training.route.alpha: too small" in wrong["route: declaration"].said
    assert wrong["tool: declaration"].ok


async def test_what_is_not_declared_is_told(database, tenant, tmp_path):
    from tests.rollouts.pipeline.world import workshop  # noqa: PLC0415

    made = workshop(database, tenant, tmp_path)
    found = await checked(made, config(tmp_path))
    assert "configs/assistant/route.yaml" in found["route: declaration"].said
