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
    """One object of a file.

    Args:
        where: file and line (or place in a list), as a person looks it up.
        fields: name -> value, as JSON has them.

    >>> Entry("dev.json, line 3", {"id": 7}).name("id")
    '7'
    """

    where: str
    fields: Mapping[str, Any]

    def text(self, field: str, *, default: str | None = None) -> str:
        """Return a field that must be a text.

        Args:
            default: for one that is absent or null; None: it must be there.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.wrong(field, "a text")
        return value

    def name(self, field: str, *, default: str | None = None) -> str:
        """Return a field that names something: a text that is not blank, or a whole number.

        Args:
            default: for one that is absent or null; None: it must be there.

        Raises:
            DataError: it is something else.
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
        """Return a field that is a list of texts; [] if it is absent or null.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.wrong(field, "a list of texts")
        return value

    def names(self, field: str) -> list[str]:
        """Return a field that is a list of names or whole numbers; [] if it is absent or null.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if value is None:
            return []
        if not isinstance(value, list) or not all(type(one) in {int, str} for one in value):
            raise self.wrong(field, "a list of names or whole numbers")
        return [str(one) for one in value]

    def whole(self, field: str) -> int:
        """Return a field that must be a whole number, or a text of its digits.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if isinstance(value, str) and value.isdecimal() and len(value) <= _DIGITS:
            return int(value)
        if type(value) is not int:
            raise self.wrong(field, "a whole number")
        return value

    def told(self, field: str, *, default: bool = False) -> bool:
        """Return a field that is true or false.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(field, "true or false")
        return value

    def inner(self, field: str) -> Entry:
        """Return a field that must be an object.

        Raises:
            DataError: it is something else.
        """
        value = self.fields.get(field)
        if not isinstance(value, dict):
            raise self.wrong(field, "an object")
        return Entry(f"{self.where}, {field}", value)

    def each(self, field: str) -> Iterator[Entry]:
        """Return the objects of a field that must be a list of them; none if it is absent.

        Raises:
            DataError: it is something else.
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
        """Return the complaint that a field is not what it must be."""
        seen = repr(self.fields[field])[:60] if field in self.fields else "absent"
        return DataError(f"{self.where}: {field} is {seen}; it must be {wanted}")
