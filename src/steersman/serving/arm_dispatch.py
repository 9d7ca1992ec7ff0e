"""Draws during a rollout: each arm draws for its units; control replaces a failing candidate.

An exception of the candidate never affects its unit: control draws instead, the row records it, and
it is counted and logged.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from steersman.serving.arms import PLAIN, unit_of
from steersman.serving.draw import draw_many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    import numpy as np

    from steersman.serving.arms import Arms, Drawn, Label, Turn
    from steersman.serving.draw import Served
    from steersman.wire import DecideRequest

    Asked: TypeAlias = Sequence[tuple[DecideRequest, dict[str, Any]]]
    OnArm: TypeAlias = Callable[[str, str, str, str, float], None]
    Draws: TypeAlias = "dict[int, Drew | Exception]"

_log = logging.getLogger(__name__)


class Drew(NamedTuple):
    """Draw with its arm.

    Attributes:
        drawn: the draw.
        served: policy that drew.
        label: rollout labels of the row.
        stored: whether the row is stored.
        arm: assigned arm: control or candidate; empty without a rollout.
    """

    drawn: Drawn
    served: Served
    label: Label = PLAIN
    stored: bool = True
    arm: str = ""


def take_turns(
    arms: Arms[Served],
    asked: Asked,
    identifiers: Sequence[UUID],
    *,
    rng: np.random.Generator,
    control: Callable[[Asked], Sequence[Drew | Exception]],
    on_arm: OnArm,
) -> list[Drew | Exception]:
    """Return the draws of the assigned arms.

    Args:
        on_arm: callback with skill, point, arm, result and seconds of each draw, as `Metrics.arm`.
    """
    turns = [
        arms.turn(unit_of(request, identifier))
        for (request, _), identifier in zip(asked, identifiers, strict=True)
    ]
    drew, errors = _candidate_draws(arms, asked, turns, rng, on_arm)
    rest = [n for n in range(len(asked)) if n not in drew]
    begun = time.perf_counter()
    results = control([asked[n] for n in rest]) if rest else []
    seconds = (time.perf_counter() - begun) / max(1, len(rest))
    for n, result in zip(rest, results, strict=True):
        if isinstance(result, Exception):
            drew[n] = result
            continue
        drew[n] = result._replace(label=turns[n].fallen, arm=turns[n].arm)
        if turns[n].arm == "control":
            answered = "failed" if result.drawn.degraded else "ok"
            on_arm(arms.row.skill, arms.row.point, "control", answered, seconds)
        elif asked[n][0].eligible != []:
            _tell(arms, errors.get(n), on_arm)
    return [drew[n] for n in range(len(asked))]


def _candidate_draws(
    arms: Arms[Served],
    asked: Asked,
    turns: Sequence[Turn[Served]],
    rng: np.random.Generator,
    on_arm: OnArm,
) -> tuple[Draws, dict[int, Exception]]:
    """Return the candidate's draws and errors by position."""
    drew: Draws = {}
    errors: dict[int, Exception] = {}
    own = [n for n, turn in enumerate(turns) if turn.served is not None]
    candidate = arms.candidate
    if not own or candidate is None:
        return drew, errors
    begun = time.perf_counter()
    results = draw_many([(candidate, *asked[n]) for n in own], rng)
    seconds = (time.perf_counter() - begun) / len(own)
    for n, result in zip(own, results, strict=True):
        if isinstance(result, Exception):
            errors[n] = result
        elif not result.degraded:  # else nothing was eligible: control says the same
            drew[n] = Drew(result, candidate, turns[n].label, arm="candidate")
            on_arm(arms.row.skill, arms.row.point, "candidate", "ok", seconds)
    return drew, errors


def _tell(arms: Arms[Served], error: Exception | None, on_arm: OnArm) -> None:
    """Count a draw that control took over; log the 1st, 2nd, 4th, 8th and so on."""
    row = arms.row
    on_arm(row.skill, row.point, "candidate", "fallback" if error is None else "failed", 0.0)
    arms.failures += 1
    if arms.failures & (arms.failures - 1) == 0:
        why = "it is not loaded" if error is None else repr(error)
        message = "control draws for candidate %s of %s/%s, %d times so far: %s"
        _log.error(message, row.candidate, row.skill, row.point, arms.failures, why)
