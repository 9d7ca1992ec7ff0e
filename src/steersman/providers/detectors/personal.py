"""Detector of personal data with a known format, and of national numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.providers.detectors.flags import Flag
from steersman.providers.detectors.national_ids import find_national_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("email", "phone", "card", "iban", "ip")
_BY_SHAPE = ("phone", "us_ssn")


class PersonalData:
    """Detector of e-mail addresses, telephone numbers, cards, IBANs, IPs and national numbers.

    Check digits are verified for cards, IBANs and all national numbers but the US one. Names and
    postal addresses have no fixed format and are not found.

    Args:
        kinds: some of the first five kinds; also an installed scrubber ``custom:NAME``.
        national: whether to find national numbers.

    Raises:
        InputError: unknown kind, or the scrubber is not installed.

    >>> [flag.kind for flag in PersonalData().detect("bob@example.org, SSN 219-09-9999")]
    ['email', 'us_ssn']
    """

    name = "personal_data"

    def __init__(self, kinds: Sequence[str] = KINDS, *, national: bool = True) -> None:
        # The store package is slow to import, and few importers need it.
        from steersman.privacy.scrub import find, scrub  # noqa: PLC0415

        scrub("", kinds)  # raises for an unknown kind
        self._find = find
        self._kinds = tuple(kinds)
        self._national = national

    def detect(self, text: str) -> tuple[Flag, ...]:
        """Return the positions of personal data."""
        places = [(one.start, one.end, one.kind) for one in self._find(text, self._kinds)]
        if self._national:
            places += find_national_ids(text)
        # At the same start the longer comes first; at equal length the scrubber's.
        places.sort(key=lambda one: (one[0], -one[1]))
        return tuple(Flag(self.name, kind, 1.0, start, end) for start, end, kind in _apart(places))

    def masked(self, text: str) -> str:
        """Return a text with each finding replaced by its kind.

        >>> PersonalData().masked("Write to bob@example.org")
        'Write to [email]'
        """
        parts, done = [], 0
        for flag in self.detect(text):
            parts += [text[done : flag.start], f"[{flag.kind}]"]
            done = flag.end
        return "".join([*parts, text[done:]])


def _apart(places: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Return positions sorted by start, with overlapping ones merged."""
    apart: list[tuple[int, int, str]] = []
    for start, end, kind in places:
        if not apart or start >= apart[-1][1]:
            apart.append((start, end, kind))
            continue
        begin, until, first = apart[-1]
        called = kind if first in _BY_SHAPE and kind not in _BY_SHAPE else first
        apart[-1] = begin, max(until, end), called
    return apart
