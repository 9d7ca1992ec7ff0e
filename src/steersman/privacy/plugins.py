"""Custom scrubbers: plug-ins found by entry point.

The operator installs them; a declaration can only name installed ones.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol, cast

from steersman.errors import InputError
from steersman.spec.privacy import CUSTOM

if TYPE_CHECKING:
    from collections.abc import Iterable

GROUP = "steersman.scrubbers"


class Scrubber(Protocol):
    """Callable that returns the positions of personal data in a text.

    It runs for every text of every request in the service's thread. It must take well under a
    millisecond, be deterministic and keep no data.
    """

    def __call__(self, text: str) -> Iterable[tuple[int, int]]:
        """Return start and end of each finding in characters, as in ``text[start:end]``."""
        ...


def installed_scrubber(kind: str) -> Scrubber:
    """Return an installed scrubber.

    Raises:
        InputError: the entry point is missing or cannot be loaded.
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
