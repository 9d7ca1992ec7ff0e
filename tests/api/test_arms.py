"""Arms: the shares that were asked for, units that stay, and rows that say who drew."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import numpy as np
import pytest
from scipy.stats import chi2

from steersman.errors import InputError
from steersman.serving.arms import PLAIN, Arms, Label, unit_of
from steersman.wire import DecideRequest
from tests.api.rollouts import a_rollout, serving, who

UNITS = [f"user-{n}" for n in range(20_000)]
STEPS = [("canary", 0.05), ("ab", 0.25), ("ab", 0.5), ("live", 0.95)]
OWN = str(UUID(int=7))


@pytest.mark.parametrize(("stage", "share"), STEPS)
def test_each_arm_gets_its_share(stage: str, share: float) -> None:
    arms = Arms(a_rollout(stage, share), serving("0.1.1"))
    counts = Counter(who(arms.turn(unit)) for unit in UNITS)
    equal = 1 - share if stage == "live" else share
    wanted = {"candidate": share, "control": equal, "aside": 1 - share - equal}
    assert {name for name, part in wanted.items() if part > 1e-9} == set(counts)
    expected = np.array([part * len(UNITS) for part in wanted.values() if part > 1e-9])
    got = np.array([counts[name] for name, part in wanted.items() if part > 1e-9])
    assert np.sum((got - expected) ** 2 / expected) < chi2.isf(1e-6, max(1, len(got) - 1))


def test_no_unit_leaves_its_arm_while_the_share_grows() -> None:
    before: dict[str, str] = {}
    for stage, share in STEPS[:3]:
        arms = Arms(a_rollout(stage, share), serving("0.1.1"))
        now = {unit: who(arms.turn(unit)) for unit in UNITS[:5000]}
        moved = [unit for unit, arm in before.items() if arm != "aside" and now[unit] != arm]
        assert moved == []
        before = now
    live = Arms(a_rollout("live", 0.95), serving("0.1.1"))
    back = [unit for unit in before if before[unit] == "candidate" != who(live.turn(unit))]
    assert back == []


def test_two_processes_place_every_unit_alike() -> None:
    one, other = (Arms(a_rollout(), serving("0.1.1")) for _ in range(2))
    assert [who(one.turn(unit)) for unit in UNITS[:500]] == [
        who(other.turn(unit)) for unit in UNITS[:500]
    ]


def test_rows_name_the_rollout_only_where_it_is_analysed() -> None:
    candidate = serving("0.1.1")
    arms = Arms(a_rollout("canary", 0.05), candidate)
    turns = {who(turn): turn for turn in map(arms.turn, UNITS)}
    assert turns["candidate"].label == Label(OWN, "canary", "candidate")
    assert turns["candidate"].fallen == Label(OWN, "canary", "control")
    assert turns["candidate"].served is candidate
    assert turns["control"].label == Label(OWN, "canary", "control")
    assert turns["control"].served is None
    assert turns["aside"].label == PLAIN == Label(None, "live", "control")


def test_a_shadow_serves_nobody() -> None:
    arms = Arms(a_rollout("shadow", 0.0), serving("0.1.1"))
    turns = {arms.turn(unit) for unit in UNITS[:1000]}
    (turn,) = turns
    assert (turn.arm, turn.served, turn.label) == ("control", None, Label(OWN, "shadow"))


def test_without_its_candidate_control_takes_the_turn_and_says_so() -> None:
    arms = Arms(a_rollout("ab", 0.5), None)
    turns = [arms.turn(unit) for unit in UNITS[:1000]]
    assert all(turn.served is None for turn in turns)
    taken = {turn.fallen for turn in turns if turn.arm == "candidate"}
    assert taken == {Label(OWN, "ab", "control")}


def test_the_unit_is_the_users_the_episodes_or_the_decision_itself() -> None:
    own = UUID(int=3)
    request = DecideRequest("search", "depth", unit="u", episode_id="e")
    assert unit_of(request, own) == "u"
    assert unit_of(DecideRequest("search", "depth", episode_id="e"), own) == "e"
    assert unit_of(DecideRequest("search", "depth"), own) == str(own)


@pytest.mark.parametrize(
    "wrong", [{"stage": "gone"}, {"share": -0.1}, {"salt": "a\0b"}, {"plan": {"stages": "none"}}]
)
def test_a_row_that_is_no_rollout_is_refused(wrong: dict) -> None:
    with pytest.raises(InputError):
        Arms(a_rollout(**wrong), None)
