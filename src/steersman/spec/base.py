"""What every declared part shares: strictness, immutability, and problems with a way out."""

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
"""Complaints of which each is told what was probably meant: no more of them are read."""
UNADVISED = "correct or remove it"
"""What is advised where nobody knows what was meant."""


def _no_truth(value: object) -> object:
    """Return a version as it was written; to Python, but to nobody else, true is 1."""
    if isinstance(value, bool):
        raise PydanticKnownError("literal_error", {"expected": "1"})
    return value


FormatVersion = Annotated[Literal[1], BeforeValidator(_no_truth)]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
# No control or format characters, and no white space at the ends: what people cannot see must not
# tell names apart. Spelt out, since patterns of JSON Schema know no classes of Unicode; those
# beyond its first 65,536 characters are left to `_visible`.
_UNSEEN = (
    r"\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
)
# Letters, marks and a symbol that nothing is drawn for, whatever their class says.
_BLANK = r"\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
_SPACES = r" \xa0\u1680\u2000-\u200a\u202f\u205f\u3000"
_VARIANTS = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_HIDDEN = _UNSEEN + _BLANK


def _visible(name: str) -> str:
    """Return a name, unless it has format characters that the pattern cannot tell, or no others."""
    odd = not name.isascii() and any(category(one) == "Cf" for one in name)
    if odd or (name and not _VARIANTS.sub("", name)):
        details = {
            "what": "not a name",
            "allowed": "1 to 200 printable characters, none invisible",
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
# A YAML list arrives as a Python list: the container may be either, its items stay strict.
ONCE: dict[str, JsonValue] = {"uniqueItems": True}
ActionNames = Annotated[tuple[ActionName, ...], Field(strict=False, json_schema_extra=ONCE)]
Identifiers = Annotated[tuple[Identifier, ...], Field(strict=False, json_schema_extra=ONCE)]


class Meant(NamedTuple):
    """Advice that is sought only where it is told: the known name that is nearest."""

    name: str
    known: list[str]


class Problem(NamedTuple):
    """One thing that is wrong in a declaration, and what would be right."""

    path: tuple[str | int, ...]
    what: str
    got: object
    allowed: str
    advice: str | Meant


class Declared(BaseModel):
    """A part of a decision point: unknown fields, loose types and non-finite numbers are refused.

    Parts check what concerns several of their own fields in `_problems`; all of them are reported
    together, each at its own field.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
    )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy in which some fields have other values, unchecked as always in pydantic.

        What was worked out of the old values and kept, such as a hash, is not copied with them.

        Args:
            update: new values by name.
            deep: whether the values are copied, too.
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
    """Return pydantic's error that carries each problem at its own place.

    What was probably meant is sought for the first hundred: among many names it takes long.
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
    """Yield place and name of every entry that was there before.

    Names are the same where people read the same: é is one character or two, composed or not, and
    a selector after a sign asks for another drawing of it, which few programs have.
    """
    seen: set[str] = set()
    for place, name in enumerate(names):
        composed = normalize("NFC", _VARIANTS.sub("", name))
        if composed in seen:
            yield place, name
        seen.add(composed)


def out_of_order(low: float, high: float) -> Iterator[Problem]:
    """Yield the problem of bounds that leave nothing between them."""
    if low >= high:
        yield Problem(
            ("low",),
            f"low is not below high ({high!r})",
            low,
            f"below {high!r}",
            "lower low or raise high",
        )


def repeats(field: str, names: tuple[str, ...]) -> Iterator[Problem]:
    """Yield the problem of every name of a field that was there before."""
    first = {name: place for place, name in reversed([*enumerate(names)])}
    for place, name in repeated(names):
        again = first[name] < place
        what = "named twice" if again else "another spelling of a name before it (Unicode)"
        yield Problem((field, place), what, name, "each name once", "remove or rename it")


def some_of(names: Iterable[str]) -> str:
    """Return names as errors list them: the first 20, and how many more there are."""
    known = list(names)
    more = f" and {len(known) - _MOST_LISTED:,} more" if len(known) > _MOST_LISTED else ""
    return ", ".join(known[:_MOST_LISTED]) + more


def nearest(name: str, known: list[str]) -> str:
    """Return advice that names what was probably meant; among many thousands nobody looks."""
    close = get_close_matches(name, known, n=1) if len(known) <= _MOST_COMPARED else []
    return f"did you mean {close[0]}?" if close else UNADVISED
