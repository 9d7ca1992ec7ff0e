"""Detectors of identifiers with a fixed format: e-mail addresses, cards, IBANs and IPs.

Each detector scans a text once with bounded lookahead, so run time is linear. It yields the
position and a normalised value, so that spellings of the same value match.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_LOCAL = 64  # RFC 5321
_LOCAL_BACKWARDS = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}+")
_AROUND_LOCAL = ".!#$%&'*/=?^`{|}~-"
_DOMAIN = re.compile(
    r"@(?:\w(?:[\w-]{0,61}\w)?\.){1,10}(?:xn--[a-z0-9-]{2,59}|[^\W\d_]{2,63})", re.IGNORECASE
)

_DIGIT_GROUPS = re.compile(r"(?<![0-9A-Za-z])(?<!\d[.,])\d++(?:[ \u00a0\u2011-]\d++)*+")
_DIGIT_GROUP = re.compile(r"\d+")
_CARD_DIGITS = range(12, 20)
_CARD_GROUPS = 6
_CARD_GROUP = range(3, 7)  # digits, where there are several groups
# First and last prefix of an issuer's numbers, and how many digits they have.
_ISSUERS = (
    ("4", "4", (13, 16, 19)),
    ("51", "55", (16,)),
    ("2221", "2720", (16,)),
    ("34", "34", (15,)),
    ("37", "37", (15,)),
    ("300", "305", range(14, 20)),
    ("309", "309", range(14, 20)),
    ("36", "36", range(14, 20)),
    ("38", "39", range(14, 20)),
    ("3528", "3589", range(16, 20)),
    ("2200", "2204", range(16, 20)),
    ("60", "60", range(16, 20)),
    ("62", "62", range(16, 20)),
    ("644", "659", range(16, 20)),
    ("50", "50", (16, 18, 19)),
    ("56", "58", (16, 18, 19)),
    ("63", "63", (16, 18, 19)),
    ("67", "67", (16, 18, 19)),
    ("81", "82", (16,)),
)

_CALLED_CARD = re.compile(
    r"\b(?:card|cc|visa|mastercard|amex|maestro|\w*karten?|carte|tarjeta|carta)\b[^\d\]]{0,24}\Z",
    re.IGNORECASE,
)
_BEFORE = 48

_IBAN_START = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}\d\d", re.ASCII)
_IBAN_CHARACTER = re.compile(r"[ \u00a0-]?([0-9A-Za-z])", re.ASCII)
# Registry of SWIFT: how many characters the IBANs of which countries have.
_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
_IBAN_LENGTHS = {name: length for length, names in _COUNTRIES.items() for name in names.split()}

_IPV4 = re.compile(
    r"(?<![\w.-])(?<!version )\d{1,3}(?:\.\d{1,3}){3}(?!\w)(?!\.\d)", re.ASCII | re.IGNORECASE
)
_IPV6 = re.compile(r"(?<![0-9A-Fa-f:.])[0-9A-Fa-f:.]{4,46}+(?![0-9A-Za-z])", re.ASCII)
_LEAST_HEX_DIGITS = 4  # fewer are more often code, such as ``a::b``, than an address


class Found(NamedTuple):
    """Finding in a text.

    Attributes:
        start: index of the first character.
        end: index after the last character.
        value: normalised value.
    """

    start: int
    end: int
    value: str


def find_emails(text: str) -> Iterator[Found]:
    """Yield e-mail addresses: an unquoted local part (RFC 5321) at a domain with a dot.

    >>> [found.value for found in find_emails("Ask Bob.Ray@Example.org, not @bob.")]
    ['bob.ray@example.org']
    """
    if "@" not in text:
        return
    for match in _DOMAIN.finditer(text):
        at = match.start()
        before = _LOCAL_BACKWARDS.match(text[max(0, at - _MAX_LOCAL) : at][::-1])
        local = before[0][::-1].lstrip(_AROUND_LOCAL) if before else ""
        if local:
            yield Found(at - len(local), match.end(), (local + match[0]).lower())


def find_cards(text: str) -> Iterator[Found]:
    """Yield payment cards: 12 to 19 digits with a valid Luhn check digit.

    One in ten random numbers passes Luhn's check, so the prefix and length must fit a known issuer,
    or a word before must announce a card.

    >>> [found.value for found in find_cards("4111 1111 1111 1111 12/27, order 4111111111111112")]
    ['4111111111111111']
    """
    for run in _DIGIT_GROUPS.finditer(text):
        if run.end() - run.start() < _CARD_DIGITS[0]:
            continue
        groups = list(_DIGIT_GROUP.finditer(run[0]))
        digits = "".join(str(int(sign)) for group in groups for sign in group[0])
        ends = list(accumulate(len(group[0]) for group in groups))
        first = 0
        while first < len(groups):
            begin = ends[first] - len(groups[first][0])
            called = first == 0 and _called_card(text, run.start())
            last = _last_group(digits, begin, ends, first, called=called)
            if last is not None:
                start, end = groups[first].start(), groups[last].end()
                yield Found(run.start() + start, run.start() + end, digits[begin : ends[last]])
            first = (first if last is None else last) + 1


def _last_group(
    digits: str, begin: int, ends: list[int], first: int, *, called: bool
) -> int | None:
    """Return the last group of the longest card that begins with a group."""
    best = None
    start = begin
    for last in range(first, min(first + _CARD_GROUPS, len(ends))):
        if ends[last] - start not in _CARD_GROUP and last > first:
            break
        start, length = ends[last], ends[last] - begin
        if length in _CARD_DIGITS:
            number = digits[begin : ends[last]]
            if (called or _issued(number)) and _luhn(number):
                best = last
        if last == first and length not in _CARD_GROUP:
            break
    return best


def _called_card(text: str, start: int) -> bool:
    # Not the word in `[card]`, which does not announce a number.
    return _CALLED_CARD.search(text[max(0, start - _BEFORE) : start]) is not None


def _issued(digits: str) -> bool:
    return any(
        first <= digits[: len(first)] <= last and len(digits) in lengths
        for first, last, lengths in _ISSUERS
    )


def _luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[::-2])) + sum(doubled)) % 10 == 0


def find_ibans(text: str) -> Iterator[Found]:
    """Yield IBANs with the country's length and valid check digits (ISO 7064).

    >>> [found.value for found in find_ibans("to DE89 3704 0044 0532 0130 00 by Friday")]
    ['DE89370400440532013000']
    """
    for match in _IBAN_START.finditer(text):
        length = _IBAN_LENGTHS.get(match[0][:2].upper())
        if length is None:
            continue
        value, end, gaps = match[0], match.end(), []
        while len(value) < length and (more := _IBAN_CHARACTER.match(text, end)):
            if more.end() - end > 1:
                gaps.append(len(value))
            value += more[1]
            end = more.end()
        # Groups of four, or digits in any grouping, but not words of a sentence.
        if any(gap % 4 for gap in gaps) and not value[4:].isdecimal():
            continue
        value = value.upper()
        # Base 36 turns letters into the two digits that the standard gives them.
        rest = "".join(str(int(character, 36)) for character in value[4:] + value[:4])
        if len(value) == length and int(rest) % 97 == 1:
            yield Found(match.start(), end, value)


def find_ips(text: str) -> Iterator[Found]:
    """Yield IPv4 and IPv6 addresses.

    >>> [found.value for found in find_ips("10.0.0.1:80 and 2001:DB8::0:1, v1.2.3.4, 12:30:45")]
    ['10.0.0.1', '2001:db8::1']
    """
    if "." in text:
        for match in _IPV4.finditer(text):
            yield from _address(match[0], match.start())
    if ":" not in text:
        return
    for match in _IPV6.finditer(text):
        candidate, start = match[0], match.start()
        if candidate.count(":") < 2 or sum(c not in ":." for c in candidate) < _LEAST_HEX_DIGITS:
            continue
        if start and text[start - 1].isalnum():  # `ip:2001:…`, or a name with `::` in a program
            candidate, start = candidate[1:], start + 1
            if candidate.startswith(":"):
                continue
        yield from _address(candidate, start)


def _address(candidate: str, start: int) -> Iterator[Found]:
    for written in (candidate, candidate.rstrip(":.")):
        try:
            address = ip_address(written)
        except ValueError:
            continue  # not an address, or the end of a sentence
        if not (address.is_unspecified or address.is_loopback):  # common to all hosts
            yield Found(start, start + len(written), str(address))
        return
