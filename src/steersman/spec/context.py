"""Context fields of a request, and their encoding as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from steersman.spec.base import ONCE, Declared, Identifier, Positive, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator


class TextField(Declared):
    """Free text, hashed by words and character n-grams."""

    type: Literal["text"]
    """Type of the field."""
    words: bool = True
    """Whether whole words are hashed."""
    ngrams: Annotated[
        tuple[Annotated[int, Field(ge=1, le=8)], ...],
        Field(strict=False, max_length=4, json_schema_extra=ONCE),
    ] = (3, 4)
    """Lengths of the hashed character n-grams, each 1 to 8, without duplicates. Empty: no
    n-grams."""
    weight: Positive = 1.0
    """Weight of the field relative to the other hashed fields."""
    missing: Literal["empty", "refuse"] = "empty"
    """Handling of a missing value. `empty`: use the empty text. `refuse`: raise an error."""
    max_chars: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    """Largest length of the text, in characters."""
    too_long: Literal["refuse", "truncate"] = "refuse"
    """Handling of a longer text. `refuse`: raise an error. `truncate`: use the first `max_chars`
    characters."""

    def _problems(self) -> Iterator[Problem]:
        if not self.words and not self.ngrams:
            yield Problem(
                ("ngrams",),
                "a text field needs words or n-grams",
                list(self.ngrams),
                "one to four lengths, 1 to 8",
                "set words: true or name n-gram lengths",
            )
        for place, length in enumerate(self.ngrams):
            if length in self.ngrams[:place]:
                allowed = "each length once"
                yield Problem(("ngrams", place), "named twice", length, allowed, "remove one")


class CategoryField(Declared):
    """One of a set of names. The set need not be declared."""

    type: Literal["category"]
    """Type of the field."""
    weight: Positive = 1.0
    """Weight of the field relative to the other hashed fields."""
    missing: Literal["bucket", "refuse"] = "bucket"
    """Handling of a missing value. `bucket`: use a separate category. `refuse`: raise an error."""


class NumberField(Declared):
    """A number, centred and scaled by statistics that are declared, or fitted once and frozen."""

    type: Literal["number"]
    """Type of the field."""
    scale: Literal["none", "zscore", "robust"] = "zscore"
    """`zscore`: (v - mean) / sd. `robust`: (v - median) / (iqr / 1.349); if the fitted iqr is 0,
    divided by sd. `none`: v unchanged."""
    mean: float | None = None
    """Centre for `zscore`. null: fitted from data."""
    sd: Positive | None = None
    """Standard deviation for `zscore`, above 0. null: fitted from data."""
    median: float | None = None
    """Centre for `robust`. null: fitted from data."""
    iqr: Positive | None = None
    """Interquartile range for `robust`, above 0. null: fitted from data."""
    clip: Annotated[float, Field(gt=0, le=100)] = 3.0
    """Limit of the scaled value: larger values are clipped to ± this."""
    weight: Positive = 1.0
    """Weight of the field relative to the other numbers."""
    missing: Literal["mean", "flag", "refuse"] = "mean"
    """Handling of a missing value or NaN. `mean`: use the centre. `flag`: use the centre and set an
    extra slot. `refuse`: raise an error."""

    def _problems(self) -> Iterator[Problem]:
        pairs = {"zscore": ("mean", "sd"), "robust": ("median", "iqr")}
        for scale, (centre, spread) in pairs.items():
            given = [name for name in (centre, spread) if getattr(self, name) is not None]
            if given and self.scale != scale:
                yield Problem(
                    (given[0],),
                    f"{' and '.join(given)} belong to scale {scale}, but scale is {self.scale}",
                    getattr(self, given[0]),
                    "null",
                    f"remove it or set scale: {scale}",
                )
            elif len(given) == 1:
                absent = spread if given == [centre] else centre
                yield Problem(
                    (given[0],),
                    f"{given[0]} without {absent}",
                    getattr(self, given[0]),
                    f"{centre} and {spread} together, or neither",
                    f"declare {absent} too, or remove both so that they are fitted",
                )


class VectorField(Declared):
    """A dense vector such as an embedding, hashed into slots by a count sketch."""

    type: Literal["vector"]
    """Type of the field."""
    size: Annotated[int, Field(ge=1, le=8192)]
    """Length of the vector."""
    weight: Positive = 1.0
    """Weight of the field relative to the other hashed fields."""
    missing: Literal["zero", "refuse"] = "zero"
    """Handling of a missing value. `zero`: use the zero vector. `refuse`: raise an error."""


ContextField = Annotated[
    TextField | CategoryField | NumberField | VectorField, Field(discriminator="type")
]


class Context(Declared):
    """Context fields, and the length of the vector that encodes them."""

    dim: Annotated[int, Field(ge=8, le=4096)] = 64
    """Length of the context vector: a bias, the numbers, and the hashed slots."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Seed of the hash function."""
    fields: dict[Identifier, ContextField] = Field(default_factory=dict)
    """Fields by name. The order has no meaning."""

    def number_slots(self) -> int:
        """Return the number of slots for numbers: one per field, two with `missing: flag`."""
        numbers = [field for field in self.fields.values() if field.type == "number"]
        return len(numbers) + sum(field.missing == "flag" for field in numbers)

    def _problems(self) -> Iterator[Problem]:
        taken = 1 + self.number_slots()
        hashed = any(field.type != "number" for field in self.fields.values())
        least = taken + (4 if hashed else 0)
        if self.dim < least:
            yield Problem(
                ("dim",),
                f"bias and numbers take {taken} slots and leave {max(0, self.dim - taken)} for "
                "hashed fields",
                self.dim,
                f"{least} to 4096",
                "raise dim or declare fewer numbers",
            )
