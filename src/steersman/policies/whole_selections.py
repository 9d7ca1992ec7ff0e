"""Weight of a logged selection as a whole: its probability under another policy."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import ActionError
from steersman.policies.offered import Progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from steersman.policies.offered import Offered
    from steersman.policies.sequential import SequencePolicy


class Whole(NamedTuple):
    """Probability of a logged selection under a policy.

    Attributes:
        mass: probability of the whole selection.
        missing: unbiased estimate of the probability that the policy takes an action the log could
            not draw: Σ_t ρ_{t-1} u_t, with the weights ρ of the steps before, and u_t its
            probability of actions that were not eligible at step t.
    """

    mass: float
    missing: float


def weigh_whole(
    policy: SequencePolicy, offered: Offered, steps: Sequence[Mapping[str, Any]]
) -> Whole:
    """Return the probability of a logged selection under another policy.

    Args:
        policy: target policy.
        offered: candidates of the request.
        steps: stored steps: eligible actions, chosen action, propensity.

    Returns:
        The probability; 0 if the policy cannot draw this selection or would continue.

    >>> import numpy as np
    >>> from steersman.policies.offered import Offered
    >>> from steersman.policies import SequenceLinear
    >>> policy = SequenceLinear(features=["score"], max_steps=1, stop=False)
    >>> offered = Offered.of(["a", "b", "c", "d"], None, np.zeros((4, 1)))
    >>> weigh_whole(policy, offered, [{"eligible": ["a", "b", "c"], "action": "a", "p": 0.4}])
    Whole(mass=0.25, missing=0.25)
    """
    progress, done = Progress(offered, policy.form), []
    with suppress(ActionError):  # follow the log as far as possible
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
