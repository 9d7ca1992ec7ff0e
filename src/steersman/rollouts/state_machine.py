r"""Transition table of a rollout: the legal actions of each status and the next status.

::

     status        start     pause   resume    promote               rollback       freeze
     ────────────  ────────  ──────  ────────  ────────────────────  ─────────────  ───────────
     (none)        running   –       –         –                     –              –
     running       –         paused  –         running; promoted *   rolled_back †  paused
     paused        –         –       running   –                     rolled_back †  paused ‡
     promoted      –         –       ‡         –                     rolled_back    promoted ‡
     rolled_back   –         –       ‡         –                     –              rolled_back ‡
     aborted       –         –       ‡         –                     –              –

\* ``promote`` moves to the next stage; on the last one it ends the rollout. † ``aborted`` if
the candidate has not served a request yet. ‡ A frozen decision point serves one state until it
is resumed: ``freeze`` is legal unless the point is frozen, ``resume`` only if it is.
"""

from __future__ import annotations

from typing import Literal, get_args
from unicodedata import category

from steersman.errors import ActionNotAllowedError, InputError

_LONGEST = 500
_NEVER = frozenset({"Cc", "Zl", "Zp"})
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def checked_reason(reason: str, *, name: str = "reason") -> str:
    """Return a reason without surrounding spaces.

    Control characters are refused, because a terminal would not show them in the audit log.

    Raises:
        InputError: empty, too long, several lines, or control characters.

    >>> checked_reason(" the latency alert ")
    'the latency alert'
    """
    shown = reason.strip()
    if not 1 <= len(shown) <= _LONGEST:
        message = f"the {name} has {len(shown)} characters; allowed are 1 to {_LONGEST}"
        raise InputError(message + "; give a reason for the audit log")
    bad = next((it for it in shown if category(it) in _NEVER or it in _TURNING), None)
    if bad is not None:
        message = f"the {name} has the character {bad!a}; allowed is one line of plain text"
        raise InputError(message + "; remove it")
    return shown


Status = Literal["running", "paused", "promoted", "rolled_back", "aborted"]
Action = Literal["start", "pause", "resume", "promote", "rollback", "freeze"]

STATUSES: tuple[Status, ...] = get_args(Status)
ACTIONS: tuple[Action, ...] = get_args(Action)

UNDER_WAY: frozenset[Status] = frozenset({"running", "paused"})
"""Active statuses: a candidate may serve, and no other rollout may start."""

_NEXT: dict[tuple[Status | None, Action], Status] = {
    (None, "start"): "running",
    ("running", "pause"): "paused",
    ("running", "promote"): "running",
    ("running", "rollback"): "rolled_back",
    ("running", "freeze"): "paused",
    ("paused", "resume"): "running",
    ("paused", "rollback"): "rolled_back",
    ("paused", "freeze"): "paused",
    ("promoted", "rollback"): "rolled_back",
    ("promoted", "freeze"): "promoted",
    ("rolled_back", "freeze"): "rolled_back",
}


def legal_actions(status: Status | None, *, frozen: bool = False) -> tuple[Action, ...]:
    """Return the actions that are allowed now.

    Args:
        status: status of the rollout; None before its start.

    >>> legal_actions("running")
    ('pause', 'promote', 'rollback', 'freeze')
    """
    return tuple(action for action in ACTIONS if _after(status, action, frozen) is not None)


def next_of(
    status: Status | None,
    action: Action,
    *,
    last: bool = False,
    served: bool = True,
    frozen: bool = False,
) -> Status:
    r"""Return the status of a rollout after an action.

    Args:
        status: present status; None before its start.

    Raises:
        ActionNotAllowedError: action not allowed now; the message names the allowed ones.

    Example:
        >>> next_of("running", "promote"), next_of("running", "promote", last=True)
        ('running', 'promoted')
        >>> next_of("promoted", "pause")
        Traceback (most recent call last):
        steersman.errors.ActionNotAllowedError: pause is not allowed for a rollout with ...
    """
    after = _after(status, action, frozen)
    if after is None:
        legal = ", ".join(legal_actions(status, frozen=frozen)) or "nothing; start another rollout"
        said = f"a rollout with status {status}" if status else "a rollout that was not started"
        message = f"{action} is not allowed for {said}; allowed now: {legal}"
        raise ActionNotAllowedError(message)
    if action == "promote" and last:
        return "promoted"
    return "aborted" if action == "rollback" and not served else after


def _after(status: Status | None, action: Action, frozen: bool) -> Status | None:  # noqa: FBT001
    if action == "freeze" and frozen:
        return None
    if action == "resume" and frozen and status is not None and status not in UNDER_WAY:
        return status
    return _NEXT.get((status, action))
