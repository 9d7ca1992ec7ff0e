"""Personal data with a shape: what the store's scrubbers find, and numbers that states give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.llm.detectors.flags import Flag
from steersman.llm.detectors.national_ids import find_national_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("email", "phone", "card", "iban", "ip")
_BY_SHAPE = ("phone", "us_ssn")


class PersonalData:
    """Finds e-mail addresses, telephone numbers, cards, IBANs, IPs and national numbers.

    Cards, IBANs and all national numbers but the US one are believed by their check digits. Names
    and postal addresses have no shape and are not found.

    Args:
        kinds: of the first five; a scrubber of your own, installed and named ``custom:NAME``, too.
        national: whether national numbers are looked for.

    Raises:
        InputError: an unknown kind, or a scrubber that is not installed.

    >>> [flag.kind for flag in PersonalData().detect("bob@example.org, SSN 219-09-9999")]
    ['email', 'us_ssn']
    """

    name = "personal_data"

    def __init__(self, kinds: Sequence[str] = KINDS, *, national: bool = True) -> None:
        # The store's package is slow to import, and few who import this one need it.
        from steersman.store.scrubbing import find, scrub  # noqa: PLC0415

        scrub("", kinds)  # refuses what it does not know
        self._find = find
        self._kinds = tuple(kinds)
        self._national = national

    def detect(self, text: str) -> tuple[Flag, ...]:
        """Return where personal data are.

        Args:
            text: text.

        Returns:
            Flags in the order of their places, none within another. What overlaps is one, from
            where the first begins to where the last ends; its kind is that of what begins first,
            but a telephone number or a US one, known by shape alone, gives way to another.
        """
        places = [(one.start, one.end, one.kind) for one in self._find(text, self._kinds)]
        if self._national:
            places += find_national_ids(text)
        # Of two at one place the longer is first, and of two as long the scrubbers'.
        places.sort(key=lambda one: (one[0], -one[1]))
        return tuple(Flag(self.name, kind, 1.0, start, end) for start, end, kind in _apart(places))

    def masked(self, text: str) -> str:
        """Return a text with each finding replaced by its kind: what may be kept and shown.

        Args:
            text: text.

        >>> PersonalData().masked("Write to bob@example.org")
        'Write to [email]'
        """
        parts, done = [], 0
        for flag in self.detect(text):
            parts += [text[done : flag.start], f"[{flag.kind}]"]
            done = flag.end
        return "".join([*parts, text[done:]])


def _apart(places: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Return places, sorted by where they begin, with those that overlap as one."""
    apart: list[tuple[int, int, str]] = []
    for start, end, kind in places:
        if not apart or start >= apart[-1][1]:
            apart.append((start, end, kind))
            continue
        begin, until, first = apart[-1]
        called = kind if first in _BY_SHAPE and kind not in _BY_SHAPE else first
        apart[-1] = begin, max(until, end), called
    return apart
