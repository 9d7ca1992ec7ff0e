"""Version numbers of snapshots, by kind of change."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.spec.point import DecisionPoint

Change = Literal["patch", "minor", "major"]
_ORDER: tuple[Change, ...] = ("patch", "minor", "major")
_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})", re.ASCII)
FIRST = "0.1.0"


class Version(NamedTuple):
    """Ordered version number; ``str`` returns the text.

    >>> str(max(Version.of("0.9.0"), Version.of("0.10.0")))
    '0.10.0'
    """

    major: int
    minor: int
    patch: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the version of a text.

        Args:
            text: three whole numbers below 10^9 with dots, as in ``"0.12.3"``.

        Raises:
            InputError: the text is not a version.
        """
        found = _VERSION.fullmatch(text)
        if found is None:
            message = f"invalid version {text!r:.80}: expected MAJOR.MINOR.PATCH, such as 0.1.0"
            raise InputError(message)
        return cls(*map(int, found.groups()))

    def after(self, change: Change) -> Self:
        """Return the next version after a change."""
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
    """Algorithm and parameters of a state: all its inputs except data.

    Args:
        algorithm: algorithm name of the policy.
        parameters: all other inputs, comparable: policy parameters, context and encoding,
            actions, floor.
        version: version of the snapshot; None: the highest existing version.
    """

    algorithm: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    version: str | None = None

    @classmethod
    def of(cls, spec: DecisionPoint, version: str | None = None) -> Self:
        """Return the ingredients declared in a spec.

        Rewards, gates and stages are excluded: they affect learning, not the form of a state.

        Args:
            version: version of the snapshot; None: not published yet.

        >>> from steersman.spec.loader import loads
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
    """Return the kind of change between two snapshots.

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
    """Return the version of a new snapshot.

    Args:
        before: ingredients of the parent snapshot; None for the first snapshot.

    Raises:
        InputError: an entry of ``taken`` is not a version.

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
