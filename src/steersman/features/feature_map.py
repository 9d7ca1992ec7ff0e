"""Feature map: encodes a context as a vector."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from hashlib import sha256
from math import frexp, fsum, isfinite, ldexp, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError, StateError
from steersman.features.hashed import (
    HashedCategory,
    HashedField,
    HashedText,
    HashedVector,
    SignedHash,
    unit,
)
from steersman.features.numbers import (
    BLOCK_NORM_SQUARED,
    NumberSlot,
    Statistics,
    declared,
    fitted,
    scaled_together,
)
from steersman.features.values import as_number, is_missing, shown

if TYPE_CHECKING:
    from types import UnionType

    from numpy.typing import NDArray

    from steersman.spec.context import Context

_CHANGED = {"text": 2}  # the marks of words are kept
"""The last version that changed fields of a type; all others are as they were in the first."""
LAYOUT_VERSION = max(_CHANGED.values())
"""Grows whenever the same context would become another vector."""

_HASHED = {"text": HashedText, "category": HashedCategory, "vector": HashedVector}
_NEARLY_ONE = 1.0 - 1e-9
_REMEMBERED = 4096
_EXACT = 2**53
_PLAIN = frozenset({float, int})
_SHORT = 200
_MOST_COMPARED = 1_000
_MOST_LISTED = 20


class FeatureMap:
    """Immutable encoder of contexts as vectors of fixed length, bit-identical on every machine.

    Slot 0 is a bias of 1. Numbers follow in the order of their names: one slot each, two with
    `missing: flag`; their squared norm is at most 2. The other slots hold a signed hash of texts,
    categories and vectors. Each hashed field has norm 1 and weight w / √Σw²; the block is rescaled
    to norm 1 if collisions make it longer. So the squared norm of the vector is at most 4.

    Args:
        context: declared fields. If ``mean``, ``sd`` and similar are null, call `fit` before
            encoding.

    Raises:
        InputError: ``context`` is not a declaration.

    >>> from steersman.spec.context import Context
    >>> context = Context.model_validate(
    ...     {
    ...         "dim": 16,
    ...         "fields": {
    ...             "intent": {"type": "category"},
    ...             "confidence": {"type": "number", "mean": 0.5, "sd": 0.25},
    ...         },
    ...     }
    ... )
    >>> FeatureMap(context).encode({"intent": "weather", "confidence": 0.75})[:3].round(3)
    array([1.   , 0.471, 0.   ])
    """

    def __init__(self, context: Context) -> None:
        _check_declaration(context)
        self._context = context
        self._names = frozenset(context.fields)
        self._numbers = _number_slots(context)
        self._start = 1 + sum(len(number.slots) for number in self._numbers)
        self._hashed, self._shares = _hashed_fields(context, context.dim - self._start)
        self._statistics = {number.name: declared(number.field) for number in self._numbers}
        self._was_fitted = False
        only_categories = all(isinstance(field, HashedCategory) for _, field in self._hashed)
        self._remembered: dict[tuple[object, ...], NDArray[np.float64]] | None = (
            {} if only_categories else None
        )

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return self._context.dim

    @property
    def unfitted(self) -> tuple[str, ...]:
        """Names of the numbers whose statistics are neither declared nor fitted yet."""
        return tuple(name for name, known in self._statistics.items() if known is None)

    @property
    def slot_names(self) -> tuple[str, ...]:
        """Names of the slots, to explain a decision."""
        numbers = tuple(slot for number in self._numbers for slot in number.slots)
        return ("bias", *numbers, *(f"hashed {i}" for i in range(self.dim - self._start)))

    @cached_property
    def hash(self) -> str:
        """SHA-256, as 64 hex digits, of declaration, statistics and layout version.

        Two maps with equal hashes encode a context as the same bytes.
        """
        return sha256(_canonical(self.state()).encode("ascii")).hexdigest()

    def encode(self, values: Mapping[str, object]) -> NDArray[np.float64]:
        """Return the context as a vector.

        Args:
            values: values by field name. Text and category: str; number: finite; vector: list or
                array of the declared size. Absent, None and NaN are missing; see ``missing`` of the
                field.

        Returns:
            Shape (dim,), float64; squared norm 1 to 4.

        Raises:
            InputError: undeclared name, wrong type, nested, non-finite or too long value, missing
                required value, or statistics that are not fitted yet.
        """
        self._check(values)
        vector = np.zeros(self.dim)
        vector[0] = 1.0
        self._fill_numbers(vector, values)
        if self._hashed:
            self._fill_hashed(vector[self._start :], values)
        return vector

    def _fill_numbers(self, vector: NDArray[np.float64], values: Mapping[str, object]) -> None:
        for number, known, name, slot, centre, spread, clip, share in self._plan:
            value = values.get(name)
            if type(value) is int and -_EXACT < value < _EXACT:
                value = float(value)
            if type(value) is float and isfinite(value):  # nearly always: `NumberSlot.scaled` here
                away = (value - centre) / spread
                vector[slot] = (clip if away > clip else max(-clip, away)) / clip * share
            else:
                number.fill(vector, None if is_missing(value) else value, known)

    @cached_property
    def _plan(
        self,
    ) -> list[tuple[NumberSlot, Statistics, str, int, float, float, float, float]]:
        """What `encode` reads of each number, looked up once."""
        if self.unfitted:
            raise _not_fitted(self.unfitted)
        return [
            (number, known, number.name, number.slot, *known, number.clip, number.share)
            for number in self._numbers
            if (known := self._statistics[number.name]) is not None
        ]

    def encode_batch(self, rows: Sequence[Mapping[str, object]]) -> NDArray[np.float64]:
        """Return one encoded context per row.

        Args:
            rows: contexts as for `encode`; may be empty.

        Returns:
            Shape (n, dim), float64.

        Raises:
            InputError: as for `encode`, with the row number; or not a sequence.
        """
        _check_rows(rows, Sequence | np.ndarray, "a list of contexts")
        matrix = np.zeros((len(rows), self.dim))
        matrix[:, 0] = 1.0
        places: list[int] = []
        numbers: list[list[float]] = []
        for place, row in enumerate(rows):
            try:
                self._check(row)
                own: list[Any] = [row.get(entry[2]) for entry in self._plan]
                if _are_plain(own):
                    places.append(place)
                    numbers.append(own)
                else:
                    self._fill_numbers(matrix[place], row)
                if self._hashed:
                    self._fill_hashed(matrix[place, self._start :], row)
            except InputError as error:
                message = f"row {place}: {error}"
                raise InputError(message) from None
        if places and self._numbers:
            slots, *scales = self._columns
            scaled = scaled_together(np.array(numbers, np.float64), *scales)
            if len(places) == len(rows):
                matrix[:, slots] = scaled
            else:
                matrix[np.ix_(np.array(places), slots)] = scaled
        return matrix

    @cached_property
    def _columns(self) -> tuple[NDArray[Any], ...]:
        """Slots, centres, spreads, clips and shares of the numbers: `_plan` in columns."""
        _, _, _, slots, *scales = zip(*self._plan, strict=True)
        return np.array(slots), *(np.array(column, dtype=np.float64) for column in scales)

    def fit(self, rows: Iterable[Mapping[str, object]]) -> FeatureMap:
        """Return a new map with undeclared statistics fitted from ``rows``.

        Statistics are fitted once, because a policy needs constant encodings. To fit again, create
        a new map and relearn the policy.

        Args:
            rows: contexts; missing values are ignored.

        Raises:
            InputError: invalid values, a field without values, or statistics that are already
                fitted.
        """
        _check_rows(rows, Iterable, "a list or another iterable of contexts")
        if self._was_fitted:
            message = "statistics are fitted once, then frozen; fit a new FeatureMap(context)"
            raise InputError(message)
        columns: dict[str, list[float]] = {name: [] for name in self.unfitted}
        for row in rows:
            self._check(row)
            for name, column in columns.items():
                value = _present(row, name)
                if value is not None:
                    column.append(as_number(name, value))
        fields = {number.name: number.field for number in self._numbers}
        return self._with({name: fitted(name, fields[name], columns[name]) for name in columns})

    @property
    def _layout(self) -> int:
        """Last layout version that changed one of these field types."""
        return max(
            (_CHANGED.get(field.type, 1) for field in self._context.fields.values()), default=1
        )

    def state(self) -> dict[str, Any]:
        """Return declaration, statistics and layout version as JSON values."""
        return {
            "layout": self._layout,
            "context": self._context.model_dump(mode="json"),
            "statistics": {
                name: None if known is None else list(known)
                for name, known in self._statistics.items()
            },
        }

    @classmethod
    def from_state(cls, context: Context, state: Mapping[str, Any]) -> FeatureMap:
        """Return the map of a state.

        Args:
            context: declaration of the map.
            state: result of `state`.

        Raises:
            InputError: ``context`` is not a declaration.
            StateError: not a mapping, another layout version or declaration, or damaged statistics.
        """
        fresh = cls(context)
        _check_state(state)
        expected = fresh.state()
        for part in ("layout", "context"):
            if state.get(part) != expected[part]:
                message = (
                    f"feature state has another {part} than this version and declaration; load "
                    "it with the spec it was saved with, or fit a new map and relearn from "
                    "the log"
                )
                raise StateError(message)
        statistics = state.get("statistics")
        if not isinstance(statistics, dict) or set(statistics) != set(expected["statistics"]):
            message = "feature state has other numbers than the declaration; use an undamaged state"
            raise StateError(message)
        return fresh._restored(statistics)

    def _restored(self, statistics: Mapping[str, Any]) -> FeatureMap:
        known: dict[str, Statistics] = {}
        for name in self.unfitted:
            match statistics[name]:
                case None:
                    continue
                case [float(centre), float(spread)] if np.isfinite(centre) and 0 < spread < np.inf:
                    known[name] = Statistics(centre, spread)
                case damaged:
                    message = (
                        f"statistics of {name!r} are {damaged!r}; allowed: [centre, spread > 0]"
                    )
                    raise StateError(message)
        return self._with(known) if known else self

    def _with(self, statistics: Mapping[str, Statistics]) -> FeatureMap:
        other = FeatureMap(self._context)
        other._statistics |= statistics
        other._was_fitted = bool(statistics)
        return other

    def _check(self, values: Mapping[str, object]) -> None:
        try:
            known = values.keys() <= self._names
        except (AttributeError, TypeError):
            message = (
                f"a context must be a mapping of names to values; got {shown(values)}; send a "
                "dict, or {} if all values are unknown"
            )
            raise InputError(message) from None
        if not known:
            raise _unknown_name(min(values.keys() - self._names, key=repr), self._names)

    def _fill_hashed(self, region: NDArray[np.float64], values: Mapping[str, object]) -> None:
        if self._remembered is not None:
            # Categories alone take few combinations of values.
            key = tuple([values.get(name) for name, _ in self._hashed])
            if all(value is None or type(value) is str for value in key):
                known = self._remembered.get(key)
                if known is None:
                    known = self._remember(key, region, values)
                region[:] = known
                return
        self._add_hashed(region, values)

    def _remember(
        self, key: tuple[object, ...], region: NDArray[np.float64], values: Mapping[str, object]
    ) -> NDArray[np.float64]:
        self._add_hashed(region, values)
        known = region.copy()
        if self._remembered is not None and sum(len(str(value)) for value in key) <= _SHORT:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = known
        return known

    def _add_hashed(self, region: NDArray[np.float64], values: Mapping[str, object]) -> None:
        for (name, field), share in zip(self._hashed, self._shares, strict=True):
            field.add(region, _present(values, name), share)
        # The correctly rounded sum decides, but only where a rounding error could.
        if region @ region > _NEARLY_ONE and fsum((region * region).tolist()) > 1.0:
            region[:] = unit(region)


def _are_plain(values: Sequence[object]) -> bool:
    """Return whether all values are finite floats or integers."""
    kinds = set(map(type, values))
    if not kinds <= _PLAIN:
        return False
    try:
        return all(map(isfinite, values))  # type: ignore[arg-type]  # of the kinds above
    except OverflowError:
        return False


def _check_declaration(context: object) -> None:
    if not all(hasattr(context, part) for part in ("fields", "dim", "seed")):
        message = (
            f"FeatureMap got {shown(context)}; allowed: the declared context; pass the context "
            "of a loaded decision point, or steersman.spec.context.Context.model_validate(mapping)"
        )
        raise InputError(message)


def _check_rows(rows: object, kind: type | UnionType, wanted: str) -> None:
    """Refuse values that are not a collection of rows, including a single context or text."""
    single = isinstance(rows, str | bytes | bytearray | Mapping) or getattr(rows, "ndim", 1) == 0
    if single or not isinstance(rows, kind):
        message = f"rows got {shown(rows)}; allowed: {wanted}; send one context as [context]"
        raise InputError(message)


def _check_state(state: object) -> None:
    if not isinstance(state, Mapping):
        message = (
            f"feature state got {shown(state)}; allowed: the mapping that state() returned; "
            "decode JSON first, or make a new FeatureMap(context) if none was saved"
        )
        raise StateError(message)


def _number_slots(context: Context) -> list[NumberSlot]:
    numbers = [
        (name, field) for name, field in sorted(context.fields.items()) if field.type == "number"
    ]
    shares = _shares([field.weight for _, field in numbers])
    slots: list[NumberSlot] = []
    place = 1
    for (name, field), share in zip(numbers, shares, strict=True):
        slots.append(NumberSlot(name, field, place, sqrt(BLOCK_NORM_SQUARED) * share))
        place += len(slots[-1].slots)
    return slots


def _hashed_fields(
    context: Context, size: int
) -> tuple[list[tuple[str, HashedField]], list[float]]:
    place = SignedHash(context.seed, size)
    fields = [
        (name, _HASHED[field.type](name, field, place))
        for name, field in sorted(context.fields.items())
        if field.type != "number"
    ]
    return fields, _shares([field.weight for _, field in fields])


def _shares(weights: Sequence[float]) -> list[float]:
    # Times a power of two: the same bits, and squares of tiny weights are not lost.
    exponent = frexp(max(weights, default=1.0))[1]
    scaled = [ldexp(weight, -exponent) for weight in weights]
    total = sqrt(fsum(weight * weight for weight in scaled))
    return [weight / total for weight in scaled]


def _present(values: Mapping[str, object], name: str) -> object:
    value = values.get(name)
    return None if is_missing(value) else value


def _canonical(state: Mapping[str, Any]) -> str:
    return json.dumps(state, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _not_fitted(names: Sequence[str]) -> InputError:
    return InputError(
        f"statistics of {', '.join(names)} are neither declared nor fitted; declare them, or call "
        "fit with typical contexts first"
    )


def _unknown_name(name: object, known: frozenset[str]) -> InputError:
    # Anybody may send a name of a megabyte; comparing it with thousands of fields takes long.
    comparable = isinstance(name, str) and len(name) <= _SHORT and len(known) <= _MOST_COMPARED
    close = get_close_matches(str(name), known, n=1) if comparable else []
    advice = f"did you mean {close[0]!r}?" if close else "declare it or omit it"
    more = f" and {len(known) - _MOST_LISTED:,} more" if len(known) > _MOST_LISTED else ""
    fields = ", ".join(sorted(known)[:_MOST_LISTED]) + more or "none"
    return InputError(f"context field {name!r:.80} is not declared; allowed: {fields}; {advice}")
