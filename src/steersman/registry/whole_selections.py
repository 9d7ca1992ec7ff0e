"""A logged selection weighed as a whole: how likely a policy draws it, and what the log lacks."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import ActionError
from steersman.policies import Progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.policies import Offered, SequencePolicy


class Whole(NamedTuple):
    """What a policy would have done where a selection was logged.

    Attributes:
        mass: with which probability it draws the whole selection.
        missing: an unbiased estimate, from this one, of the probability that it leaves what the
            log could draw at some step: Σ_t ρ_{t-1} u_t, with the weights ρ of the steps before
            and its mass u_t on what was not eligible at step t.
    """

    mass: float
    missing: float


def weigh_whole(
    policy: SequencePolicy, offered: Offered, steps: Sequence[Mapping[str, Any]]
) -> Whole:
    """Return a logged selection as another policy would have drawn it.

    Args:
        policy: in question.
        offered: by the request.
        steps: as they are stored: what was eligible, what was done, with which probability.

    Returns:
        No mass where it could not have done this, or would have gone on.

    >>> import numpy as np
    >>> from steersman.policies import Offered, SequenceLinear
    >>> policy = SequenceLinear(features=["score"], max_steps=1, stop=False)
    >>> offered = Offered.of(["a", "b", "c", "d"], None, np.zeros((4, 1)))
    >>> weigh_whole(policy, offered, [{"eligible": ["a", "b", "c"], "action": "a", "p": 0.4}])
    Whole(mass=0.25, missing=0.25)
    """
    progress, done = Progress(offered, policy.form), []
    with suppress(ActionError):  # it goes with the log as far as it can
        for step in steps:
            progress.take(progress.place(step["action"]))
            done.append(step["action"])
    mass, missing, weight = 1.0, 0.0, 1.0
    for step, foreseen in zip(steps, policy.along(offered, done), strict=False):
        known = frozenset(step["eligible"])
        chances = zip(foreseen.eligible, foreseen.distribution.tolist(), strict=True)
        missing += weight * math.fsum(chance for name, chance in chances if name not in known)
        weight *= foreseen.chance / step["p"]
        mass *= foreseen.chance
    return Whole(mass if progress.ended and len(done) == len(steps) else 0.0, missing)
