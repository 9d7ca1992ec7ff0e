"""Validation of a pipeline: configuration, declarations, keys and published snapshots."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.db.snapshots import snapshots_of
from steersman.db.updates import base_state
from steersman.errors import SteersmanError, VerificationError
from steersman.platform.postgres.database import as_tenant
from steersman.points.policy_factory import initial_policy, load_policy
from steersman.points.state_bytes import pack_state, unpack_state
from steersman.registry.keys import ONLINE
from steersman.rollouts.pipeline.candidate_declaration import candidate_of, check_points
from steersman.rollouts.pipeline.release_steps import overrides_of
from steersman.rollouts.pipeline.reports import Check
from steersman.rollouts.pipeline.steps import declared_points
from steersman.rollouts.pipeline.trial import available
from steersman.rollouts.plan import plan_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.db.points import PointRow
    from steersman.points.systems import System
    from steersman.registry.consumer import Consumer
    from steersman.rollouts.pipeline.config import LoadedConfig
    from steersman.rollouts.pipeline.reports import Workshop


async def check_pipeline(
    workshop: Workshop, system: System, loaded: LoadedConfig, only: Sequence[str] = ()
) -> list[Check]:
    """Check whether a pipeline can run, and whether its published snapshots verify.

    Args:
        only: decision points to check; empty: all.
    """
    checks = [_configuration(loaded, system), _keys(workshop)]
    for name in system.points:
        if only and name not in only:
            continue
        try:
            row = (await declared_points(workshop, system, [name]))[name]
        except SteersmanError as error:
            checks.append(Check(f"{name}: declaration", ok=False, said=str(error)))
            continue
        checks.append(_declaration(loaded, system, row))
        checks.append(await _published(workshop, row))
    return checks


def _configuration(loaded: LoadedConfig, system: System) -> Check:
    try:
        check_points(loaded, system)
    except SteersmanError as error:
        return Check("configuration", ok=False, said=str(error))
    return Check("configuration", ok=True, said=loaded.source)


def _keys(workshop: Workshop) -> Check:
    name = workshop.tenant.name
    if workshop.signer is None:
        said = f"tenant {name} has no signing keys; create them with `steersman snapshot keys init`"
        return Check("keys", ok=False, said=said)
    try:
        for role in ONLINE:
            workshop.signer.keys.signer(role)
    except SteersmanError as error:
        return Check("keys", ok=False, said=str(error))
    return Check("keys", ok=True, said=f"{', '.join(ONLINE)} of {name} can sign")


def _declaration(loaded: LoadedConfig, system: System, row: PointRow) -> Check:
    """Build the candidate's policy and the rollout plan, without storing them."""
    name = f"{row.point}: declaration"
    try:
        spec = candidate_of(loaded, system, row.spec)
        policy = initial_policy(spec or row.spec)
        plan_of(row.spec, salt="", overrides=overrides_of(row.spec, loaded.config.deployment))
    except SteersmanError as error:
        return Check(name, ok=False, said=str(error))
    what = "the live declaration" if spec is None else "the configuration"
    return Check(name, ok=True, said=f"{policy.algorithm}, candidate from {what}")


async def _published(workshop: Workshop, row: PointRow) -> Check:
    """Verify the newest published version and the live one, without a cache."""
    name = f"{row.point}: snapshots"
    point = row.tenant, row.skill, row.point
    connection = await workshop.database.connect("worker")
    try:
        async with as_tenant(connection, row.tenant):
            known = available(await snapshots_of(connection, point))
            wanted = {one.version for one in known if one.version == row.snapshot}
            wanted |= {one.version for one in known[-1:]}
            if not wanted:
                return Check(name, ok=True, said="none published yet")
            stored = {
                one.version: await base_state(connection, point, one.version)
                for one in known
                if one.version in wanted and one.is_stored
            }
        with tempfile.TemporaryDirectory(prefix="steersman-check-") as folder:
            consumer = workshop.consumer(Path(folder))
            await asyncio.to_thread(_verify, consumer, row, wanted, stored)
    except SteersmanError as error:
        return Check(name, ok=False, said=str(error))
    finally:
        await connection.close()
    return Check(name, ok=True, said=f"{', '.join(sorted(wanted))} verify")


def _verify(consumer: Consumer, row: PointRow, wanted: set[str], stored: dict[str, bytes]) -> None:
    for version in sorted(wanted):
        signed = pack_state(consumer.load(row.skill, row.point, version).state)
        if version in stored and pack_state(unpack_state(stored[version])) != signed:
            message = (
                f"the stored state of {row.skill}/{row.point} {version} differs from the signed "
            )
            message += "one; restore it from the registry, and check who can write to the database"
            raise VerificationError(message)
        load_policy(unpack_state(signed))
