"""Scrubbers that an application brings itself: a classifier, a list of names, a call to a model.

They are found by entry point, so that whoever runs the service decides what runs inside it; a
declaration can only name what is installed.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol, cast

from steersman.errors import InputError
from steersman.spec import CUSTOM

if TYPE_CHECKING:
    from collections.abc import Iterable

GROUP = "steersman.scrubbers"


class Scrubber(Protocol):
    """Anything that can be called with a text and says where personal data stands in it.

    It is called for every text of every request, on the thread that serves: it must answer in well
    under a millisecond, always the same for the same text, and keep nothing of it.
    """

    def __call__(self, text: str) -> Iterable[tuple[int, int]]:
        """Return the places of personal data.

        Args:
            text: what is to be stored, up to a million characters.

        Returns:
            Start and end of each, counted in characters from 0, as in ``text[start:end]``.
        """
        ...


def installed_scrubber(kind: str) -> Scrubber:
    """Return the scrubber that a declaration names.

    Args:
        kind: ``custom:`` and the name of an entry point of the group ``steersman.scrubbers``.

    Returns:
        What the entry point names.

    Raises:
        InputError: no such entry point, or it cannot be loaded.
    """
    name = kind.removeprefix(CUSTOM)
    found = entry_points(group=GROUP)
    point = next((point for point in found if point.name == name), None)
    if point is None:
        names = ", ".join(sorted(set(found.names))) or "none"
        message = (
            f"privacy.scrub has {kind!r}, but no such scrubber is installed; installed "
            f"are {names}; install the package with the entry point {name!r} in group "
            f"{GROUP!r} here and on the service hosts, or remove it"
        )
        raise InputError(message)
    try:
        scrubber = point.load()
    except Exception as error:
        message = (
            f"cannot load scrubber {name!r} ({point.value}): {error!r}; fix its "
            "package, or remove it from privacy.scrub"
        )
        raise InputError(message) from error
    if not callable(scrubber):
        message = (
            f"the scrubber {name!r} ({point.value}) is a {type(scrubber).__name__}; expected "
            "a callable that takes a text; fix its package"
        )
        raise InputError(message)
    return cast("Scrubber", scrubber)
