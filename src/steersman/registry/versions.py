"""Versions, decided by what changed: more data, other parameters, or another algorithm."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.spec import DecisionPoint

Change = Literal["patch", "minor", "major"]
_ORDER: tuple[Change, ...] = ("patch", "minor", "major")
_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})", re.ASCII)
FIRST = "0.1.0"


class Version(NamedTuple):
    """A version in its order; ``str`` gives it back.

    >>> str(max(Version.of("0.9.0"), Version.of("0.10.0")))
    '0.10.0'
    """

    major: int
    minor: int
    patch: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the version that a text names.

        Args:
            text: three whole numbers below 10^9 with dots, as in ``"0.12.3"``.

        Raises:
            InputError: anything else.
        """
        found = _VERSION.fullmatch(text)
        if found is None:
            message = f"invalid version {text!r:.80}: expected MAJOR.MINOR.PATCH, such as 0.1.0"
            raise InputError(message)
        return cls(*map(int, found.groups()))

    def after(self, change: Change) -> Self:
        """Return the next version after a change.

        Args:
            change: ``"patch"``, ``"minor"`` or ``"major"``.
        """
        parts = {
            "patch": (self.major, self.minor, self.patch + 1),
            "minor": (self.major, self.minor + 1, 0),
            "major": (self.major + 1, 0, 0),
        }
        return type(self)(*parts[change])

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True)
class Ingredients:
    """What a state depends on beside the data that it learned from.

    Args:
        algorithm: as the policy names it.
        parameters: everything else, in any shape that can be compared: parameters of the policy,
            context and its encoding, actions, floor.
        version: of the snapshot that has them; None: the highest that is taken.
    """

    algorithm: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    version: str | None = None

    @classmethod
    def of(cls, spec: DecisionPoint, version: str | None = None) -> Self:
        """Return the ingredients that a spec declares.

        Rewards, gates and stages are none of them: they decide what is learned, not what a state
        is.

        Args:
            spec: of one decision point.
            version: of the snapshot that has them, if there is one.

        >>> from steersman.spec import loads
        >>> spec = loads('''
        ... format: 1
        ... skill: assistant
        ... decision: route
        ... actions: {kind: choice, names: [micro, planner]}
        ... policy: {algorithm: lin_ucb, alpha: 0.5}
        ... floor: 0.02
        ... fallback: {otherwise: planner}
        ... reward: {terms: {success: {weight: 1.0}}}
        ... ''')
        >>> wider = spec.model_copy(update={"floor": 0.1})
        >>> next_version(Ingredients.of(spec, "0.1.4"), Ingredients.of(wider), ["0.1.4"])
        '0.2.0'
        """
        parts = spec.model_dump(mode="json", include={"context", "actions", "policy", "floor"})
        bucket_s = getattr(spec.learning, "bucket_s", None)
        return cls(str(spec.policy.algorithm), {**parts, "bucket_s": bucket_s}, version)


def change_between(before: Ingredients, after: Ingredients) -> Change:
    """Return what kind of change lies between two snapshots.

    Args:
        before: of the earlier one.
        after: of the later one.

    Returns:
        ``"major"`` for another algorithm, ``"minor"`` for anything else that differs, ``"patch"``
        for more data.

    >>> change_between(Ingredients("lin_ts", {"dim": 64}), Ingredients("lin_ts", {"dim": 128}))
    'minor'
    """
    if before.algorithm != after.algorithm:
        return "major"
    return "minor" if dict(before.parameters) != dict(after.parameters) else "patch"


def next_version(
    before: Ingredients | None,
    after: Ingredients,
    taken: Iterable[str],
    *,
    least: Change = "patch",
) -> str:
    """Return the version that a new snapshot gets.

    Args:
        before: of the snapshot that it comes from; None for the first of a decision point.
        after: its own.
        taken: every version that the decision point ever had, also retracted ones.
        least: smallest step, ``"minor"`` for a state that was relearned from a changed log.

    Returns:
        A version that is not taken: the next after ``before``'s, or, where that one is taken, the
        next of its kind that is free.

    Raises:
        InputError: something taken is no version.

    >>> old = Ingredients("lin_ts", {"dim": 64}, "0.1.0")
    >>> next_version(old, old, ["0.1.0", "0.1.1"])
    '0.1.2'
    >>> next_version(old, Ingredients("lin_ucb", {"dim": 64}), ["0.1.0"])
    '1.0.0'

    Source:
        Preston-Werner, Semantic Versioning 2.0.0, with its three kinds read as in the summary.
    """
    known = {Version.of(text) for text in taken}
    if before is None:
        change: Change = "minor"
        candidate = max(known).after(change) if known else Version.of(FIRST)
    else:
        change = max(change_between(before, after), least, key=_ORDER.index)
        start = (
            Version.of(before.version) if before.version else max(known, default=Version(0, 0, 0))
        )
        candidate = start.after(change)
    while candidate in known:
        candidate = candidate.after(change)
    return str(candidate)
