"""The context: what is known about a request when a choice is due, and how it becomes numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from steersman.spec.base import ONCE, Declared, Identifier, Positive, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator


class TextField(Declared):
    """Free text, hashed by words and by character n-grams."""

    type: Literal["text"]
    """What kind of field this is."""
    words: bool = True
    """Whether whole words count."""
    ngrams: Annotated[
        tuple[Annotated[int, Field(ge=1, le=8)], ...],
        Field(strict=False, max_length=4, json_schema_extra=ONCE),
    ] = (3, 4)
    """Lengths of the character n-grams that count, each 1 to 8 and named once; empty for none."""
    weight: Positive = 1.0
    """How much this field counts beside the other hashed fields."""
    missing: Literal["empty", "refuse"] = "empty"
    """What an absent value means: the empty text, or an error."""
    max_chars: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    """The longest text that is taken as it is, in characters."""
    too_long: Literal["refuse", "truncate"] = "refuse"
    """What happens to a longer text: an error, or only its first `max_chars` characters count."""

    def _problems(self) -> Iterator[Problem]:
        if not self.words and not self.ngrams:
            yield Problem(
                ("ngrams",),
                "a text field with neither words nor n-grams says nothing",
                list(self.ngrams),
                "one to four lengths, 1 to 8",
                "set words: true or name n-gram lengths",
            )
        for place, length in enumerate(self.ngrams):
            if length in self.ngrams[:place]:
                allowed = "each length once"
                yield Problem(("ngrams", place), "named twice", length, allowed, "remove one")


class CategoryField(Declared):
    """One of a set of names that need not be known beforehand."""

    type: Literal["category"]
    """What kind of field this is."""
    weight: Positive = 1.0
    """How much this field counts beside the other hashed fields."""
    missing: Literal["bucket", "refuse"] = "bucket"
    """What an absent value means: a category of its own, or an error."""


class NumberField(Declared):
    """A number, centred and scaled by statistics that are declared, or fitted once and frozen."""

    type: Literal["number"]
    """What kind of field this is."""
    scale: Literal["none", "zscore", "robust"] = "zscore"
    """`zscore`: (v - mean) / sd. `robust`: (v - median) / (iqr / 1.349), or / sd where
    the iqr to be fitted is 0. `none`: v itself."""
    mean: float | None = None
    """Centre of `zscore`; null to be fitted."""
    sd: Positive | None = None
    """Spread of `zscore`, above 0; null to be fitted."""
    median: float | None = None
    """Centre of `robust`; null to be fitted."""
    iqr: Positive | None = None
    """Distance between the quartiles for `robust`, above 0; null to be fitted."""
    clip: Annotated[float, Field(gt=0, le=100)] = 3.0
    """Scaled values beyond ± this are cut; ± this is the end of the slot's range."""
    weight: Positive = 1.0
    """How much this field counts beside the other numbers."""
    missing: Literal["mean", "flag", "refuse"] = "mean"
    """What an absent value or NaN means: the centre, the centre and a slot that says so, or an
    error."""

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
    """A dense vector such as an embedding, count-sketched into the hashed slots."""

    type: Literal["vector"]
    """What kind of field this is."""
    size: Annotated[int, Field(ge=1, le=8192)]
    """Number of entries every value must have."""
    weight: Positive = 1.0
    """How much this field counts beside the other hashed fields."""
    missing: Literal["zero", "refuse"] = "zero"
    """What an absent value means: the zero vector, or an error."""


ContextField = Annotated[
    TextField | CategoryField | NumberField | VectorField, Field(discriminator="type")
]


class Context(Declared):
    """The context's fields and the length of the vector they become."""

    dim: Annotated[int, Field(ge=8, le=4096)] = 64
    """Length of the vector, 8 to 4096: a bias, the numbers, and the hashed rest."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Seed of the hash; another one gives other collisions."""
    fields: dict[Identifier, ContextField] = Field(default_factory=dict)
    """Fields by name; their order has no meaning."""

    def number_slots(self) -> int:
        """Return how many slots numbers take: one each, two when a missing one is flagged."""
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
                "the hashed fields",
                self.dim,
                f"{least} to 4096",
                "raise dim or declare fewer numbers",
            )
