"""Entry of a data file with typed fields; errors name file and line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a data file.

    Args:
        where: file and line, or list position, for error messages.
        fields: name -> JSON value.

    >>> Entry("dev.json, line 3", {"id": 7}).name("id")
    '7'
    """

    where: str
    fields: Mapping[str, Any]

    def text(self, field: str, *, default: str | None = None) -> str:
        """Return a text field.

        Args:
            default: value if the field is missing or null; None: the field is required.

        Raises:
            DataError: the field has another type.
        """
        value = self.fields.get(field)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.wrong(field, "a text")
        return value

    def name(self, field: str, *, default: str | None = None) -> str:
        """Return an identifier field: a non-blank text or a whole number.

        Args:
            default: value if the field is missing or null; None: the field is required.

        Raises:
            DataError: the field has another type.
        """
        value = self.fields.get(field)
        if value is None and default is not None:
            return default
        if type(value) is int:
            return str(value)
        if isinstance(value, str) and value.strip():
            return value
        raise self.wrong(field, "a name or whole number")

    def texts(self, field: str) -> list[str]:
        """Return a field with a list of texts; [] if missing or null.

        Raises:
            DataError: the field has another type.
        """
        value = self.fields.get(field)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.wrong(field, "a list of texts")
        return value

    def names(self, field: str) -> list[str]:
        """Return a field with a list of identifiers; [] if missing or null.

        Raises:
            DataError: the field has another type.
        """
        value = self.fields.get(field)
        if value is None:
            return []
        if not isinstance(value, list) or not all(type(one) in {int, str} for one in value):
            raise self.wrong(field, "a list of names or whole numbers")
        return [str(one) for one in value]

    def whole(self, field: str) -> int:
        """Return a field with a whole number, or its digits as text.

        Raises:
            DataError: the field has another type.
        """
        value = self.fields.get(field)
        if isinstance(value, str) and value.isdecimal() and len(value) <= _DIGITS:
            return int(value)
        if type(value) is not int:
            raise self.wrong(field, "a whole number")
        return value

    def told(self, field: str, *, default: bool = False) -> bool:
        """Return a boolean field.

        Raises:
            DataError: the field has another type.
        """
        value = self.fields.get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(field, "true or false")
        return value

    def inner(self, field: str) -> Entry:
        """Return an object field.

        Raises:
            DataError: the field has another type.
        """
        value = self.fields.get(field)
        if not isinstance(value, dict):
            raise self.wrong(field, "an object")
        return Entry(f"{self.where}, {field}", value)

    def each(self, field: str) -> Iterator[Entry]:
        """Return a field with a list of objects; none if missing.

        Raises:
            DataError: the field has another type.
        """
        value = self.fields.get(field)
        if value is None:
            return
        if not isinstance(value, list):
            raise self.wrong(field, "a list of objects")
        for place, one in enumerate(value, 1):
            where = f"{self.where}, {field} {place}"
            if not isinstance(one, dict):
                raise DataError(f"{where} is {str(one)[:40]!r}; it must be an object")
            yield Entry(where, one)

    def wrong(self, field: str, wanted: str) -> DataError:
        """Return the error for a field of the wrong type."""
        seen = repr(self.fields[field])[:60] if field in self.fields else "absent"
        return DataError(f"{self.where}: {field} is {seen}; it must be {wanted}")
