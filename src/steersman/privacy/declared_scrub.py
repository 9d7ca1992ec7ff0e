"""Scrubbing of contexts and event bodies, as declared by decision points.

A context follows the rules of its decision point. An event names a decision, not a point, and
finding the point would cost a query; so event bodies follow the rules of all points of the tenant.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from steersman.errors import InputError
from steersman.privacy.scrub import ScrubRules, apply, failing, finder, scrub_key
from steersman.spec.privacy import KINDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from uuid import UUID

    from steersman.privacy.scrub import Finder
    from steersman.spec.point import DecisionPoint
    from steersman.spec.privacy import Privacy

_log = logging.getLogger(__name__)


class Scrubbing:
    """Scrubbing rules of one decision point, or of one tenant's events.

    If a custom scrubber is missing, texts become ``[unscrubbable]``.

    Args:
        kinds: kinds of personal data.
        how: mask or hash.
        declared: names of the context fields.
        left: fields that keep their text: categories, and texts excluded by the declaration.
    """

    def __init__(
        self,
        kinds: Iterable[str],
        how: Literal["mask", "hash"],
        declared: Collection[str] = (),
        left: Collection[str] = (),
    ) -> None:
        self._rules = ScrubRules([(kind, _finder_or_failing(kind)) for kind in kinds], how)
        self._declared = frozenset(declared)
        self._left = frozenset(left)

    def context(
        self, context: Mapping[str, Any], secret: bytes, tenant: UUID
    ) -> tuple[dict[str, Any], Counter[str]]:
        """Return a scrubbed context for encoding, storing, signing and logging.

        Categories, numbers and vectors stay unchanged. Texts in undeclared values are scrubbed too,
        because a fallback answers such a request and stores it.
        """
        key, counts = scrub_key(secret, tenant.bytes), Counter[str]()
        result: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for name, value in context.items():
            if name not in self._declared:
                others[name] = value
            elif name in self._left and isinstance(value, str):
                result[name] = value
            else:
                result[name] = self._within(value, key, counts)
        return (result | self._within(others, key, counts) if others else result), counts

    def body(self, body: Any, secret: bytes, tenant: UUID) -> tuple[Any, Counter[str]]:
        """Return a scrubbed event body for storing and logging, with all texts and keys."""
        key, counts = scrub_key(secret, tenant.bytes), Counter[str]()
        return self._within(body, key, counts), counts

    def _within(self, value: Any, key: bytes, counts: Counter[str]) -> Any:
        if isinstance(value, str):
            result, found = apply(value, self._rules, key)
            counts += found
            return result
        if isinstance(value, list):
            return [self._within(inner, key, counts) for inner in value]
        if isinstance(value, dict):
            names = _apart([self._within(name, key, counts) for name in value])
            inside = [self._within(inner, key, counts) for inner in value.values()]
            return dict(zip(names, inside, strict=True))
        return value


def scrubbing_of(point: DecisionPoint) -> Scrubbing | None:
    """Return the scrubbing rules of a decision point's contexts.

    Returns:
        The rules; None if nothing is scrubbed.
    """
    privacy, fields = point.privacy, point.context.fields
    if not privacy.scrub:
        return None
    chosen = fields if privacy.fields is None else privacy.fields
    left = [
        name
        for name, field in fields.items()
        if field.type == "category" or (field.type == "text" and name not in chosen)
    ]
    return Scrubbing(privacy.scrub, privacy.how, fields, left)


def scrubbing_of_events(declared: Iterable[Privacy]) -> Scrubbing | None:
    """Return the combined scrubbing rules for a tenant's event bodies.

    Args:
        declared: rules of all its decision points.

    Returns:
        All kinds, masked if any point masks; None if nothing is scrubbed.
    """
    return _of_all(frozenset(privacy for privacy in declared if privacy.scrub))


def check_scrubbers(point: DecisionPoint) -> None:
    """Raise an error if a declared scrubber is not installed.

    Raises:
        InputError: names the scrubber and what to do.
    """
    for kind in point.privacy.scrub:
        finder(kind)


# Called every second, and an entry point lookup reads files.
@lru_cache(maxsize=1024)
def _of_all(declared: frozenset[Privacy]) -> Scrubbing | None:
    kinds = {kind for privacy in declared for kind in privacy.scrub}
    if not kinds:
        return None
    masked = any(privacy.how == "mask" for privacy in declared)
    order = [*KINDS, *sorted(kinds.difference(KINDS))]
    return Scrubbing([k for k in order if k in kinds], "mask" if masked else "hash")


def _finder_or_failing(kind: str) -> Finder:
    try:
        return finder(kind)
    except InputError as error:
        _log.error("texts are not stored until this is fixed: %s", error)
        return failing(kind)


def _apart(names: list[str]) -> list[str]:
    taken, times = set(names), Counter[str]()
    result = []
    for name in names:
        times[name] += 1
        free = name
        while times[name] > 1 and free in taken:
            free = f"{name} {times[name]}"
            times[name] += free in taken
        taken.add(free)
        result.append(free)
    return result
