"""Argument types that several commands share."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from steersman.wire import Refused, read


class Number(click.FloatRange):
    """A finite number in a range; `click.FloatRange` also accepts NaN and infinity.

    >>> Number(0).convert("1.5", None, None)
    1.5
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} must be a finite number", param, ctx)
        return number

    def _describe_range(self) -> str:
        # click shows "x<=None" in the help of a range without ends.
        return "" if self.min is None and self.max is None else super()._describe_range()


class Folder(click.Path):
    """A directory path, which may not exist yet; ``~`` is expanded to the user's home.

    The shell does not expand ``~`` in a file of variables or behind ``--home=``.

    >>> Folder().convert("a/~b", None, None)
    PosixPath('a/~b')
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        try:
            folder = Path(value).expanduser()
        except RuntimeError as error:  # unknown user, or a user without a home
            self.fail(f"{str(value)!r}: {error}", param, ctx)
        return super().convert(folder, param, ctx)


class JsonObject(click.ParamType[dict[str, Any]]):
    """A JSON object."""

    name = "JSON"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        """Return the object."""
        try:
            # The same checks as in the service: for example, no duplicate keys.
            found = read(value.encode()) if isinstance(value, str) else value
        except (Refused, UnicodeEncodeError) as error:
            self.fail(f"{value!r:.200} is not valid JSON: {error!s:.200}", param, ctx)
        if not isinstance(found, dict):
            self.fail(f"expected a JSON object, got {value!r:.200}", param, ctx)
        return found
