"""How the rows of a log become decisions and outcomes, declared in YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Discriminator, Field, Tag

from steersman.errors import SpecError
from steersman.spec.base import Declared, FormatVersion, Identifier, Problem, as_validation_error
from steersman.spec.complaints import complaints, report
from steersman.spec.reading import read_declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from steersman.spec.document import Document

FieldName = Annotated[str, Field(min_length=1, max_length=200)]


class Value(Declared):
    """A value of a row: which field, and what it means."""

    field: FieldName
    """Name of the field or column; dots lead into nested values."""
    rename: dict[str, str] = Field(default_factory=dict)
    """What the log's names are called here; others stay as they are."""
    default: str | float | bool | None = None
    """What an absent or empty field means; null: it is missing."""


def _value_tag(value: object) -> str:
    return "#field" if isinstance(value, str) else "#value"


ValueOrField = Annotated[
    Annotated[FieldName, Tag("#field")] | Annotated[Value, Tag("#value")],
    Discriminator(_value_tag),
]


class Time(Declared):
    """When something happened."""

    field: FieldName
    """Name of the field or column."""
    format: Annotated[str, Field(min_length=1, max_length=100)] = "iso"
    """`iso` (ISO 8601), `unix_s`, `unix_ms`, `unix_us`, or a pattern such as
    `%d.%m.%Y %H:%M:%S`."""
    timezone: Annotated[str, Field(max_length=100)] = "UTC"
    """Of times that do not say theirs, such as `Europe/Stockholm`."""

    def _problems(self) -> Iterator[Problem]:
        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            yield Problem(
                ("timezone",),
                "unknown time zone",
                self.timezone,
                "names such as UTC or Europe/Stockholm",
                "correct it",
            )
        if "%" not in self.format and self.format not in ("iso", "unix_s", "unix_ms", "unix_us"):
            yield Problem(
                ("format",),
                "unknown time format",
                self.format,
                "iso, unix_s, unix_ms, unix_us or a pattern with %",
                "correct it",
            )


class Propensity(Declared):
    """With which probability the logged action was drawn; exactly one of the three."""

    field: FieldName | None = None
    """The field that holds it."""
    constant: Annotated[float, Field(gt=0, le=1)] | None = None
    """The same for every row: 1 / 3 for an even draw of three."""
    distribution: FieldName | None = None
    """The field that holds the probability of every action: a mapping, or a list in the order of
    the actions."""

    def _problems(self) -> Iterator[Problem]:
        given = [n for n in ("field", "constant", "distribution") if getattr(self, n) is not None]
        if len(given) != 1:
            yield Problem(
                (given[1],) if given else (),
                "expected exactly one source of propensities",
                given,
                "exactly one of field, constant and distribution",
                "keep one, or leave propensity out",
            )


class LogMapping(Declared):
    """What the rows of one log mean."""

    format: FormatVersion
    """Version of this format."""
    source: Identifier
    """Name of the log. It is part of every id: the same row of the same log is one decision."""
    skill: Identifier
    """The application capability whose decisions these are."""
    decision: Identifier
    """The decision point, as it is declared."""
    rows: Literal["jsonl", "csv", "parquet"] | None = None
    """What kind of file it is; null: by the end of its name."""
    where: dict[FieldName, Annotated[tuple[str, ...], Field(strict=False, min_length=1)]] = Field(
        default_factory=dict
    )
    """Only rows whose field has one of these values are taken; others are passed over."""
    id: FieldName | None = None
    """The field that names the row; null: the row is named by all that is in it."""
    time: Time
    """When the decision was made."""
    context: dict[Identifier, ValueOrField] = Field(default_factory=dict)
    """What was known, by declared context field."""
    action: ValueOrField
    """What was chosen."""
    eligible: FieldName | None = None
    """The field that lists what could have been chosen (in CSV, with `|` between); null: all that
    is declared."""
    features: FieldName | None = None
    """The field that holds the candidates' features: a mapping of lists by action."""
    propensity: Propensity | None = None
    """With it, rows are evidence; null: they only warm-start."""
    outcomes: dict[Identifier, ValueOrField] = Field(default_factory=dict)
    """What happened then, by name of the outcome."""
    outcome_time: Time | None = None
    """When that was; null: at the time of the decision."""
    unit: ValueOrField | None = None
    """What stays on one arm: user, session."""
    episode: ValueOrField | None = None
    """What the decision belongs to with others: a conversation, a task."""
    trust: Annotated[float, Field(gt=0, le=1)] = 0.1
    """How many observations one row counts for when it is learned."""


class LoadedMapping:
    """A mapping and the document it was read from, to complain at the right line.

    Args:
        mapping: the declaration.
        document: what it was read from.
        source: name of the file.
    """

    def __init__(self, mapping: LogMapping, document: Document, source: str) -> None:
        self.mapping, self._document, self._source = mapping, document, source

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Complain about all problems at once, if there are any.

        Args:
            problems: each at its own field.

        Raises:
            SpecError: there are some.
        """
        listed = list(problems)
        if listed:
            found = complaints(as_validation_error("mapping", listed), self._document, _schema())
            raise SpecError(report(self._source, found))


def load_mapping(path: Path) -> LoadedMapping:
    """Return the mapping declared in a YAML file.

    Args:
        path: UTF-8, at most 256 KiB.

    Returns:
        The mapping, defaults filled in.

    Raises:
        SpecError: the file cannot be read, or what it declares is wrong; all problems are listed.
    """
    mapping, document = read_declared(path, LogMapping)
    return LoadedMapping(mapping, document, str(path))


def field_of(value: str | Value) -> Value:
    """Return a value in its long form."""
    return Value(field=value) if isinstance(value, str) else value


def _schema() -> dict[str, Any]:
    return LogMapping.model_json_schema()
