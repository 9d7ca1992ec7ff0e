"""Personal data with a shape: what the store's scrubbers find, and numbers that states give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.llm.detectors.flags import Flag
from steersman.llm.detectors.national_ids import find_national_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("email", "phone", "card", "iban", "ip")


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
            text: any.

        Returns:
            Flags in the order of their places; a number that is of two kinds is flagged once.
        """
        places = [(one.start, one.end, one.kind) for one in self._find(text, self._kinds)]
        if self._national:
            for place in find_national_ids(text):
                if not any(begin < place.end and place.start < end for begin, end, _ in places):
                    places.append((place.start, place.end, place.kind))
        found = sorted(places)
        return tuple(Flag(self.name, kind, 1.0, start, end) for start, end, kind in found)

    def masked(self, text: str) -> str:
        """Return a text with each finding replaced by its kind: what may be kept and shown.

        Args:
            text: any.

        >>> PersonalData().masked("Write to bob@example.org")
        'Write to [email]'
        """
        parts, done = [], 0
        for flag in self.detect(text):
            if flag.start >= done:
                parts += [text[done : flag.start], f"[{flag.kind}]"]
            done = max(done, flag.end)
        return "".join([*parts, text[done:]])
