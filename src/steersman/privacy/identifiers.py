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
_CARD_GROUP = range(3, 7)  # digits per group, if there are several groups
# First and last prefix of an issuer, and the allowed numbers of digits.
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
# SWIFT registry: IBAN length in characters, by country.
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


class TextFinding(NamedTuple):
    """Finding in a text.

    Attributes:
        start: index of the first character.
        end: index after the last character.
        value: normalised value.
    """

    start: int
    end: int
    value: str


def find_emails(text: str) -> Iterator[TextFinding]:
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
            yield TextFinding(at - len(local), match.end(), (local + match[0]).lower())


def find_cards(text: str) -> Iterator[TextFinding]:
    """Yield payment cards: 12 to 19 digits with a valid Luhn check digit.

    One in ten random numbers passes Luhn's check. So prefix and length must fit a known issuer, or
    a word before the number must announce a card.

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
                yield TextFinding(
                    run.start() + start, run.start() + end, digits[begin : ends[last]]
                )
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
    # The word in `[card]` does not announce a number.
    return _CALLED_CARD.search(text[max(0, start - _BEFORE) : start]) is not None


def _issued(digits: str) -> bool:
    return any(
        first <= digits[: len(first)] <= last and len(digits) in lengths
        for first, last, lengths in _ISSUERS
    )


def _luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[::-2])) + sum(doubled)) % 10 == 0


def find_ibans(text: str) -> Iterator[TextFinding]:
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
        # Allow groups of four, or digits in any grouping, but not words of a sentence.
        if any(gap % 4 for gap in gaps) and not value[4:].isdecimal():
            continue
        value = value.upper()
        # Base 36 gives letters the two digits that the standard defines.
        rest = "".join(str(int(character, 36)) for character in value[4:] + value[:4])
        if len(value) == length and int(rest) % 97 == 1:
            yield TextFinding(match.start(), end, value)


def find_ips(text: str) -> Iterator[TextFinding]:
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


def _address(candidate: str, start: int) -> Iterator[TextFinding]:
    for written in (candidate, candidate.rstrip(":.")):
        try:
            address = ip_address(written)
        except ValueError:
            continue  # not an address, or the end of a sentence
        if not (address.is_unspecified or address.is_loopback):  # common to all hosts
            yield TextFinding(start, start + len(written), str(address))
        return


_GAP = r"[ \u00a0.\-\u2010\u2011\u2013/()]"
_ALONE = r"(?<![\w+-])(?<!\d[.,:/])"  # not the rest of a longer number, time, code or word
_EXTENSION = r"(?: ?(?:x|ext\.?) ?\d{1,6}+)?"

_INTERNATIONAL = re.compile(
    rf"(?<![\w+])\+\(?(?:1(?:{_GAP}{{0,3}}\d){{10}}|[1-9](?:{_GAP}{{0,3}}\d){{7,14}})(?!\d)"
    + _EXTENSION
)
_NATIONAL = (
    re.compile(rf"{_ALONE}00[1-9]\d{{0,2}}(?={_GAP})(?:{_GAP}{{0,3}}\d){{7,13}}(?!\d){_EXTENSION}"),
    # North America, all groups joined by the same sign; then areas in parentheses elsewhere.
    re.compile(
        rf"{_ALONE}(?:(?:1|001)[ .-]?)?"
        r"(?:\([2-9]\d\d\)[ .-]?\d{3}[ .-]?\d{4}|[2-9]\d\d([ \u00a0.\-\u2011])\d{3}\1\d{4})"
        rf"{_EXTENSION}(?!\w)(?![.,-]\d)"
    ),
    re.compile(rf"{_ALONE}\([1-9]\d\) ?\d{{3,5}}[ -]\d{{3,4}}(?!\w)(?![.,-]\d)"),
)
_WITH_TRUNK_0 = re.compile(
    rf"{_ALONE}\(?0\d{{1,5}}\)?(?: ?[/.\-\u2011\u2013] ?| )"
    r"\d{2,8}(?:[ .\-/]\d{2,8}){0,4}(?!\w)"
)
_ANY = re.compile(rf"{_ALONE}\(?\d(?:{_GAP}{{0,2}}\d){{6,14}}(?!\d){_EXTENSION}")

_DATE = re.compile(
    r"\(?(?:\d{1,2}([./-])\d{1,2}\1(?:\d{4}|\d\d)(?!\1?\d)|\d{4}([./-])\d{1,2}\2\d{1,2}(?!\d))"
)
_GROUP_END = re.compile(r"\d(?!\d)")

# No end of sentence and no bracket between word and number: the word in `[phone]` does
# not announce a number.
_CALLED_PHONE = re.compile(
    r"\b(?:t[eé]l[eé]phones?|phones?|tel|mobile|cell(?: ?phone| number|(?=:))|fax|call|text me|"
    r"whatsapp|sms|dial|telefon\w*|mobil\w*|handy\w*|rufnummer|portable|tel[eé]fon[oe]|m[oó]vil|"
    r"celular|cellulare)\b\.?(?::\s{0,3})?[^\d\].!?\n]{0,20}\Z",
    re.IGNORECASE,
)
_CALLED_ELSE = re.compile(
    r"\b(?:order|invoice|ref|reference|ticket|case|sku|isbn|tracking|serial|part|item|article|"
    r"account|acct|version|bestell\w*|rechnung\w*|auftrag\w*|commande|facture|pedido|factura)\b"
    r"[^\d\]]{0,12}\Z",
    re.IGNORECASE,
)
_LEAST_UNBROKEN = 9  # digits after a plus: fewer may be a signed amount
_NATIONAL_DIGITS = range(9, 14)


def find_phones(text: str) -> Iterator[TextFinding]:
    """Yield phone numbers; the value has the digits, after a plus if present.

    >>> [found.value for found in find_phones("+49 (0)30 123456, order 5551234567, 2024-01-02")]
    ['+49030123456']
    >>> [found.value for found in find_phones("Ring (555) 123-4567 or 020 7946 0958")]
    ['5551234567', '02079460958']
    """
    for match in _INTERNATIONAL.finditer(text):
        if len(match[0]) > _digits(match[0]) + 1 or _digits(match[0]) >= _LEAST_UNBROKEN:
            yield _found(text, *match.span())
    for pattern in _NATIONAL:
        for match in pattern.finditer(text):
            if not _called_else(text, match.start()):
                yield _found(text, *match.span())
    for match in _WITH_TRUNK_0.finditer(text):
        end = _national_end(text, *match.span())
        if end and not _DATE.match(match[0]) and not _called_else(text, match.start()):
            yield _found(text, match.start(), end)
    for match in _ANY.finditer(text):
        if _called_phone(text, match.start()) and not _DATE.match(match[0]):
            yield _found(text, *match.span())


def _found(text: str, start: int, end: int) -> TextFinding:
    written = text[start:end]
    if written[0] == "(" and ")" not in written:
        start, written = start + 1, written[1:]
    digits = "".join(str(int(sign)) for sign in written if sign.isdecimal())
    return TextFinding(start, end, f"+{digits}" if written[0] == "+" else digits)


def _digits(written: str) -> int:
    return sum(sign.isdecimal() for sign in written)


def _national_end(text: str, start: int, end: int) -> int | None:
    """Return the end of the longest run of groups that form one number."""
    ends = [match.end() for match in _GROUP_END.finditer(text, start, end)]
    return next((e for e in reversed(ends) if _digits(text[start:e]) in _NATIONAL_DIGITS), None)


def _called_phone(text: str, start: int) -> bool:
    return _CALLED_PHONE.search(text[max(0, start - _BEFORE) : start]) is not None


def _called_else(text: str, start: int) -> bool:
    before = text[max(0, start - _BEFORE) : start]
    return _CALLED_ELSE.search(before) is not None and _CALLED_PHONE.search(before) is None
