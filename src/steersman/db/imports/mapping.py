"""Mapping of log fields to decisions and outcomes, declared in YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Discriminator, Field, Tag

from steersman.errors import SpecError
from steersman.spec.base import Declared, FormatVersion, Identifier, Problem, as_validation_error
from steersman.spec.validation_errors import complaints, report
from steersman.spec.yaml_files import read_declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from steersman.spec.document import Document

FieldName = Annotated[str, Field(min_length=1, max_length=200)]


class Value(Declared):
    """Field of a row and its meaning."""

    field: FieldName
    """Field or column name; dots address nested values."""
    rename: dict[str, str] = Field(default_factory=dict)
    """Renames log names; other names stay unchanged."""
    default: str | float | bool | None = None
    """Value of an absent or empty field; null: missing."""


def _value_tag(value: object) -> str:
    return "#field" if isinstance(value, str) else "#value"


ValueOrField = Annotated[
    Annotated[FieldName, Tag("#field")] | Annotated[Value, Tag("#value")],
    Discriminator(_value_tag),
]


class Time(Declared):
    """Time of a row."""

    field: FieldName
    """Field or column name."""
    format: Annotated[str, Field(min_length=1, max_length=100)] = "iso"
    """`iso` (ISO 8601), `unix_s`, `unix_ms`, `unix_us`, or a pattern such as
    `%d.%m.%Y %H:%M:%S`."""
    timezone: Annotated[str, Field(max_length=100)] = "UTC"
    """Time zone of times without one, such as `Europe/Stockholm`."""

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
    """Propensity of the logged action; set exactly one field."""

    field: FieldName | None = None
    """Field with the propensity."""
    constant: Annotated[float, Field(gt=0, le=1)] | None = None
    """Same propensity for every row: 1 / 3 for a uniform draw of three."""
    distribution: FieldName | None = None
    """Field with the probability of every action: a mapping, or a list in the order of
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
    """Mapping of a log."""

    format: FormatVersion
    """Format version."""
    source: Identifier
    """Log name, part of every id: the same row of the same log is one decision."""
    skill: Identifier
    """Skill name."""
    decision: Identifier
    """Decision point name."""
    rows: Literal["jsonl", "csv", "parquet"] | None = None
    """File type; null: from the file name."""
    where: dict[FieldName, Annotated[tuple[str, ...], Field(strict=False, min_length=1)]] = Field(
        default_factory=dict
    )
    """Allowed values by field; other rows are skipped."""
    id: FieldName | None = None
    """Field with the row id; null: the id comes from the row's content."""
    time: Time
    """Decision time."""
    context: dict[Identifier, ValueOrField] = Field(default_factory=dict)
    """Context values by declared field."""
    action: ValueOrField
    """Chosen action."""
    eligible: FieldName | None = None
    """Field with the eligible actions (in CSV, separated by `|`); null: all declared ones."""
    features: FieldName | None = None
    """Field with action features: a mapping of lists by action."""
    propensity: Propensity | None = None
    """Propensity of the action. Rows with one are evidence; null: rows only warm-start."""
    outcomes: dict[Identifier, ValueOrField] = Field(default_factory=dict)
    """Outcomes by name."""
    outcome_time: Time | None = None
    """Time of the outcomes; null: the decision time."""
    unit: ValueOrField | None = None
    """Unit that stays on one arm: user or session."""
    episode: ValueOrField | None = None
    """Episode id: a conversation or a task."""
    trust: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Number of observations that a row counts for in learning."""


class LoadedMapping:
    """Mapping with its document, for errors with line numbers.

    Args:
        mapping: the declaration.
        document: its YAML document.
        source: file name.
    """

    def __init__(self, mapping: LogMapping, document: Document, source: str) -> None:
        self.mapping, self._document, self._source = mapping, document, source

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Raise one error for all problems, if any.

        Raises:
            SpecError: there are problems.
        """
        listed = list(problems)
        if listed:
            found = complaints(as_validation_error("mapping", listed), self._document, _schema())
            raise SpecError(report(self._source, found))


def load_mapping(path: Path) -> LoadedMapping:
    """Return the mapping of a YAML file.

    Args:
        path: UTF-8 file of at most 256 KiB.

    Returns:
        The mapping with defaults.

    Raises:
        SpecError: the file cannot be read or is invalid; all problems are listed.
    """
    mapping, document = read_declared(path, LogMapping)
    return LoadedMapping(mapping, document, str(path))


def field_of(value: str | Value) -> Value:
    """Return a value in its long form."""
    return Value(field=value) if isinstance(value, str) else value


def _schema() -> dict[str, Any]:
    return LogMapping.model_json_schema()
