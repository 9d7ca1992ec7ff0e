"""Space of the configurations of mixed actions."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import pairwise, product
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_CONFIGURATIONS = 10_000
_MOST_PARTS = 32
_SCALES = ("linear", "log")


class Space(NamedTuple):
    """All allowed configurations.

    Attributes:
        order: names of the parts, in the order of the alphabet.
        grids: the values of each part.
        scales: ``linear`` or ``log`` of numbers on a scale, "" of named values.
        places: of every configuration, the place of each part's value in its grid.
        names: of the configurations: the JSON of their parts.
    """

    order: tuple[str, ...]
    grids: tuple[tuple[Any, ...], ...]
    scales: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]


def key_of(
    parts: Mapping[str, Sequence[Any]],
    scales: Mapping[str, str],
    barred: Sequence[Mapping[str, Any]],
) -> str:
    """Return what `space_of` reads.

    Args:
        parts: values by name of the part.
        scales: of those parts that are numbers.
        barred: values of some parts, each barring all configurations that have them.

    Raises:
        InputError: values that JSON cannot write, or that are not a list.

    >>> key_of({"k": [1, 2]}, {}, [])
    '[{"k": [1, 2]}, {}, []]'
    """
    try:
        own = {name: _listed(name, values) for name, values in parts.items()}
        plain = [own, dict(scales), [dict(one) for one in barred]]
        return json.dumps(plain, sort_keys=True, allow_nan=False)
    except InputError:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"parts, scales and barred must be plain values: {error}") from None


def _listed(name: str, values: Sequence[Any]) -> list[Any]:
    if isinstance(values, (str, bytes, set, frozenset)):
        message = f"part {name!r} is {values!r:.60}; allowed: a list of values, in order"
        raise InputError(message)
    return list(values)


@lru_cache(maxsize=32)
def space_of(key: str) -> Space:
    """Return the space that a key describes; it may come from outside, and is checked.

    Args:
        key: as `key_of` wrote it.

    Raises:
        InputError: no part, values that are few, alike or of no use, too many combinations, or
            something barred that is not there.

    >>> space_of(key_of({"k": [1, 2], "on": [False, True]}, {}, [{"k": 1, "on": True}])).names
    ('{"k":1,"on":false}', '{"k":2,"on":false}', '{"k":2,"on":true}')
    """
    parts, scales, barred = json.loads(key)
    order = tuple(sorted(parts))
    grids = tuple(_grid(name, parts[name]) for name in order)
    count = prod(map(len, grids))
    if not 1 <= len(order) <= _MOST_PARTS or count > MOST_CONFIGURATIONS:
        raise InputError(
            f"{len(order)} parts with {count:,} combinations; allowed: 1 to {_MOST_PARTS} with "
            f"{MOST_CONFIGURATIONS:,} or fewer: give fewer values"
        )
    unknown = sorted(set(scales) - set(order))
    if unknown:
        raise InputError(f"scales name {unknown[0]!r:.80}; allowed: {', '.join(order)}")
    on_scale = tuple(
        _scale(name, scales.get(name, ""), grid) for name, grid in zip(order, grids, strict=True)
    )
    # By the parts they name: a look-up for each choice of parts, however many are barred.
    bars: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for one in barred:
        bar = _bar(one, order, grids)
        bars.setdefault(tuple(bar), set()).add(tuple(bar.values()))
    places = tuple(
        one
        for one in product(*(range(len(grid)) for grid in grids))
        if not any(tuple(one[part] for part in named) in found for named, found in bars.items())
    )
    if not places:
        raise InputError("all configurations are barred; allow at least one")
    names = tuple(
        _name({part: grid[p] for part, grid, p in zip(order, grids, one, strict=True)})
        for one in places
    )
    return Space(order, grids, on_scale, places, names)


def _name(values: Mapping[str, Any]) -> str:
    """Return a configuration's name, as `steersman.spec.actions.configuration_name` writes it."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _grid(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    if not isinstance(values, list) or not 2 <= len(values) <= MOST_CONFIGURATIONS:
        raise InputError(f"{name!r:.80} has {values!r:.80}; allowed: 2 values or more")
    if not all(isinstance(value, str | bool | int | float) for value in values):
        raise InputError(f"{name!r:.80} has {values!r:.80}; allowed: texts, numbers, booleans")
    if len({json.dumps(value) for value in values}) < len(values):
        raise InputError(f"{name!r:.80} has a duplicate value; list each value once")
    return tuple(values)


def _scale(name: str, scale: str, grid: Sequence[Any]) -> str:
    if not scale:
        return ""
    if scale not in _SCALES or not _rises(grid) or (scale == "log" and grid[0] <= 0):
        raise InputError(
            f"{name!r:.80} is on the scale {scale!r:.80} with values {list(grid)!r:.80}; "
            "allowed: linear and log, of ascending numbers, for log above 0"
        )
    return scale


def _rises(grid: Sequence[Any]) -> bool:
    """Return whether these are numbers whose floats rise, over a range that is a float, too."""
    if not all(isinstance(value, int | float) for value in grid):
        return False
    try:
        floats = [float(value) for value in grid]
    except OverflowError:  # an integer beyond all floats
        return False
    return isfinite(floats[-1] - floats[0]) and all(a < b for a, b in pairwise(floats))


def _bar(
    values: Mapping[str, Any], order: Sequence[str], grids: Sequence[Sequence[Any]]
) -> dict[int, int]:
    """Return the place of each barred value in its grid, by the place of its part."""
    unknown = sorted(set(values) - set(order))
    if unknown or not values:
        raise InputError(f"barred has {dict(values)!r:.200}; allowed: the parts {list(order)}")
    found: dict[int, int] = {}
    for place, (name, grid) in enumerate(zip(order, grids, strict=True)):
        if name not in values:
            continue
        texts = [json.dumps(value) for value in grid]
        wanted = json.dumps(values[name])
        if wanted not in texts:
            message = f"barred has {name} = {wanted:.80}; allowed: {', '.join(texts)[:200]}"
            raise InputError(message)
        found[place] = texts.index(wanted)
    return found
