"""From a request to a drawn action and its row: no I/O, so that the exactness is easy to see.

The vector that decides is the float32-rounded one that is stored and learned from; the propensity
is the float64 entry that the draw used. When the policy cannot answer, the declared fallback does:
probability 1, `degraded`, weight 0, so that nothing is ever learned from it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from steersman.errors import ActionError, InputError
from steersman.service.arms import PLAIN
from steersman.spec import compile_rule
from steersman.store import DecisionRow, encode, rounded
from steersman.store.scrubbing import scrubbing_of
from steersman.wire import Decision, Refused, new_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from numpy.typing import NDArray

    from steersman.learn import Replica
    from steersman.policies import Choice
    from steersman.service.arms import Arms, Label
    from steersman.spec import DecisionPoint
    from steersman.wire import DecideRequest

GUARDIAN = "guardian_state"
_FIRST = "first"


class Served:
    """A decision point as this process serves it: its replica, and what every request needs.

    Args:
        replica: the policy state, to which updates are applied.
    """

    arms: Arms | None = None
    """The rollout under way, while this is its control."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.spec = replica.row.spec
        self.open: bool = getattr(self.spec.actions, "open", False)
        self.names: tuple[str, ...] = tuple(getattr(self.spec.actions, "names", ()))
        self.feature_count = len(getattr(self.spec.actions, "features", ()))
        self.wants_guardian = GUARDIAN in self.spec.context.fields
        self.scrubbing = scrubbing_of(self.spec)
        reward = self.spec.reward
        self.window = timedelta(seconds=reward.window_s)
        self.settles = reward.missing != "drop" or reward.scope == "episode"
        self.deadline_s = self.spec.budgets.deadline_ms / 1000
        declared = self.spec.fallback
        self._rules = [(compile_rule(rule.when), str(rule.action)) for rule in declared.rules]
        self._otherwise = str(declared.otherwise)

    def fall_back(self, context: Mapping[str, Any], eligible: Sequence[str] | None) -> str:
        """Return the fallback's action; it never fails.

        Args:
            context: as in the request, whether it is as declared or not.
            eligible: the actions allowed; None or empty: those declared.

        Returns:
            The eligible action of the first rule that holds, or of `otherwise`; where that is not
            eligible, the first that is.
        """
        names = eligible or self.names
        for holds, action in self._rules:
            target = names[0] if names and action == _FIRST and self.open else action
            if (not names or target in names) and _holds(holds, context):
                return target
        if names and (self._otherwise not in names):
            return names[0]
        return self._otherwise


class Drawn(NamedTuple):
    """What a request got, before it is a row.

    Attributes:
        action: what to do.
        p: the probability of the draw.
        names: the actions that ``distribution`` is over.
        distribution: (K,) float64.
        x: what the policy saw for the action drawn.
        key: likewise, for policies that learn apart by key.
        features: of the eligible actions, row after row.
        u: the uniform of the draw; None where nothing was drawn.
        degraded: whether the fallback answered.
    """

    action: str
    p: float
    names: Sequence[str]
    distribution: NDArray[np.float64]
    x: NDArray[np.float64] | None
    key: str | None
    features: NDArray[np.float64] | None
    u: float | None
    degraded: bool


def draw(
    served: Served, request: DecideRequest, context: Mapping[str, Any], rng: np.random.Generator
) -> Drawn:
    """Return the policy's action for a request.

    Args:
        served: the decision point.
        request: what is asked.
        context: its context, completed.
        rng: gives the uniform.

    Returns:
        The draw; the fallback's answer when nothing is eligible.

    Raises:
        Refused: a context, an action or features that are not as declared.

    No doctest: it needs a replica; ``tests/service/test_drawing.py`` shows it.
    """
    if request.eligible is not None and not request.eligible:
        return fall_back(served, request, context)
    return _draw(served, request, context, _encoded(served, context), rng)


def draw_many(
    served: Served,
    asked: Sequence[tuple[DecideRequest, Mapping[str, Any]]],
    rng: np.random.Generator,
) -> list[Drawn | Exception]:
    """Return what `draw` returns or raises for each of several requests, together where it can be.

    Args:
        served: the decision point of all of them.
        asked: requests with their contexts, completed.
        rng: gives the uniforms.

    Returns:
        In order.

    No doctest: it needs a replica; ``tests/service/test_drawing.py`` shows it.
    """
    results: list[Drawn | Exception | None] = [None] * len(asked)
    together: list[tuple[int, Any]] = []
    for place, (request, context) in enumerate(asked):
        try:
            if request.eligible is None and not served.feature_count:
                seen = _encoded(served, context)
                if seen[0] is not None:
                    together.append((place, seen))
                    continue
            results[place] = draw(served, request, context, rng)
        except Exception as error:  # noqa: BLE001 (each is answered by itself)
            results[place] = error
    contexts = [x for _, (x, _) in together]
    try:
        choices = served.replica.policy.decide_many(contexts, rng=rng)
    except Exception:  # noqa: BLE001 (whose fault it is shows when they are drawn one by one)
        for place, seen in together:
            try:
                results[place] = _draw(served, *asked[place], seen, rng)
            except Exception as error:  # noqa: BLE001 (each is answered by itself)
                results[place] = error
    else:
        for (place, (x, key)), choice in zip(together, choices, strict=True):
            results[place] = _drawn(choice, served.names, x, key, None)
    return [one for one in results if one is not None]


def _encoded(
    served: Served, context: Mapping[str, Any]
) -> tuple[NDArray[np.float64] | None, str | None]:
    try:
        return encode(served.spec, served.replica.features, context)
    except InputError as error:
        raise Refused.of("invalid", str(error), field="context") from None


def _draw(
    served: Served,
    request: DecideRequest,
    context: Mapping[str, Any],
    encoded: tuple[NDArray[np.float64] | None, str | None],
    rng: np.random.Generator,
) -> Drawn:
    x, key = encoded
    names = served.names if request.eligible is None or not served.open else request.eligible
    rows = _feature_rows(served, request)
    seen: Any = x if x is not None else key if key is not None else context
    try:
        choice = served.replica.policy.decide(
            seen, rng=rng, eligible=request.eligible, features=rows
        )
    except ActionError as error:
        raise Refused.of("invalid", str(error), field="eligible") from None
    except InputError as error:
        raise Refused.of("invalid", str(error)) from None
    if rows is not None:
        x = rows[list(request.eligible or served.names).index(choice.action)]
    return _drawn(choice, names, x, key, rows)


def _drawn(
    choice: Choice,
    names: Sequence[str],
    x: NDArray[np.float64] | None,
    key: str | None,
    rows: NDArray[np.float64] | None,
) -> Drawn:
    return Drawn(
        choice.action,
        choice.propensity,
        names,
        choice.distribution,
        x,
        key,
        rows,
        choice.u,
        degraded=False,
    )


def fall_back(served: Served, request: DecideRequest, context: Mapping[str, Any]) -> Drawn:
    """Return the declared fallback's answer.

    Args:
        served: the decision point.
        request: what is asked.
        context: its context, whether it is as declared or not.

    Returns:
        Probability 1 for one action, marked as degraded.

    No doctest: it needs a replica; ``tests/service/test_drawing.py`` shows it.
    """
    action = served.fall_back(context, request.eligible)
    return Drawn(action, 1.0, (action,), np.ones(1), None, None, None, None, degraded=True)


def to_row(
    drawn: Drawn,
    served: Served,
    tenant: UUID,
    request: DecideRequest,
    context: dict[str, Any],
    *,
    at: float,
    body_hash: bytes | None,
    traceparent: str | None,
    label: Label = PLAIN,
    identifier: UUID | None = None,
) -> DecisionRow:
    """Return the row of a draw.

    Args:
        drawn: the draw.
        served: the decision point, as whoever drew serves it.
        tenant: whose it is.
        request: what was asked.
        context: its context, completed.
        at: when, in seconds since 1970.
        body_hash: of the request, where it has a key.
        traceparent: W3C trace context.
        label: what it says of a rollout.
        identifier: of the decision; None: a new one.

    Returns:
        The row.

    No doctest: it needs a replica; ``tests/service/test_drawing.py`` shows it.
    """
    replica = served.replica
    moment = datetime.fromtimestamp(at, UTC)
    return DecisionRow(
        tenant=tenant,
        id=identifier or new_id(at),
        skill=request.skill,
        point=request.decision,
        episode=request.episode_id,
        parent=request.parent_id,
        unit=request.unit,
        rollout=label.rollout,
        stage=label.stage,
        arm=label.arm,
        snapshot=replica.snapshot,
        update_seq=replica.seq,
        spec_hash=replica.row.spec_hash,
        feature_hash=replica.row.feature_hash,
        context=context,
        # A fallback's distribution is over its one action, whatever else was eligible.
        eligible=list(drawn.names) if drawn.degraded else request.eligible,
        distribution=drawn.distribution.astype(np.float32).tolist(),
        action=drawn.action,
        p=drawn.p,
        p_kind="fallback" if drawn.degraded else "exact",
        x=None if drawn.x is None else drawn.x.tolist(),
        key=drawn.key,
        features=None if drawn.features is None else drawn.features.ravel().tolist(),
        u=drawn.u,
        degraded=drawn.degraded,
        weight=0.0 if drawn.degraded else 1.0,
        idempotency_key=request.idempotency_key,
        body_hash=body_hash,
        traceparent=traceparent,
        at=moment,
        window_ends=moment + served.window,
    )


def to_answer(
    row: DecisionRow, names: Sequence[str], *, logged: bool | str, record: str | None = None
) -> Decision:
    """Return the answer that a row stands for; the same row gives the same answer for ever.

    Args:
        row: the decision.
        names: what its distribution is over: `over`.
        logged: true, "unknown" or false.
        record: the signed row, unless it is stored.

    Returns:
        The answer, with the probabilities of the eligible actions.

    No doctest: it needs a row; ``tests/service/test_drawing.py`` shows it.
    """
    distribution = dict(zip(names, row.distribution, strict=True))
    if row.eligible is not None and len(row.eligible) < len(distribution):
        distribution = {name: distribution[name] for name in row.eligible}
    if row.p is not None:
        distribution[row.action] = row.p
    return Decision(
        row.id,
        row.action,
        row.p or 0.0,
        distribution,
        row.snapshot,
        row.update_seq,
        row.stage,
        row.arm,
        logged,  # type: ignore[arg-type]
        row.degraded,
        record,
    )


def over(row: DecisionRow, spec: DecisionPoint) -> Sequence[str]:
    """Return the actions that a row's distribution is over.

    Args:
        row: the decision.
        spec: the declaration it was made under.

    Returns:
        The declared names; the eligible ones where candidates are open or the fallback answered.

    No doctest: it needs a row; ``tests/service/test_drawing.py`` shows it.
    """
    if row.eligible is not None and (row.degraded or getattr(spec.actions, "open", False)):
        return row.eligible
    return tuple(getattr(spec.actions, "names", ()))


def _feature_rows(served: Served, request: DecideRequest) -> NDArray[np.float64] | None:
    """Return (n, d) features of the eligible actions, in their order, rounded as stored."""
    if not served.feature_count:
        if request.features is not None:
            raise Refused.of("invalid", "this point declares no features", field="features")
        return None
    names = request.eligible or served.names
    given = request.features or {}
    missing = [name for name in names if name not in given]
    if missing:
        detail = f"no features for {missing[:3]}; give {served.feature_count} numbers for each"
        raise Refused.of("invalid", detail, field="features")
    wrong = [name for name in names if len(given[name]) != served.feature_count]
    if wrong:
        detail = f"{wrong[0]!r} has {len(given[wrong[0]])} numbers, declared are "
        raise Refused.of("invalid", f"{detail}{served.feature_count}", field="features")
    try:
        return rounded([given[name] for name in names])
    except InputError as error:
        raise Refused.of("invalid", str(error), field="features") from None


def _holds(rule: Any, context: Mapping[str, Any]) -> bool:
    try:
        return bool(rule(context))
    except InputError:
        return False  # a rule that cannot read this context does not hold
