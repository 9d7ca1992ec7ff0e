"""Detector of phone numbers.

Digits alone can be an order, a price or a date. A number counts if it is international (``+49 …``),
grouped like a national number, or announced by a word before it. All patterns are bounded, so run
time is linear.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from steersman.privacy.identifiers import Found

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_BEFORE = 48
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


def find_phones(text: str) -> Iterator[Found]:
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


def _found(text: str, start: int, end: int) -> Found:
    written = text[start:end]
    if written[0] == "(" and ")" not in written:
        start, written = start + 1, written[1:]
    digits = "".join(str(int(sign)) for sign in written if sign.isdecimal())
    return Found(start, end, f"+{digits}" if written[0] == "+" else digits)


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
