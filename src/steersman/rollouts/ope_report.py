"""Off-policy evaluation of other policies on the log, as a report.

Rollouts do not use it; ``rollouts/candidate_evidence.py`` evaluates their candidates on the
service's draws only. This report may include imported logs with known propensities, although they
come from other conditions.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from steersman.errors import InputError, SteersmanError
from steersman.points.policy_factory import initial_policy
from steersman.rollouts.candidate import Candidate, candidate_of
from steersman.rollouts.candidate_evidence import logged_choices, logged_data
from steersman.spec.actions import Choice
from steersman.spec.policy import FixedPolicy, RulesPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.db.logged_choices import LoggedChoice
    from steersman.db.points import PointRow
    from steersman.learning.replica import Bases
    from steersman.ope import Report
    from steersman.spec.point import DecisionPoint

Rows = Literal["own", "imported", "all"]
ESTIMATORS = ("ips", "snips", "dr")
_KINDS: dict[Rows, tuple[str, ...]] = {
    "own": ("exact",),
    "imported": ("imported",),
    "all": ("exact", "imported"),
}
_MOST_ROWS = 1_000_000
_FEWEST = 2


class PolicyValue(NamedTuple):
    """Off-policy evaluation of one policy.

    Attributes:
        policy: name of the policy.
        report: estimates, diagnostics and objections; None: it cannot be evaluated.
        reason: why the report is missing; empty otherwise.
    """

    policy: str
    report: Report | None
    reason: str = ""


class Log(NamedTuple):
    """Logged decisions for off-policy evaluation.

    Attributes:
        rows: decisions in time order.
        mean: logged mean reward.
        against: why the log cannot evaluate other policies; empty if it can.
    """

    rows: Sequence[LoggedChoice]
    mean: float
    against: str = ""


def baselines(spec: DecisionPoint) -> dict[str, Candidate]:
    """Return the baseline policies: the declared fallback, and each action always.

    Returns:
        Policies without a floor, by name; empty for actions without names.

    >>> from steersman.spec.loader import loads
    >>> spec = loads('''
    ... format: 1
    ... skill: search
    ... decision: depth
    ... actions: {kind: choice, names: [shallow, deep]}
    ... policy: {algorithm: lin_ucb}
    ... floor: 0.02
    ... fallback: {rules: [], otherwise: shallow}
    ... reward: {terms: {clicked: {weight: 1}}}
    ... ''')
    >>> list(baselines(spec))
    ['fallback', 'always shallow', 'always deep']
    """
    if not isinstance(spec.actions, Choice) or spec.actions.open:
        return {}
    fallback = spec.fallback
    policies: dict[str, Any] = {
        "fallback": RulesPolicy(
            algorithm="rules", rules=fallback.rules, otherwise=fallback.otherwise
        )
    }
    for name in spec.actions.names:
        policies[f"always {name}"] = FixedPolicy(algorithm="fixed", action=name)
    found = {}
    for name, policy in policies.items():
        declared = spec.model_copy(update={"policy": policy, "floor": 0.0})
        found[name] = Candidate.of(initial_policy(declared), declared)
    return found


async def read_log(
    connection: Any, point: PointRow, *, rows: Rows = "own", newest: int = 5_000, now: float
) -> Log:
    """Return the newest decisions of a point with a final reward.

    Args:
        newest: maximum number of decisions, 2 to 1,000,000.
        now: seconds since 1970; windows that end later are open.

    Returns:
        At least two decisions; with an objection if own decisions are included and the point
        declares ``explore: none``.

    Raises:
        InputError: `newest` is out of range, or fewer than two decisions have a final reward.
    """
    if not _FEWEST <= newest <= _MOST_ROWS:
        raise InputError(f"invalid newest {newest!r}: expected {_FEWEST} to {_MOST_ROWS:,}")
    found = await logged_choices(
        connection,
        (point.tenant, point.skill, point.point),
        closed=datetime.fromtimestamp(now, UTC),
        judged=point.spec,
        limit=newest,
        kinds=_KINDS[rows],
    )
    if len(found) < _FEWEST:
        message = f"{len(found)} decisions of {point.skill}/{point.point} have a propensity "
        message += "and a final reward; at least 2 needed. The learner computes a reward after "
        message += "its window has closed: `steersman learn run`"
        if rows == "own":
            message += "; use --rows all to include imported logs"
        raise InputError(message)
    against = ""
    if point.spec.explore == "none" and rows != "imported":
        against = (
            "the decision point declares explore: none, so its log cannot evaluate other policies; "
        )
        against += "declare a floor"
    return Log(found, sum(float(one.reward or 0) for one in found) / len(found), against)


async def find_candidates(
    connection: Any, point: PointRow, versions: Sequence[str], bases: Bases
) -> dict[str, Candidate]:
    """Return verified published versions.

    Raises:
        RolloutError: a version is not published or was retracted.
        SnapshotError: a version does not verify.
        StateError: unknown snapshot.
    """
    found = {}
    for version in versions:
        _, found[version] = await candidate_of(connection, point, version, bases)
    return found


def value(log: Log, policies: Mapping[str, Candidate], *, level: float = 0.95) -> list[PolicyValue]:
    """Evaluate policies on logged decisions.

    The log counts as adaptive, because its policy learned from these rewards. Choosing the best of
    many policies, or repeating the evaluation every day, invalidates the level of the intervals.

    Args:
        level: level of the confidence intervals, in (0, 1).

    Raises:
        InputError: `level` is out of range.
    """
    from steersman.ope import evaluate  # noqa: PLC0415 (slow import)

    if not 0 < level < 1:
        raise InputError(f"invalid level {level!r}: expected a number between 0 and 1")
    said = []
    for name, candidate in policies.items():
        if log.against:
            said.append(PolicyValue(name, None, log.against))
            continue
        try:
            data = logged_data(candidate, log.rows)
            report = evaluate(data, estimators=ESTIMATORS, level=level, adaptive=True)
        except SteersmanError as error:
            said.append(
                PolicyValue(
                    name, None, f"the policy cannot decide the logged decisions: {error!s:.300}"
                )
            )
            continue
        said.append(PolicyValue(name, report))
    return said
