"""Draw of a selection: from a request's candidates to the row with its picks."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from steersman.errors import InputError
from steersman.points.feature_encoding import as_stored, encode, rounded
from steersman.policies.offered import Offered, offered_names
from steersman.serving.pending_decision import PendingDecision
from steersman.wire import Refused, selection_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from steersman.policies.sequential import SequencePolicy
    from steersman.serving.draw import ServedPoint
    from steersman.serving.pending_decision import PointRequest
    from steersman.spec.actions import Sequence as SequenceActions
    from steersman.wire import DecideRequest


def draw_selection(
    served: ServedPoint, asked: PointRequest, rng: np.random.Generator
) -> PendingDecision:
    """Return a selection from the candidates of a request.

    Raises:
        Refused: no candidates, too many or repeated ones, missing or non-finite features, links of
            unknown candidates, or an invalid context.
    """
    spec, request = served.spec, asked.request
    offered = offered_in(request, cast("SequenceActions", spec.actions))
    try:
        encode(spec, served.replica.features, asked.context)
    except InputError as error:
        raise Refused.of("invalid", str(error), field="context") from None
    policy = cast("SequencePolicy", served.replica.policy)
    try:
        found = policy.select(offered, rng=rng)
        x = rounded(found.x)
    except InputError as error:
        raise Refused.of("invalid", str(error), field="features") from None
    return PendingDecision(
        asked,
        served,
        selection_name(found.picked),
        found.propensity,
        np.concatenate(found.distributions).astype(np.float32).tolist(),
        eligible=request.eligible,
        x=as_stored(x),
        features=as_stored(offered.rows),
        links=request.links,
        steps=[
            {"eligible": list(step.eligible), "action": step.action, "p": step.p}
            for step in found.steps
        ],
    )


def first_candidates(eligible: Sequence[str] | None, actions: SequenceActions) -> str:
    """Return the fallback's selection: the first candidates in the order of the request.

    >>> from steersman.spec.actions import Sequence
    >>> first_candidates(["a", "b", "c"], Sequence(kind="sequence", max_steps=2))
    '["a","b"]'
    """
    return selection_name(list(dict.fromkeys(eligible or ()))[: actions.max_steps])


def offered_in(request: DecideRequest, actions: SequenceActions) -> Offered:
    """Return the candidates of a request, with features rounded as stored.

    Raises:
        Refused: see `draw_selection`.
    """
    if not request.eligible:
        detail = "no candidates; give the initial candidates in eligible, one or more"
        raise Refused.of("invalid", detail, field="eligible")
    _check_count(len(request.eligible), actions)  # before any work per candidate
    try:
        names = offered_names(request.eligible, request.links)
    except InputError as error:
        raise Refused.of("invalid", str(error), field="eligible") from None
    _check_count(len(names), actions)
    return Offered.of(request.eligible, request.links, _rows(request, names, actions))


def _check_count(count: int, actions: SequenceActions) -> None:
    if count > actions.candidates:
        detail = f"{count} candidates; at most {actions.candidates} are declared; send fewer"
        raise Refused.of("invalid", detail, field="eligible")


def _rows(
    request: DecideRequest, names: Sequence[str], actions: SequenceActions
) -> NDArray[np.float64]:
    width, given = len(actions.features) + actions.vector, request.features or {}
    if not width and request.features is None:
        return np.zeros((len(names), 0))
    missing = [name for name in names if name not in given]
    if missing:
        detail = (
            f"missing features for {missing[:3]!r:.200}; give {width} numbers for each candidate"
        )
        raise Refused.of("invalid", detail, field="features")
    if len(given) > len(names):
        extra = sorted(set(given) - set(names))
        detail = (
            f"features are given for {extra[:3]!r:.200}, which are not candidates; add them to "
            "eligible or links"
        )
        raise Refused.of("invalid", detail, field="features")
    wrong = [name for name in names if len(given[name]) != width]
    if wrong:
        detail = (
            f"{wrong[0]!r:.80} has {len(given[wrong[0]])} numbers; expected {width}: "
            f"{len(actions.features)} features and a vector of {actions.vector}"
        )
        raise Refused.of("invalid", detail, field="features")
    try:
        return rounded([given[name] for name in names])
    except InputError as error:
        raise Refused.of("invalid", str(error), field="features") from None
