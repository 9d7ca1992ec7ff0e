"""Kinds of arguments that several commands take: what click's own let through and should not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from steersman.wire import Refused, read


class Number(click.FloatRange):
    """A number in a range: `click.FloatRange` takes NaN, which is in every range, and infinity.

    >>> Number(0).convert("1.5", None, None)
    1.5
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number.

        Args:
            value: what was typed.
            param: of click.
            ctx: of click.
        """
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is no finite number; give one", param, ctx)
        return number


class Folder(click.Path):
    """A directory, which need not be there; ``~`` is the user's, though no shell has read it.

    In a file of variables, or behind ``--home=``, it reaches us as it is. What took it for a name
    kept half of an installation in a folder ``~`` of whatever directory it was called in.

    >>> Folder().convert("a/~b", None, None)
    PosixPath('a/~b')
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path.

        Args:
            value: what was typed.
            param: of click.
            ctx: of click.
        """
        try:
            folder = Path(value).expanduser()
        except RuntimeError as error:  # no such user, or one without a home
            self.fail(f"{str(value)!r}: {error}", param, ctx)
        return super().convert(folder, param, ctx)


class JsonObject(click.ParamType[dict[str, Any]]):
    """An object in JSON, as an argument of a command."""

    name = "JSON"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        """Return the object.

        Args:
            value: what was typed.
            param: of click.
            ctx: of click.
        """
        try:
            # As the service reads it: nothing that it would refuse, and no key that stands twice.
            found = read(value.encode()) if isinstance(value, str) else value
        except (Refused, UnicodeEncodeError) as error:
            self.fail(f"{value!r:.200} is no JSON: {error!s:.200}", param, ctx)
        if not isinstance(found, dict):
            self.fail(f"wanted is a JSON object, got {value!r:.200}", param, ctx)
        return found
