"""Look-up of configurations by the JSON of some of their parts."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import ActionError, InputError
from steersman.errors.format import brief
from steersman.policies import inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

_MOST_KEPT = 256


def are_configurations(names: Sequence[str]) -> bool:
    """Return whether all action names are configurations.

    Args:
        names: names of all actions.

    Returns:
        True if all names are JSON objects with the same parts.

    Raises:
        InputError: not a sequence of names.

    >>> are_configurations(['{"k":3}', '{"k":4}']), are_configurations(["{template}", "large"])
    (True, False)
    """
    try:  # asked for each row of a log: one look at the first name answers for plain ones
        return len(names) > 0 and names[0].startswith("{") and _have_the_same_parts(tuple(names))
    except (AttributeError, LookupError, TypeError, ValueError):
        raise InputError(f"names must be a list of names; got {brief(names)}") from None


@lru_cache(maxsize=32)
def _have_the_same_parts(names: tuple[str, ...]) -> bool:
    try:
        parsed = [json.loads(name) for name in names]
    except (ValueError, RecursionError):
        return False
    parts = parsed[0].keys()
    return bool(parts) and all(isinstance(one, dict) and one.keys() == parts for one in parsed)


class Configurations:
    """Index that finds the configurations with given values.

    Args:
        names: names of all configurations, JSON of the same parts.

    Raises:
        InputError: invalid names.

    >>> every = Configurations(['{"k":3,"on":false}', '{"k":3,"on":true}', '{"k":4,"on":true}'])
    >>> every.with_values('{"on":true}').tolist()
    [False, True, True]
    """

    def __init__(self, names: Sequence[str]) -> None:
        listed = inputs.names(names, "names")
        if not are_configurations(listed):
            message = f"every name must be JSON with the same parts; got {brief(listed)}"
            raise InputError(message)
        parsed = [json.loads(name) for name in listed]
        self._places: dict[str, dict[str, NDArray[np.intp]]] = {}
        for part in parsed[0]:
            places: dict[str, list[int]] = {}
            for place, values in enumerate(parsed):
                places.setdefault(_text(values[part]), []).append(place)
            self._places[part] = {text: np.array(found, np.intp) for text, found in places.items()}
        self._count = len(parsed)
        self._kept: dict[str, Mask] = {}

    def with_values(self, name: str) -> Mask:
        """Return the mask of configurations with the given values.

        Args:
            name: JSON of some parts, for example ``{"rerank":false}``.

        Returns:
            (K,) bool, read-only.

        Raises:
            ActionError: unknown name, part or value, or no configuration with all values.
            InputError: the name is not a text.
        """
        if not isinstance(name, str):
            raise InputError(
                f"an eligible action must be JSON text of some parts; got {name!r:.80}"
            )
        found = self._kept.get(name)
        if found is None:
            found = self._find(name)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[name] = found
        return found

    def _find(self, name: str) -> Mask:
        try:
            wanted: Any = json.loads(name)
        except (ValueError, RecursionError):
            wanted = None
        if not isinstance(wanted, dict) or not wanted:
            raise ActionError(
                f"unknown action {name!r:.120}; allowed: JSON of some of the parts "
                f'{", ".join(self._places)}, such as {{"{next(iter(self._places))}": …}}'
            )
        mask = np.ones(self._count, dtype=np.bool_)
        for part, value in wanted.items():
            mask &= self._having(part, value)
        if not mask.any():
            raise ActionError(f"no allowed configuration has {name:.200}")
        return mask

    def _having(self, part: str, value: Any) -> Mask:
        values = self._places.get(part)
        if values is None:
            known = ", ".join(self._places)
            raise ActionError(f"unknown part {part!r:.80}; allowed: {known}")
        places = values.get(_text(value))
        if places is None:
            known = ", ".join(list(values)[:40])
            raise ActionError(f"{part} is {value!r:.80}; allowed: {known}")
        mask = np.zeros(self._count, dtype=np.bool_)
        mask[places] = True
        return mask


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return json.dumps(value)
    try:
        return repr(float(value))
    except OverflowError:  # an integer beyond all floats
        return "inf"
