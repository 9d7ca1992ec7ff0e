"""Assignment of units to arms: a pure function of unit, salt, stage and share.

A unit has a fixed position between 0 and 1 during a rollout. The candidate takes a growing interval
from the left, the analysed control an equal interval from the right. Control also serves the units
between; they enter no analysis. So no unit changes its analysed arm when the share grows, and both
arms have the same expected size at every step.

::

    canary, 5 %    |cc|                                                   |kk|
    ab, 25 %       |ccccccccccccccc|                       |kkkkkkkkkkkkkkkkk|
    ab, 50 %       |cccccccccccccccccccccccccccc|kkkkkkkkkkkkkkkkkkkkkkkkkkkk|
    live, 95 %     |CCcccccccccccccccccccccccccccccccccccccccccccccccccccc|KK|   analysed: C, K
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple

from steersman.errors import InputError

if TYPE_CHECKING:
    from steersman.rollouts.plan import StageName

Arm = Literal["candidate", "control"]

_STAGES = ("shadow", "canary", "ab", "live")


class Placement(NamedTuple):
    """Arm of a unit, and whether the unit is analysed.

    Attributes:
        arm: serving arm: ``candidate`` or ``control``.
        analysed: whether its decisions belong to the rollout. In shadow all do: control serves
            them, and the candidate is computed beside it.
    """

    arm: Arm
    analysed: bool


def position(salt: str, unit: str) -> float:
    """Return the place of a unit on the line from 0 to below 1.

    The first eight bytes of SHA-256 over salt, a zero byte and unit, as a fraction of 2^64: uniform
    over units, the same on every machine, and unrelated between rollouts, whose salts differ.

    Args:
        salt: Any text without a zero byte; one per rollout.

    Returns:
        A float in [0, 1).

    Raises:
        InputError: The salt holds a zero byte, so that two pairs could meet in one text.

    Example:
        >>> round(position("r1", "user-7"), 6), round(position("r2", "user-7"), 6)
        (0.845453, 0.017824)
    """
    if "\0" in salt:
        message = (
            f"invalid salt {salt!r:.60}: expected text without a zero byte; use the rollout's salt"
        )
        raise InputError(message)
    digest = sha256(f"{salt}\0{unit}".encode("utf-8", "surrogatepass")).digest()
    # 53 bits, as many as a float64 holds below 1: all 64 could round up to 1 itself.
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)


def place(h: float, stage: StageName, share: float, holdback: float = 0.0) -> Placement:
    """Return the arm of the unit that stands at ``h``.

    Args:
        h: From `position`, in [0, 1).
        share: Share of units that the candidate serves, in [0, 0.5]; used in canary and ab.
        holdback: Share of units that stay on control at ``live``, in [0, 0.5].

    Raises:
        InputError: A number outside its range or a stage that is none.

    Example:
        >>> [place(h, "canary", 0.05).arm for h in (0.01, 0.5, 0.99)]
        ['candidate', 'control', 'control']
        >>> [place(h, "live", 0.95, 0.05) for h in (0.01, 0.5, 0.99)][1]
        Placement(arm='candidate', analysed=False)
    """
    if stage not in _STAGES:
        message = f"invalid stage {stage!r}: allowed are {', '.join(_STAGES)}; use the plan's stage"
        raise InputError(message)
    if not 0.0 <= h < 1.0:
        message = f"invalid h {h!r}: expected 0 <= h < 1; compute it with position()"
        raise InputError(message)
    if stage == "shadow":
        return Placement("control", analysed=True)
    # At live only pieces of the size of the holdback are compared, so that arms stay equal.
    piece = _half(holdback, "holdback") if stage == "live" else _half(share, "share")
    served = 1.0 - piece if stage == "live" else piece
    return Placement(
        "candidate" if h < served else "control", analysed=h < piece or h >= 1.0 - piece
    )


def _half(share: float, name: str) -> float:
    if not 0.0 <= share <= 0.5:
        message = (
            f"invalid {name} {share!r}: expected 0 to 0.5, because both arms have the same size"
        )
        raise InputError(message)
    return share
