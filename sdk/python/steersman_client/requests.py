"""Decide requests, and local answers with the default action."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec

from steersman_client.errors import InputError
from steersman_client.items import Item
from steersman_client.messages import (
    DecideRequest,
    Decision,
    LocalDecision,
    new_id,
    selection_name,
    write,
)
from steersman_client.strict_json import read

_MOST_DEADLINE_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a batch; the arguments are those of `Client.decide`.

    Attributes:
        skill: skill of the decision point.
        decision: name of the decision point.
        context: context by declared field name; JSON values.
        eligible: eligible actions; None: all declared actions.
        features: list of numbers per eligible action.
        episode: episode of the decision.
        unit: unit that stays on one arm of a rollout.
        default: action if no service answers; None: raise an error.
        parent: decision that this one follows.
        links: for a sequence, the candidates that a pick adds, by candidate.
    """

    skill: str
    decision: str
    context: Mapping[str, Any] = field(default_factory=dict)
    eligible: Sequence[str] | None = None
    features: Mapping[str, Sequence[float]] | None = None
    episode: str | None = None
    unit: str | None = None
    default: str | Sequence[str] | None = None
    parent: Decision | UUID | str | None = None
    links: Mapping[str, Sequence[str]] | None = None

    def __post_init__(self) -> None:
        given: object = self.context
        if not isinstance(given, Mapping):
            kind = type(given).__name__
            raise InputError(f"context must be a mapping from field names to values, got {kind}")
        self._check_lists()
        if self.links is not None and isinstance(self.default, str):
            raise InputError(
                f"links are given, so default must be a list of picks, got {self.default!r:.80}; "
                "give the list to use if no service answers"
            )
        if self.default is None or self.eligible is None or not len(self.eligible):
            return
        chosen = [self.default] if isinstance(self.default, str) else self.default
        known = {*self.eligible, *(name for names in (self.links or {}).values() for name in names)}
        if not known.issuperset(chosen) and not _has_parts_of(self.default, self.eligible):
            raise InputError(
                f"default must be one of the eligible actions, got {self.default!r}; add it to "
                "eligible, or leave default out"
            )

    def _check_lists(self) -> None:
        """Refuse a string in place of a list; it would be read as a list of letters."""
        features: Any = {} if self.features is None else self.features
        links: Any = {} if self.links is None else self.links
        for what, given in (("features", features), ("links", links)):
            if not isinstance(given, Mapping):
                raise InputError(f"{what} must be a mapping from names to lists, got {given!r:.80}")
        for given in (() if self.eligible is None else self.eligible, *links.values()):
            if not _is_list(given):
                raise InputError(f"eligible and links must hold lists of names, got {given!r:.80}")
        for name, given in features.items():
            if not _is_list(given):
                message = f"features must hold a list of numbers for each name, got {given!r:.80}"
                raise InputError(f"{message} for {name!r:.80}")
        default: Any = self.default
        picks = default if isinstance(default, Collection) else (default,)
        # The default is needed during an outage, so check it now.
        if default is not None and not all(isinstance(pick, str) for pick in picks):
            raise InputError(f"default must be an action or a list of picks, got {default!r:.80}")


def _is_list(given: object) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str)


def request_of(ask: Ask, timeout_s: float) -> DecideRequest:
    """Return the request message with a new idempotency key.

    The service gets a third of the time, so that an answer past its deadline, which is usable
    although not logged yet, still arrives within the first try.
    """
    return DecideRequest(
        skill=ask.skill,
        decision=ask.decision,
        context=dict(ask.context),
        eligible=None if ask.eligible is None else list(ask.eligible),
        features=None if ask.features is None else _plain(ask.features),
        links=None if ask.links is None else {k: list(v) for k, v in ask.links.items()},
        episode_id=ask.episode,
        parent_id=None if ask.parent is None else decision_id(ask.parent),
        unit=ask.unit,
        deadline_ms=min(round(timeout_s * 1000 / 3, 3), _MOST_DEADLINE_MS),
        idempotency_key=str(new_id()),
    )


def encode(message: Any, **parts: Any) -> bytes:
    """Return a message as JSON; refuse values that JSON or the service does not allow.

    Args:
        message: request or event.
        parts: fields with values of the application, by name.

    Raises:
        InputError: a type, number or text that cannot be sent.
    """
    for name, value in parts.items():
        # msgspec would write null, which is another statement.
        if place := _not_finite(value, name):
            raise InputError(f"{place} is not finite; leave it out if it is unknown")
    try:
        body = write(message)
        read(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{', '.join(parts)} cannot be sent as JSON: {error}; use strings, numbers, bools, "
            "None, lists and mappings (convert numpy values with .tolist())"
        ) from error
    return body


def answer_locally(ask: Ask) -> tuple[Decision, Item]:
    """Return a decision with the default action, and its record for later delivery."""
    if ask.default is None:
        raise InputError("no answer of the service and no default")
    identifier = new_id()
    picked = None if isinstance(ask.default, str) else list(ask.default)
    action = ask.default if isinstance(ask.default, str) else selection_name(ask.default)
    decision = Decision(
        decision_id=identifier,
        action=action,
        propensity=1.0,
        distribution={action: 1.0} if picked is None else {},
        snapshot="",
        update_seq=0,
        stage="live",
        arm="control",
        logged=False,
        degraded=True,
        parts=_parts(ask.default),
        picked=picked,
        steps=None if picked is None else [],
    )
    record = LocalDecision(
        decision_id=identifier,
        skill=ask.skill,
        decision=ask.decision,
        action=action,
        context=dict(ask.context),
        episode_id=ask.episode,
        parent_id=None if ask.parent is None else decision_id(ask.parent),
        unit=ask.unit,
    )
    return decision, Item("record", str(identifier), write(record))


def _parts(default: str | Sequence[str]) -> dict[str, Any] | None:
    """Return the parts of a default that is a mixed action, as the service would; else None."""
    if not isinstance(default, str) or not default.startswith("{"):
        return None
    try:
        parts = msgspec.json.decode(default)
    except (ValueError, RecursionError):
        return None
    return parts if isinstance(parts, dict) else None


def _has_parts_of(default: str | Sequence[str], eligible: Sequence[str]) -> bool:
    """Return whether a mixed action has the parts of one of the eligible names."""
    parts = _parts(default) or {}
    wanted = [_parts(name) for name in eligible] if parts else []
    return any(some and some.items() <= parts.items() for some in wanted)


def signed_record(decision: Decision) -> Item | None:
    """Return the record to deliver later if the decision may not be stored."""
    if decision.record is None:
        return None
    return Item("record", str(decision.decision_id), write(decision.record))


def decision_id(decision: Decision | UUID | str) -> UUID:
    """Return the id of a decision."""
    if isinstance(decision, Decision):
        return decision.decision_id
    if isinstance(decision, UUID):
        return decision
    try:
        return UUID(decision)
    except (ValueError, AttributeError, TypeError):
        raise InputError(
            f"invalid decision {decision!r}: expected the result of decide() or its id, a UUID"
        ) from None


def _plain(features: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    # Arrays are what most applications have at hand here.
    return {
        name: numbers.tolist() if hasattr(numbers, "tolist") else list(numbers)
        for name, numbers in features.items()
    }


def _not_finite(value: Any, place: str) -> str:
    if isinstance(value, float):
        return "" if isfinite(value) else place
    inner: Any = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list | tuple):
        inner = enumerate(value)
    for key, one in inner:
        if found := _not_finite(one, f"{place}.{key}"):
            return found
    return ""
