"""``steersman ope``: off-policy estimates, refusals and errors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.db.imports.conftest import Logs
from tests.db.imports.test_import import learned
from tests.kept import run


@pytest.fixture
def logs(database, tenant, tmp_path):
    """Six hundred decisions of a log with propensities: deep earns, the others do not."""
    logs = Logs(database, tenant.id, tmp_path)
    rng = np.random.default_rng(1)
    chosen = rng.choice(["shallow", "deep", "hybrid"], 600)
    rows = [
        logs.row(n, chosen=name, p=1 / 3, clicked=float(name == "deep"), seconds=0)
        for n, name in enumerate(map(str, chosen))
    ]

    async def fill():
        await logs.declare()
        report = await logs.load(logs.lines(*rows), logs.mapping(outcomes="{clicked: clicked}"))
        assert report.stored == 600, report.refusals
        await learned(logs)

    run(fill())
    return logs


def test_it_says_what_others_would_have_earned(command, tenant, logs):
    asked = ("ope", "search", "depth", "--tenant", tenant.name, "--rows", "imported")
    found = command.json(*asked, "--level", "0.9")
    assert (found["decisions"], found["rows"], found["level"]) == (600, "imported", 0.9)
    said = {one["policy"]: one for one in found["policies"]}
    assert list(said) == ["fallback", "always shallow", "always deep", "always hybrid"]
    deep, shallow = said["always deep"], said["always shallow"]
    assert deep["reasons"] == shallow["reasons"] == []
    assert deep["effective_sample_size"] > 100
    assert shallow["estimates"]["dr"]["high"] < found["logged_mean"]
    assert found["logged_mean"] < deep["estimates"]["dr"]["low"]
    text = command(*asked)
    assert "over 600 decisions (imported)." in text
    assert [line.split("  ")[0] for line in text.splitlines()[4:]] == list(said)
    assert "refused" not in text


def test_what_is_too_little_is_refused_with_the_reason(command, tenant, logs):
    asked = ("ope", "search", "depth", "--tenant", tenant.name)
    said = command(*asked, status=1)
    assert "0 decisions of search/depth have a propensity and a final reward" in said
    assert "--rows all" in said
    few = command(*asked, "--rows", "all", "--newest", "40")
    table, *sentences = few.split("\n\n")[1:]
    assert [line.split()[-1] for line in table.splitlines()[1:]] == ["refused"] * 4
    assert max(map(len, table.splitlines())) < 120
    assert [one.removeprefix("No estimate for ").partition(": ")[0] for one in sentences] == [
        *("fallback", "always shallow", "always deep", "always hybrid")
    ]
    assert "Too little overlap" in sentences[0]
    assert "9.9.9" in command(*asked, "9.9.9", status=1)
    unknown = command("ope", "search", "nothing", "--tenant", tenant.name, status=1)
    assert "not found: decision point search/nothing" in unknown
    command(*asked, "--level", "1", status=2)
