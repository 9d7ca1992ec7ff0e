"""Scrubbing of a text.

Placeholders have no digits, ``@`` or hexadecimal letters, so no detector matches them. The rest is
searched until nothing is found, so scrubbing is idempotent.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections import Counter
from importlib.metadata import entry_points
from operator import index
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, cast

from steersman.errors import DataError, InputError
from steersman.privacy.identifiers import (
    TextFinding,
    find_cards,
    find_emails,
    find_ibans,
    find_ips,
    find_phones,
)
from steersman.spec.privacy import CUSTOM, KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Finder = Callable[[str], Iterable[TextFinding]]
    from collections.abc import Iterable

GROUP = "steersman.scrubbers"


class Scrubber(Protocol):
    """Interface of a custom scrubber: returns the positions of personal data in a text.

    The service calls it in its thread for every text of every request. It must take well under a
    millisecond, be deterministic and keep no data.
    """

    def __call__(self, text: str) -> Iterable[tuple[int, int]]:
        """Return start and end of each finding in characters, as in ``text[start:end]``."""
        ...


def installed_scrubber(kind: str) -> Scrubber:
    """Return an installed scrubber.

    Raises:
        InputError: the entry point is missing or cannot be loaded.
    """
    name = kind.removeprefix(CUSTOM)
    found = entry_points(group=GROUP)
    point = next((point for point in found if point.name == name), None)
    if point is None:
        names = ", ".join(sorted(set(found.names))) or "none"
        message = (
            f"privacy.scrub has {kind!r}, but no such scrubber is installed; installed "
            f"are {names}; install the package with the entry point {name!r} in group "
            f"{GROUP!r} here and on the service hosts, or remove it"
        )
        raise InputError(message)
    try:
        scrubber = point.load()
    except Exception as error:
        message = (
            f"cannot load scrubber {name!r} ({point.value}): {error!r}; fix its "
            "package, or remove it from privacy.scrub"
        )
        raise InputError(message) from error
    if not callable(scrubber):
        message = (
            f"the scrubber {name!r} ({point.value}) is a {type(scrubber).__name__}; expected "
            "a callable that takes a text; fix its package"
        )
        raise InputError(message)
    return cast("Scrubber", scrubber)


UNSCRUBBABLE = "[unscrubbable]"
_log = logging.getLogger(__name__)
_FINDERS: dict[str, Finder] = {
    "email": find_emails,
    "phone": find_phones,
    "card": find_cards,
    "iban": find_ibans,
    "ip": find_ips,
}
# Ordinary texts need two passes; the second finds nothing.
_MOST_PASSES = 8
_HASH_LETTERS = 16  # 64 bits
_ALPHABET = bytes.maketrans(b"0123456789abcdef", b"ghjkmnpqrstvwxyz")
_REPLACED = re.compile(
    rf"\[(?:{'|'.join(KINDS)}|{CUSTOM}\w{{1,64}})(?::[g-z]{{{_HASH_LETTERS}}})?\]"
    rf"|{re.escape(UNSCRUBBABLE)}"
)


class ScrubberFailure(Exception):  # noqa: N818 (private to this package)
    """Failure of a scrubber."""


class Finding(NamedTuple):
    """Position of personal data.

    Attributes:
        start: index of the first character.
        end: index after the last character.
        kind: kind, as in `scrub`.
    """

    start: int
    end: int
    kind: str


class ScrubRules(NamedTuple):
    """Compiled scrubbing rules.

    Attributes:
        finders: detectors by kind.
        how: mask or hash.
    """

    finders: Sequence[tuple[str, Finder]]
    how: Literal["mask", "hash"]


def scrub(
    text: str, kinds: Sequence[str], *, how: Literal["mask", "hash"] = "mask", key: bytes = b""
) -> tuple[str, Counter[str]]:
    """Return a text without personal data of some kinds.

    Scrubbing is idempotent, and its time is linear in the text length.

    Args:
        how: ``mask`` inserts ``[email]``; ``hash`` inserts ``[email:…]`` with 64 bits of an
            HMAC, equal for equal normalised values under the same key.

    Returns:
        The text and the number of findings per kind; the text ``[unscrubbable]`` and
        ``unscrubbable``: 1 if a custom scrubber failed.

    Raises:
        InputError: unknown kind, scrubber not installed, or missing key.

    >>> scrub("Write to bob@example.org or +49 30 123456", ["email", "phone"])
    ('Write to [email] or [phone]', Counter({'email': 1, 'phone': 1}))
    >>> scrub("Bob@Example.org, bob@example.org", ["email"], how="hash", key=b"k")[0]
    '[email:gthymjjnkqmkjjrx], [email:gthymjjnkqmkjjrx]'
    """
    if how == "hash" and not key:
        message = "hashing needs a key; pass the tenant's (scrub_key), or use mask"
        raise InputError(message)
    return apply(text, ScrubRules([(kind, finder(kind)) for kind in kinds], how), key)


def find(text: str, kinds: Sequence[str]) -> list[Finding]:
    """Return the positions of personal data.

    Raises:
        InputError: unknown kind, or scrubber not installed.
        DataError: a custom scrubber failed.

    >>> find("Write to bob@example.org", ["email", "ip"])
    [Finding(start=9, end=24, kind='email')]
    """
    looked_for = [(kind, finder(kind)) for kind in kinds]
    try:
        found = [(*one, kind) for kind, places in looked_for for one in places(text)]
    except ScrubberFailure as error:
        raise DataError(f"scrubber {error} failed; see the log and fix it") from None
    return [Finding(start, end, kind) for start, end, _, kind in _apart(text, found)]


def scrub_key(secret: bytes, tenant: bytes) -> bytes:
    """Return the hash key of a tenant; hashes differ between tenants.

    Returns:
        32 bytes.

    >>> scrub_key(b"s" * 32, b"a") == scrub_key(b"s" * 32, b"b")
    False
    """
    return hmac.digest(secret, b"scrub:" + tenant, "sha256")


def finder(kind: str) -> Finder:
    """Return the detector of one kind.

    Raises:
        InputError: unknown kind, or scrubber not installed.
    """
    if kind in _FINDERS:
        return _FINDERS[kind]
    if not kind.startswith(CUSTOM):
        message = f"kind {kind!r} is unknown; allowed are {', '.join(KINDS)} and {CUSTOM}NAME"
        raise InputError(message)
    return _checked(kind, installed_scrubber(kind))


def failing(kind: str) -> Finder:
    """Return a detector that always fails, for a missing scrubber."""

    def find(_text: str) -> Iterable[TextFinding]:
        raise ScrubberFailure(kind)

    return find


def apply(text: str, rules: ScrubRules, key: bytes) -> tuple[str, Counter[str]]:
    """Return a scrubbed text and the number of findings."""
    counts: Counter[str] = Counter()
    result = text
    try:
        for _ in range(_MOST_PASSES):
            before, result = result, _once(result, rules, key, counts)
            if result == before:
                return result, counts
    except ScrubberFailure:
        pass
    # The text may still hold personal data, so replace it completely.
    return UNSCRUBBABLE, Counter({"unscrubbable": 1})


def _once(text: str, rules: ScrubRules, key: bytes, counts: Counter[str]) -> str:
    found = [(*one, kind) for kind, find in rules.finders for one in find(text)]
    if not found:
        return text
    parts, done = [], 0
    for start, end, value, kind in _apart(text, found):
        counts[kind] += 1
        hashed = f":{_hash(key, kind, value)}" if rules.how == "hash" else ""
        parts += [text[done:start], f"[{kind}{hashed}]"]
        done = end
    return "".join([*parts, text[done:]])


def _apart(
    text: str, found: list[tuple[int, int, str, str]]
) -> Iterator[tuple[int, int, str, str]]:
    """Yield findings in order; overlapping ones are merged under the first kind."""
    replaced = [match.span() for match in _REPLACED.finditer(text)]
    found.sort(key=lambda one: (one[0], -one[1]))
    current: tuple[int, int, str, str] | None = None
    place = 0
    for one in found:
        start, end, _, _ = one
        while place < len(replaced) and replaced[place][1] <= start:
            place += 1
        if place < len(replaced) and replaced[place][0] <= start and end <= replaced[place][1]:
            continue  # a scrubber matched a placeholder
        if current is None or start >= current[1]:
            if current is not None:
                yield current
            current = one
        else:
            current = (current[0], max(current[1], end), *current[2:])
    if current is not None:
        yield current


def _hash(key: bytes, kind: str, value: str) -> str:
    message = f"{kind}:{value}".encode("utf-8", "surrogatepass")
    digest = hmac.digest(key, message, "sha256").hex()[:_HASH_LETTERS]
    return digest.encode().translate(_ALPHABET).decode()


def _checked(kind: str, scrubber: Scrubber) -> Finder:
    def find(text: str) -> list[TextFinding]:
        try:
            places = [(index(start), index(end)) for start, end in scrubber(text)]
        except Exception as error:  # noqa: BLE001 (any error blocks the text)
            # Log no message or traceback, because they may quote personal data.
            _log.error("%s failed with %s; the text is not stored", kind, type(error).__name__)
            raise ScrubberFailure(kind) from None
        if not all(0 <= start <= end <= len(text) for start, end in places):
            _log.error("%s returned positions outside the text; the text is not stored", kind)
            raise ScrubberFailure(kind)
        return [TextFinding(start, end, text[start:end]) for start, end in places if start < end]

    return find
