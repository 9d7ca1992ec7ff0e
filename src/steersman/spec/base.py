"""Base model of all declared parts: strict, frozen, with problems that say what to do."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self
from unicodedata import category, normalize

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticKnownError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_MOST_LISTED = 20
_MOST_COMPARED = 1_000  # names, of which the nearest is found; among more it takes seconds
MOST_ADVISED = 100
"""Number of errors that get a spelling suggestion. A search over more takes too long."""
UNADVISED = "correct or remove it"
"""Advice when no similar name is known."""


def _no_truth(value: object) -> object:
    """Return the version; refuse true, which Python would accept as 1."""
    if isinstance(value, bool):
        raise PydanticKnownError("literal_error", {"expected": "1"})
    return value


FormatVersion = Annotated[Literal[1], BeforeValidator(_no_truth)]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
# No control or format characters, and no white space at the ends: two names must not differ only in
# invisible characters. Listed one by one, because JSON Schema patterns have no Unicode classes.
# `_visible` checks characters above U+FFFF.
_UNSEEN = (
    r"\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
)
# Letters, marks and a symbol that are drawn as blank, whatever their Unicode class.
_BLANK = r"\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
_SPACES = r" \xa0\u1680\u2000-\u200a\u202f\u205f\u3000"
_VARIANTS = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_HIDDEN = _UNSEEN + _BLANK


def _visible(name: str) -> str:
    """Return the name; refuse other format characters, and names without visible ones."""
    odd = not name.isascii() and any(category(one) == "Cf" for one in name)
    if odd or (name and not _VARIANTS.sub("", name)):
        details = {
            "what": "not a valid name",
            "allowed": "1 to 200 printable, visible characters",
            "advice": "rename it",
        }
        raise PydanticCustomError("declared", "{what}; allowed {allowed}; {advice}", details)
    return name


ActionName = Annotated[
    str,
    Field(pattern=rf"^[^{_HIDDEN}{_SPACES}]([^{_HIDDEN}]*[^{_HIDDEN}{_SPACES}])?$", max_length=200),
    AfterValidator(_visible),
]
PartValue = Annotated[
    str, Field(pattern=rf"^[^{_HIDDEN}]+$", max_length=200), AfterValidator(_visible)
]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
# A YAML list arrives as a Python list. The container may be a list or tuple; items stay strict.
ONCE: dict[str, JsonValue] = {"uniqueItems": True}
ActionNames = Annotated[tuple[ActionName, ...], Field(strict=False, json_schema_extra=ONCE)]
Identifiers = Annotated[tuple[Identifier, ...], Field(strict=False, json_schema_extra=ONCE)]


class Meant(NamedTuple):
    """Spelling suggestion, computed only for errors that are reported."""

    name: str
    known: list[str]


class Problem(NamedTuple):
    """One error in a declaration, with what is allowed and what to do."""

    path: tuple[str | int, ...]
    what: str
    got: object
    allowed: str
    advice: str | Meant


class Declared(BaseModel):
    """Part of a decision point. It refuses unknown fields, wrong types and non-finite numbers.

    A part checks combinations of its own fields in `_problems`. All problems are reported
    together, each at its field.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
    )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields replaced, without validation as always in pydantic.

        Cached values, such as a hash, are dropped because they belong to the old fields.
        """
        copied = super().model_copy(update=update, deep=deep)
        if update:
            for name in copied.__dict__.keys() - type(self).model_fields:
                del copied.__dict__[name]
        return copied

    def _problems(self) -> Iterator[Problem]:
        yield from ()

    @model_validator(mode="after")
    def _refuse_problems(self) -> Self:
        problems = list(self._problems())
        if problems:
            raise as_validation_error(type(self).__name__, problems)
        return self


def as_validation_error(title: str, problems: Iterable[Problem]) -> ValidationError:
    """Return a pydantic error with each problem at its field.

    Only the first hundred get a spelling suggestion: the search is slow among many names.
    """
    return ValidationError.from_exception_data(
        title,
        [
            InitErrorDetails(
                type=PydanticCustomError(
                    "declared",
                    "{what}; allowed {allowed}; {advice}",
                    {
                        "what": problem.what,
                        "allowed": problem.allowed,
                        "advice": _advice(problem.advice, told=place < MOST_ADVISED),
                    },
                ),
                loc=problem.path,
                input=problem.got,
            )
            for place, problem in enumerate(problems)
        ],
    )


def _advice(advice: str | Meant, *, told: bool) -> str:
    if isinstance(advice, Meant):
        return nearest(*advice) if told else UNADVISED
    return advice


def repeated(names: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield place and name of every duplicate entry.

    Two names are equal if they look the same: composed or decomposed Unicode, with or without
    variation selectors.
    """
    seen: set[str] = set()
    for place, name in enumerate(names):
        composed = normalize("NFC", _VARIANTS.sub("", name))
        if composed in seen:
            yield place, name
        seen.add(composed)


def out_of_order(low: float, high: float) -> Iterator[Problem]:
    """Yield a problem if `low` is not below `high`."""
    if low >= high:
        yield Problem(
            ("low",),
            f"low is not below high ({high!r})",
            low,
            f"below {high!r}",
            "lower low or raise high",
        )


def repeats(field: str, names: tuple[str, ...]) -> Iterator[Problem]:
    """Yield a problem for every duplicate name of a field."""
    first = {name: place for place, name in reversed([*enumerate(names)])}
    for place, name in repeated(names):
        again = first[name] < place
        what = "named twice" if again else "same name as an earlier one after Unicode normalization"
        yield Problem((field, place), what, name, "each name once", "remove or rename it")


def some_of(names: Iterable[str]) -> str:
    """Return the first 20 names, and how many more there are."""
    known = list(names)
    more = f" and {len(known) - _MOST_LISTED:,} more" if len(known) > _MOST_LISTED else ""
    return ", ".join(known[:_MOST_LISTED]) + more


def nearest(name: str, known: list[str]) -> str:
    """Return advice with the most similar known name, if one is similar."""
    close = get_close_matches(name, known, n=1) if len(known) <= _MOST_COMPARED else []
    return f"did you mean {close[0]}?" if close else UNADVISED
