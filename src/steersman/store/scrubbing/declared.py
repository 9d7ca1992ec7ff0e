"""Scrubbing as decision points declare it: contexts by their own point, event bodies by all.

An event names a decision, not its point, and finding that out would cost a query for each; so
bodies are scrubbed of everything that any point of the tenant declares.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from steersman.errors import InputError
from steersman.spec import KINDS
from steersman.store.scrubbing.texts import Way, apply, failing, finder, scrub_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from uuid import UUID

    from steersman.spec import DecisionPoint, Privacy
    from steersman.store.scrubbing.texts import Finder

_log = logging.getLogger(__name__)


class Scrubbing:
    """What is taken out of the texts of one decision point, or of one tenant's events.

    A custom scrubber that is not installed here counts as one that fails: texts become
    ``[unscrubbable]``.

    Args:
        kinds: what is looked for.
        how: mask or hash.
        declared: names of the context's fields.
        left: those of them that stay as they are where they are texts: categories, and texts that
            the declaration leaves out.
    """

    def __init__(
        self,
        kinds: Iterable[str],
        how: Literal["mask", "hash"],
        declared: Collection[str] = (),
        left: Collection[str] = (),
    ) -> None:
        self._way = Way([(kind, _finder_or_failing(kind)) for kind in kinds], how)
        self._declared = frozenset(declared)
        self._left = frozenset(left)

    def context(
        self, context: Mapping[str, Any], secret: bytes, tenant: UUID
    ) -> tuple[dict[str, Any], Counter[str]]:
        """Return a context as it may be encoded, stored, signed and logged.

        Categories, numbers and vectors stay as they are. What is not as declared is scrubbed
        wherever it holds a text: a fallback answers such a request, and is stored.

        Args:
            context: as it was sent; not changed.
            secret: the service's.
            tenant: whose it is.

        Returns:
            The context, and how many of each kind were found.
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
        """Return an event's body as it may be stored and logged: every text in it, keys too.

        Args:
            body: plain values; not changed.
            secret: the service's.
            tenant: whose it is.

        Returns:
            The body, keys that became equal numbered; and how many of each kind were found.
        """
        key, counts = scrub_key(secret, tenant.bytes), Counter[str]()
        return self._within(body, key, counts), counts

    def _within(self, value: Any, key: bytes, counts: Counter[str]) -> Any:
        if isinstance(value, str):
            result, found = apply(value, self._way, key)
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
    """Return what a decision point declares for its contexts.

    Args:
        point: the declaration.

    Returns:
        None where nothing is to be scrubbed.
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


def scrubbing_of_events(points: Iterable[DecisionPoint]) -> Scrubbing | None:
    """Return what a tenant's decision points, taken together, declare for bodies of events.

    Args:
        points: all of one tenant.

    Returns:
        All their kinds, masked if any point masks; None where nothing is to be scrubbed.
    """
    return _of_all(frozenset(point.privacy for point in points if point.privacy.scrub))


def check_scrubbers(point: DecisionPoint) -> None:
    """Refuse a declaration that names scrubbers which are not installed.

    Args:
        point: the declaration.

    Raises:
        InputError: which one, and what to do.
    """
    for kind in point.privacy.scrub:
        finder(kind)


# Asked for every second; looking for entry points reads files.
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
    """Return the names, those that stood before with a number."""
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
