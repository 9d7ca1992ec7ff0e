"""What others would have earned: own decisions and imported logs, beside the known truth."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from steersman.db.points import find_declared
from steersman.errors import InputError
from steersman.platform.postgres.database import as_tenant
from steersman.rollouts.ope_report import baselines, read_log, value
from tests.db.imports.conftest import Logs
from tests.db.imports.test_import import learned

ROWS = 1500
TRUTH = {"shallow": 0.3, "deep": 0.6, "hybrid": 0.45}
DRAWN = {"shallow": 0.5, "deep": 0.2, "hybrid": 0.3}


@pytest.fixture
def logs(database, tenant, tmp_path):
    return Logs(database, tenant.id, tmp_path)


async def _imported(logs, *, with_propensities):
    point = await logs.declare()
    rng = np.random.default_rng(4)
    names = list(DRAWN)
    rows = []
    for number, place in enumerate(rng.choice(3, ROWS, p=list(DRAWN.values()))):
        name = names[place]
        clicked = float(rng.random() < TRUTH[name])
        row = logs.row(number, chosen=name, clicked=clicked, seconds=0, p=DRAWN[name])
        rows.append(row)
    propensity = "{field: p}" if with_propensities else None
    mapping = logs.mapping(propensity=propensity, outcomes="{clicked: clicked}")
    report = await logs.load(logs.lines(*rows), mapping)
    assert report.stored == ROWS, report.refusals
    await learned(logs)
    return point


async def _read(logs, point, *, declared=None, **options):
    connection = await logs.database.connect("app")
    try:
        async with as_tenant(connection, logs.tenant):
            row = await find_declared(connection, (logs.tenant, point.skill, point.point))
            row = replace(row, spec=row.spec.model_copy(update=declared or {}))
            return await read_log(connection, row, now=time.time(), **options)
    finally:
        await connection.close()


async def test_an_imported_log_with_propensities_is_evidence_when_it_is_asked_for(logs):
    point = await _imported(logs, with_propensities=True)
    with pytest.raises(InputError, match="--rows all"):
        await _read(logs, point)  # nothing was drawn here
    for rows in ("imported", "all"):
        log = await _read(logs, point, rows=rows)
        assert len(log.rows) == ROWS
    rewards = {
        name: np.mean([one.reward for one in log.rows if one.action == name]) for name in TRUTH
    }
    said = {one.policy: one.report for one in value(log, baselines(point.spec), level=0.999)}
    assert list(said) == ["fallback", *(f"always {name}" for name in TRUTH)]
    for name, mean in rewards.items():
        report = said[f"always {name}"]
        assert report.reasons == []
        assert report["snips"].value == pytest.approx(mean, abs=0.02)
        for estimator in ("ips", "snips", "dr"):
            assert report[estimator].low < mean < report[estimator].high
    order = sorted(TRUTH, key=lambda name: said[f"always {name}"]["dr"].value)
    assert order == ["shallow", "hybrid", "deep"]
    assert log.mean == pytest.approx(np.mean([one.reward for one in log.rows]))
    assert len((await _read(logs, point, rows="all", newest=500)).rows) == 500


async def test_decisions_of_a_point_that_never_explores_are_no_evidence(logs):
    point = await _imported(logs, with_propensities=True)
    never = {"explore": "none", "floor": 0.0}
    log = await _read(logs, point, declared=never, rows="all")
    for one in value(log, baselines(point.spec)):
        assert one.report is None
        assert "declares explore: none" in one.reason
    elsewhere = await _read(logs, point, declared=never, rows="imported")  # not drawn here
    assert all(one.report is not None for one in value(elsewhere, baselines(point.spec)))


async def test_an_imported_log_without_propensities_is_no_evidence(logs):
    point = await _imported(logs, with_propensities=False)
    for rows in ("own", "imported", "all"):
        with pytest.raises(InputError, match="0 decisions of search/depth have a propensity"):
            await _read(logs, point, rows=rows)


async def test_numbers_out_of_range_are_refused(logs):
    point = await logs.declare()
    for newest in (1, 1_000_001):
        with pytest.raises(InputError, match="expected 2 to 1,000,000"):
            await _read(logs, point, newest=newest)
    for level in (0.0, 1.0):
        with pytest.raises(InputError, match="expected a number between 0 and 1"):
            value((), {}, level=level)
