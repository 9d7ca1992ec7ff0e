"""Contract checks of decisions: distributions, propensities and draws."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import chisquare

from steersman.testing.made_up_log import TOLERANCE, state_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.policies import Choice, ChoicePolicy
    from steersman.testing.made_up_log import Log

_LOOKED_AT = (3, 0, 11, 26, 45)  # rows of the log whose decisions are looked at one by one


def check_distribution(policy: ChoicePolicy, log: Log) -> None:
    """Check that probabilities are valid, keep the floor, and are 0 where not eligible."""
    for rows, asked in ((slice(0, 0), _LOOKED_AT[:1]), (slice(0, 40), _LOOKED_AT)):
        log.teach(policy, rows)
        for row, eligible in product(asked, _eligible(log)):
            request = log.request(row, eligible)
            rng, beside = np.random.default_rng(row), np.random.default_rng(row)
            choice = policy.decide(log.contexts[row], rng=rng, **request)
            beside.random()
            assert rng.random() == beside.random(), "decide must take exactly one uniform from rng"
            p = choice.distribution
            _check_shapes(policy, log, eligible, choice)
            _check_eligible(policy, log, eligible, choice)
            same = np.array_equal(p, policy.distribution(log.contexts[row], **request))
            assert same, "decide must draw from the distribution that distribution returns"
            assert p.dtype == np.float64, "the distribution must be float64"
            assert (p >= 0.0).all(), "a probability is negative"
            assert abs(p.sum() - 1.0) < TOLERANCE, f"the probabilities sum to {p.sum()}"
            assert not p[~choice.eligible].any(), "an ineligible action has a probability above 0"
            least = policy.floor / choice.eligible.sum()
            assert (p[choice.eligible] >= least - TOLERANCE).all(), (
                "the probability of an action is below the floor"
            )


def _eligible(log: Log) -> tuple[Sequence[str] | None, ...]:
    """Return all, neighbours, the last, every second and all backwards, as requests name them."""
    names = log.names
    return None, names[:2], names[-1:], names[::2], names[::-1]


def _columns(policy: ChoicePolicy, log: Log, eligible: Sequence[str] | None) -> list[str]:
    """Return the names of the entries of a choice's arrays."""
    return list(policy.actions or (log.names if eligible is None else eligible))


def _check_shapes(
    policy: ChoicePolicy, log: Log, eligible: Sequence[str] | None, choice: Choice
) -> None:
    """Check that scores and distribution have one entry per action."""
    wanted = (len(_columns(policy, log, eligible)),)
    for name, array in (("scores", choice.scores), ("distribution", choice.distribution)):
        said = f"{name} has the shape {array.shape}; allowed: one number per action, {wanted}"
        assert array.shape == wanted, said


def check_order(policy: ChoicePolicy, log: Log) -> None:
    """Check that probabilities do not depend on the order of eligible actions."""
    log.teach(policy)
    for row, eligible in product(_LOOKED_AT[:2], _eligible(log)):
        forwards = list(log.names if eligible is None else eligible)
        first, second = (_masses(policy, log, row, way) for way in (forwards, forwards[::-1]))
        for name, mass in first.items():
            said = (
                f"{name!r} has the mass {mass} where eligible is {forwards} and {second[name]} "
                "where these are named backwards: look actions up by name, never by their place"
            )
            assert abs(mass - second[name]) < TOLERANCE, said


def _masses(policy: ChoicePolicy, log: Log, row: int, eligible: list[str]) -> dict[str, float]:
    """Return the probability of each action by name."""
    distribution = policy.distribution(log.contexts[row], **log.request(row, eligible))
    return dict(zip(_columns(policy, log, eligible), distribution.tolist(), strict=True))


def _check_eligible(
    policy: ChoicePolicy, log: Log, eligible: Sequence[str] | None, choice: Choice
) -> None:
    """Check that the drawn action is eligible and has the stated propensity."""
    names = _columns(policy, log, eligible)
    wanted = [eligible is None or name in eligible for name in names]
    assert choice.eligible.tolist() == wanted, (
        "the choice lists other actions than the eligible ones"
    )
    assert eligible is None or choice.action in eligible, "an ineligible action was drawn"
    place = names.index(choice.action)
    mass, below = choice.distribution[place], choice.distribution[:place].sum()
    assert choice.propensity == mass, "the propensity differs from the distribution"
    drawn = below - TOLERANCE <= choice.u <= below + mass + TOLERANCE
    assert drawn, "the logged uniform gives another action"


def check_propensity(policy: ChoicePolicy, log: Log) -> None:
    """Check that the propensity is the entry of the distribution and the frequency of draws."""
    log.teach(policy)
    names = list(policy.actions or log.names)
    x, request = log.contexts[0], log.request(0)
    expected = policy.distribution(x, **request)
    rng = np.random.default_rng(7)
    counts = np.zeros(len(names))
    for _ in range(2000):
        choice = policy.decide(x, rng=rng, **request)
        place = names.index(choice.action)
        assert choice.propensity == expected[place], "the propensity differs from the distribution"
        counts[place] += 1
    assert not counts[expected == 0.0].any(), "an action with probability 0 was drawn"
    likely = expected * 2000 >= 5
    if likely.sum() > 1:
        seen, due = counts[likely], expected[likely]
        p_value = chisquare(seen, due / due.sum() * seen.sum()).pvalue
        assert p_value > 1e-4, f"draws do not follow the propensities (p = {p_value:.1e})"


def check_pure(policy: ChoicePolicy, log: Log) -> None:
    """Check that a decision draws one uniform, changes nothing, and shares no memory."""
    log.teach(policy)
    before, distributions = state_bytes(policy), log.distributions(policy)
    x, request = log.contexts[0], log.request(0)
    original = np.array(x, copy=True) if isinstance(x, np.ndarray) else None
    first, second = np.random.default_rng(5), np.random.default_rng(5)
    choice = policy.decide(x, rng=first, **request)
    second.random()
    assert first.random() == second.random(), "decide must take exactly one uniform from rng"
    again = policy.decide(x, rng=np.random.default_rng(5), **request)
    assert again.action == choice.action, "the same seed must give the same action"
    choice.distribution[:] = -1.0
    choice.scores[:] = -1.0
    assert state_bytes(policy) == before, "deciding must not change the state"
    assert np.array_equal(log.distributions(policy), distributions), (
        "deciding must not change later decisions"
    )
    assert original is None or np.array_equal(x, original), "deciding must not change the context"


def check_many(policy: ChoicePolicy, log: Log) -> None:
    """Check that batch decisions are bit-identical to single decisions."""
    if log.joint:
        return
    log.teach(policy)
    contexts = log.contexts[:10]
    rng = np.random.default_rng(11)
    each = [policy.decide(x, rng=rng) for x in contexts]
    many = policy.decide_many(contexts, rng=np.random.default_rng(11))
    assert len(many) == len(each), f"{len(many)} choices for {len(each)} contexts"
    for one, other in zip(each, many, strict=True):
        same = (one.action, one.propensity, one.u) == (other.action, other.propensity, other.u)
        alike = np.array_equal(one.distribution, other.distribution)
        assert same, "deciding many contexts at once differs from deciding each in turn"
        assert alike, (
            "deciding many contexts at once gives other probabilities than deciding each in turn"
        )
