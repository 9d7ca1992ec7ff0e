"""Signed description of a snapshot."""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 -- msgspec reads annotations
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 -- likewise
from typing import TYPE_CHECKING, Any, Self

import msgspec

from steersman.errors import InputError, VerificationError
from steersman.points.scale_guard import measure
from steersman.points.state_bytes import state_header, state_sha256
from steersman.registry.versions import Version
from steersman.wire import Refused, read

if TYPE_CHECKING:
    from numpy.typing import NDArray

    State = Mapping[str, NDArray[Any]]

MAX_DESCRIPTION = 1 << 20
_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Description:
    """Description of a snapshot: names, origin, evidence and measures.

    Names become parts of paths, so the constructor checks them.

    Args:
        tenant: tenant name; lower-case letters, digits and ``-``.
        skill: skill name, an identifier.
        point: decision point name, an identifier.
        version: version from ``next_version``.
        algorithm: algorithm name of the policy.
        actions: action names, in order; empty for open candidates.
        created_at: creation time with a time zone.
        dim: number of features; None without features.
        feature_hash: hexadecimal hash of the feature map; None without one.
        spec_hash: hexadecimal hash of the declaration.
        samples: number of rewards learned, >= 0.
        parents: parent versions, the base of the lineage first.
        line: base version of the lineage.
        line_seq: number of the last learned update of the lineage, >= 0.
        git_commit: git commit of the publisher.
        evidence: evidence for the release.
        guard: `Measures.to_json` of the state.
        state_sha256: SHA-256 of the state before compression, 64 hexadecimal digits.
        size: size of the published file in bytes; None before publication, like the next three.
        sha256: SHA-256 of the published file.
        url: location of the published file.
        etag: ETag of the published file.

    Raises:
        VerificationError: a name, version, hash or number is out of range.

    >>> from datetime import UTC
    >>> Description(
    ...     "acme",
    ...     "assistant",
    ...     "../../etc",
    ...     "0.1.0",
    ...     "lin_ts",
    ...     (),
    ...     datetime(2026, 1, 1, tzinfo=UTC),
    ... )
    Traceback (most recent call last):
    steersman.errors.VerificationError: the description's point is '../../etc'; allowed are ...
    """

    tenant: str
    skill: str
    point: str
    version: str
    algorithm: str
    actions: tuple[str, ...]
    created_at: datetime
    dim: int | None = None
    feature_hash: str | None = None
    spec_hash: str | None = None
    samples: int = 0
    parents: tuple[str, ...] = ()
    line: str | None = None
    line_seq: int = 0
    git_commit: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    guard: dict[str, Any] = field(default_factory=dict)
    state_sha256: str | None = None
    size: int | None = None
    sha256: str | None = None
    url: str | None = None
    etag: str | None = None

    def __post_init__(self) -> None:
        """Check names that become parts of paths, and ranges of numbers."""
        _check_names(self)
        _check_versions(self)
        _check_numbers(self)

    def to_json(self) -> dict[str, Any]:
        """Return the description as JSON values, with ordered keys."""
        plain: dict[str, Any] = msgspec.to_builtins(self, order="sorted")
        return plain

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | bytes) -> Self:
        """Return a checked description.

        Raises:
            VerificationError: invalid JSON, too long, or an entry with a wrong type or out of
                range.

        >>> from datetime import UTC
        >>> at = datetime(2026, 1, 1, tzinfo=UTC)
        >>> one = Description("acme", "assistant", "route", "0.1.0", "lin_ts", ("a", "b"), at)
        >>> Description.from_json(one.to_json()) == one
        True
        """
        try:
            if isinstance(value, bytes):
                value = read(value, max_bytes=MAX_DESCRIPTION)
            return msgspec.convert(value, cls)
        except Refused as refused:
            message = f"description refused: {refused}; publish the snapshot again"
        except msgspec.ValidationError as error:
            message = f"the description is invalid: {error}; publish the snapshot again"
        raise VerificationError(message)


@dataclass(frozen=True, eq=False)
class Published:
    """A snapshot in memory: description and state.

    Args:
        description: signed description.
        state: arrays by name, checked.
    """

    description: Description
    state: State


def describe(
    state: State,
    *,
    tenant: str,
    skill: str,
    point: str,
    version: str,
    created_at: datetime,
    **further: Any,
) -> Description:
    """Return the description of a state, before publication.

    Algorithm, actions, dimension, samples, measures and hash come from the state. Give the hash as
    ``state_sha256`` if you have packed the state already.

    Returns:
        A description without size, sha256, url and etag; publication sets them.

    Raises:
        VerificationError: a name, version or number is out of range, or the header is unreadable.
        InputError: an unknown entry.

    >>> from datetime import UTC
    >>> from steersman.policies import LinUCB
    >>> found = describe(
    ...     LinUCB(["a", "b"], dim=2).state(),
    ...     tenant="acme",
    ...     skill="assistant",
    ...     point="route",
    ...     version="0.1.0",
    ...     created_at=datetime(2026, 1, 1, tzinfo=UTC),
    ... )
    >>> found.algorithm, found.dim, found.samples
    ('lin_ucb', 2, 0)
    """
    header = state_header(state)
    own: dict[str, Any] = {
        "algorithm": header.get("algorithm"),
        "actions": tuple(header["config"].get("actions", ())),
        "dim": header["config"].get("dim"),
        "samples": header.get("updates", 0),
        "guard": measure(state).to_json(),
    }
    if "state_sha256" not in further:
        own["state_sha256"] = state_sha256(state)
    named = {"tenant": tenant, "skill": skill, "point": point, "version": version}
    try:
        return Description(**{**own, **named, "created_at": created_at, **further})
    except TypeError as error:
        message = f"unknown entry of a description: {error}"
        raise InputError(message) from None


def _check_names(found: Description) -> None:
    if not _TENANT.fullmatch(found.tenant):
        raise _wrong("tenant", found.tenant, "1 to 63 lower-case letters, digits and '-'")
    for name in ("skill", "point"):
        value = getattr(found, name)
        if not _IDENTIFIER.fullmatch(value):
            raise _wrong(name, value, "a letter, then up to 63 letters, digits and '_'")
    for name in ("sha256", "state_sha256"):
        value = getattr(found, name)
        if value is not None and not _HASH.fullmatch(value):
            raise _wrong(name, value, "64 hexadecimal digits")
    if found.created_at.tzinfo is None:
        raise _wrong("created_at", found.created_at, "a time with a time zone")


def _check_versions(found: Description) -> None:
    named = (found.version, *found.parents, *(() if found.line is None else (found.line,)))
    for version in named:
        try:
            Version.of(version)
        except InputError as error:
            message = f"the description is invalid: {error}"
            raise VerificationError(message) from None


def _check_numbers(found: Description) -> None:
    for name in ("samples", "line_seq", "size", "dim"):
        value = getattr(found, name)
        if value is not None and not 0 <= value <= 2**53:
            raise _wrong(name, value, "0 to 2^53")


def _wrong(name: str, value: object, allowed: str) -> VerificationError:
    message = f"the description's {name} is {value!r:.80}; allowed are {allowed}"
    return VerificationError(message)
