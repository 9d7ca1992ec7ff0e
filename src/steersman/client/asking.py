"""From what an application asks to what is sent, and the answer it gives itself in need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any
from uuid import UUID

from steersman import wire
from steersman.client.items import Item
from steersman.errors import InputError

_MOST_BODY_BYTES = 16 << 20
_MOST_DEADLINE_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One question of a batch; the arguments are those of `Client.decide`.

    Attributes:
        skill: the application capability.
        decision: the decision point within it.
        context: what is known, by declared field name; JSON values.
        eligible: the actions allowed for this request; None: all that are declared.
        features: one list of numbers per eligible action.
        episode: what this decision belongs to with others.
        unit: what must stay on one arm of a rollout.
        default: the action to take when no service answers; None: raise then.
        parent: the decision this one follows from.
        links: of a sequence: by candidate, the candidates that picking it brings in.
    """

    skill: str
    decision: str
    context: Mapping[str, Any] = field(default_factory=dict)
    eligible: Sequence[str] | None = None
    features: Mapping[str, Sequence[float]] | None = None
    episode: str | None = None
    unit: str | None = None
    default: str | Sequence[str] | None = None
    parent: wire.Decision | UUID | str | None = None
    links: Mapping[str, Sequence[str]] | None = None

    def __post_init__(self) -> None:
        given: object = self.context
        if not isinstance(given, Mapping):
            kind = type(given).__name__
            raise InputError(f"context must be a mapping from field names to values, got {kind}")
        self._check_lists()
        if self.links is not None and isinstance(self.default, str):
            raise InputError(
                f"links are given, so default must be a list of picks, got {self.default!r:.80}"
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
        """Refuse what is no list in place of one; texts would be lists of their letters."""
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
        # It is used when no service answers: a mistake must not wait for that.
        if default is not None and not all(isinstance(pick, str) for pick in picks):
            raise InputError(f"default must be an action or a list of picks, got {default!r:.80}")


def _is_list(given: object) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str)


def request_of(ask: Ask, timeout_s: float) -> wire.DecideRequest:
    """Return the message for ``ask``, with an idempotency key of its own.

    The service is given a third of the time, so that an answer past its deadline, which is good if
    not yet logged, still arrives within the first try.
    """
    return wire.DecideRequest(
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
        idempotency_key=str(wire.new_id()),
    )


def encode(message: Any, **parts: Any) -> bytes:
    """Return a message as JSON, refusing what JSON cannot say or the service will not read.

    Args:
        message: a request or event.
        parts: of it, by name, those that hold the application's own values.

    Returns:
        The body.

    Raises:
        InputError: a type, a number or a text that cannot be sent.
    """
    for name, value in parts.items():
        # msgspec would write null, which is another statement.
        if place := _not_finite(value, name):
            raise InputError(f"{place} is not finite; leave it out if it is unknown")
    try:
        body = wire.write(message)
        wire.read(body, max_bytes=_MOST_BODY_BYTES)
    except (TypeError, ValueError, RecursionError, wire.Refused) as error:
        raise InputError(
            f"{', '.join(parts)} cannot be sent as JSON: {error}; use strings, numbers, bools, "
            "None, lists and mappings (convert numpy values with .tolist())"
        ) from error
    return body


def answer_locally(ask: Ask) -> tuple[wire.Decision, Item]:
    """Return the decision for the default action, and the record that makes it known later."""
    if ask.default is None:
        raise InputError("no answer of the service and no default")
    identifier = wire.new_id()
    picked = None if isinstance(ask.default, str) else list(ask.default)
    action = ask.default if isinstance(ask.default, str) else wire.selection_name(ask.default)
    decision = wire.Decision(
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
    record = wire.LocalDecision(
        decision_id=identifier,
        skill=ask.skill,
        decision=ask.decision,
        action=action,
        context=dict(ask.context),
        episode_id=ask.episode,
        parent_id=None if ask.parent is None else decision_id(ask.parent),
        unit=ask.unit,
    )
    return decision, Item("record", str(identifier), wire.write(record))


def _parts(default: str | Sequence[str]) -> dict[str, Any] | None:
    """Return the parts of a default that is a mixed action, as the service would; or None."""
    if not isinstance(default, str) or not default.startswith("{"):
        return None
    try:
        parts = wire.read(default.encode())
    except (UnicodeEncodeError, wire.Refused):
        return None
    return parts if isinstance(parts, dict) else None


def _has_parts_of(default: str | Sequence[str], eligible: Sequence[str]) -> bool:
    """Return whether a mixed action has the parts that one of the eligible names asks for."""
    parts = _parts(default) or {}
    wanted = [_parts(name) for name in eligible] if parts else []
    return any(some and some.items() <= parts.items() for some in wanted)


def signed_record(decision: wire.Decision) -> Item | None:
    """Return what must be delivered later for a decision that may not be stored, if anything."""
    if decision.record is None:
        return None
    return Item("record", str(decision.decision_id), wire.write(decision.record))


def decision_id(decision: wire.Decision | UUID | str) -> UUID:
    """Return the id of a decision, given as itself, as a UUID or as text."""
    if isinstance(decision, wire.Decision):
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
