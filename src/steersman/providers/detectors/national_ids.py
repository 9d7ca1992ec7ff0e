"""National identification numbers, checked by their check digits.

One check digit accepts one number in ten, so a number without a distinctive format counts only
after a word that names it. Each expression examines a bounded number of characters per position.
"""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from steersman.providers.detectors.flags import Flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_BEFORE = 48
_DNI = "TRWAGMYFPDXBNJZSQVHLCKE"
_ODD = (
    1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18,
    20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23,
)  # fmt: skip
_VERHOEFF = (
    "0123456789", "1234067895", "2340178956", "3401289567", "4012395678",
    "5987604321", "6598710432", "7659821043", "8765932104", "9876543210",
)  # fmt: skip
_TURNED = (
    "0123456789", "1576283094", "5803796142", "8916043527",
    "9453126870", "4286573901", "2793806415", "7046913258",
)  # fmt: skip


class Place(NamedTuple):
    """Position of a national number.

    Attributes:
        start: start offset.
        end: end offset, exclusive.
        kind: country and name, such as ``es_dni``.
    """

    start: int
    end: int
    kind: str


class _Shape(NamedTuple):
    kind: str
    written: re.Pattern[str]
    right: Callable[[str], bool]
    called: re.Pattern[str] | None = None


def find_national_ids(text: str) -> Iterator[Place]:
    """Yield the positions of national numbers: twelve kinds of eleven countries.

    US numbers have no check digit: only format and valid ranges are checked.

    >>> [place.kind for place in find_national_ids("DNI 12345678Z, not 12345678A")]
    ['es_dni']
    """
    for shape in _SHAPES:
        for match in shape.written.finditer(text):
            before = text[max(0, match.start() - _BEFORE) : match.start()]
            if shape.called is not None and not shape.called.search(before):
                continue
            if shape.right(re.sub(r"[\s.\-+/]", "", match.group()).upper()):
                yield Place(match.start(), match.end(), shape.kind)


def _digits(value: str) -> list[int]:
    return [int(one) for one in value]


def _weighted(value: str, weights: tuple[int, ...]) -> int:
    return sum(digit * weight for digit, weight in zip(_digits(value), weights, strict=False))


def _is_day(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def _us_ssn(value: str) -> bool:
    area, group, serial = value[:3], value[3:5], value[5:]
    return area not in {"000", "666"} and area < "900" and group != "00" and serial != "0000"


def _es_dni(value: str) -> bool:
    number = str("XYZ".find(value[0])) + value[1:-1] if value[0] in "XYZ" else value[:-1]
    return _DNI[int(number) % 23] == value[-1]


def _it_cf(value: str) -> bool:
    def rank(one: str) -> int:
        return int(one) if one.isdigit() else ord(one) - ord("A")

    odd = sum(_ODD[rank(one)] for one in value[0:15:2])
    even = sum(rank(one) for one in value[1:15:2])
    return chr(ord("A") + (odd + even) % 26) == value[15]


def _fr_nir(value: str) -> bool:
    number = int(value[:13].replace("2A", "19").replace("2B", "18"))
    return 97 - number % 97 == int(value[13:])


def _br_cpf(value: str) -> bool:
    if len(set(value)) == 1:
        return False
    first = _weighted(value[:9], tuple(range(10, 1, -1))) * 10 % 11 % 10
    second = _weighted(value[:10], tuple(range(11, 1, -1))) * 10 % 11 % 10
    return value[9:] == f"{first}{second}"


def _pl_pesel(value: str) -> bool:
    century, month = divmod(int(value[2:4]), 20)
    year = {0: 1900, 1: 2000, 2: 2100, 3: 2200, 4: 1800}.get(century, 0) + int(value[:2])
    total = _weighted(value, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1))
    return total % 10 == 0 and _is_day(year, month, int(value[4:6]))


def _cn_rid(value: str) -> bool:
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    right = "10X98765432"[_weighted(value[:17], weights) % 11] == value[17]
    return right and _is_day(int(value[6:10]), int(value[10:12]), int(value[12:14]))


def _se_pnr(value: str) -> bool:
    short = value[-10:]
    doubled = [digit * (2 - place % 2) for place, digit in enumerate(_digits(short))]
    right = sum(digit // 10 + digit % 10 for digit in doubled) % 10 == 0
    return right and _is_day(2000 + int(short[:2]), int(short[2:4]), int(short[4:6]))


def _nl_bsn(value: str) -> bool:
    return value != "000000000" and _weighted(value, (9, 8, 7, 6, 5, 4, 3, 2, -1)) % 11 == 0


def _gb_nhs(value: str) -> bool:
    check = 11 - _weighted(value[:9], tuple(range(10, 1, -1))) % 11
    return check != 10 and check % 11 == int(value[9])


def _de_idnr(value: str) -> bool:
    rest = 10
    for digit in _digits(value[:10]):
        rest = ((digit + rest) % 10 or 10) * 2 % 11
    return value[0] != "0" and (11 - rest) % 10 == int(value[10])


def _in_aadhaar(value: str) -> bool:
    check = 0
    for place, digit in enumerate(reversed(_digits(value))):
        check = int(_VERHOEFF[check][int(_TURNED[place % 8][digit])])
    return check == 0 and value[0] not in "01"


def _written(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![0-9A-Za-z.\-])(?:{pattern})(?![0-9A-Za-z]|[.\-]\d)", re.IGNORECASE)


def _called(words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{words})\b[^\d\n]{{0,24}}\Z", re.IGNORECASE)


_SHAPES = (
    _Shape("us_ssn", _written(r"\d{3}([ -])\d\d\1\d{4}"), _us_ssn),
    _Shape("us_ssn", _written(r"\d{9}"), _us_ssn, _called(r"ssn|social security(?: number)?")),
    _Shape("es_dni", _written(r"(?:\d{8}|[xyz]-?\d{7})-?[a-hj-np-tv-z]"), _es_dni),
    # With IGNORECASE, [a-z] also matches the kelvin sign, which is not a letter of a code.
    _Shape("it_cf", _written(r"(?a:[a-z]{6}\d\d[a-ehlmprst]\d\d[a-z]\d{3}[a-z])"), _it_cf),
    _Shape(
        "fr_nir",
        _written(r"[12] ?\d\d ?(?:0[1-9]|1[0-2]|[2-4]\d) ?(?:\d\d|2[ab]) ?\d{3} ?\d{3} ?\d\d"),
        _fr_nir,
    ),
    _Shape("br_cpf", _written(r"\d{3}\.\d{3}\.\d{3}-\d\d"), _br_cpf),
    _Shape("br_cpf", _written(r"\d{11}"), _br_cpf, _called("cpf")),
    _Shape("pl_pesel", _written(r"\d{11}"), _pl_pesel, _called("pesel")),
    _Shape("cn_rid", _written(r"[1-9]\d{5}(?:19|20)\d{9}[\dx]"), _cn_rid),
    _Shape("se_pnr", _written(r"(?:19|20)?\d{6}[-+]\d{4}"), _se_pnr),
    _Shape("nl_bsn", _written(r"\d{9}"), _nl_bsn, _called("bsn|burgerservicenummer|sofinummer")),
    _Shape("gb_nhs", _written(r"\d{3}[ -]?\d{3}[ -]?\d{4}"), _gb_nhs, _called(r"nhs(?: \w+)?")),
    _Shape(
        "de_idnr",
        _written(r"\d{2} ?\d{3} ?\d{3} ?\d{3}"),
        _de_idnr,
        _called(r"steuer-?id\w*|identifikationsnummer|idnr|tax id"),
    ),
    _Shape("in_aadhaar", _written(r"\d{4} \d{4} \d{4}"), _in_aadhaar),
    _Shape("in_aadhaar", _written(r"\d{12}"), _in_aadhaar, _called("aadhaar|uidai?")),
)


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
