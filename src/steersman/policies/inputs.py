"""Validation of policy inputs: contexts, rewards, weights, actions and parameters."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from scipy.linalg import blas

from steersman.errors import ActionError, InputError
from steersman.errors.format import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_T = TypeVar("_T")

LARGEST_NORM = 1e6  # its square, summed over a million updates, still leaves room in float64
_FLOAT64 = np.dtype(np.float64)
_PLAIN = (float, int)
_BOOLEANS = frozenset({bool, np.bool_})
NO_NUMBER = (bool, np.timedelta64)  # though their classes are below those of whole numbers
_NO_NUMBERS = (np.ma.MaskedArray, bytearray, memoryview)  # numpy takes them for such
LARGEST_WEIGHT = 1e9
MOST_FEATURES = 16_384  # of a linear model, random ones included
LARGEST_VARIANCE_RATIO = 1e12  # of prior to noise; the same as in steersman.spec.policy
_MOST_SHOWN = 40
_MOST_COMPARED = 1_000  # names, of which the nearest is found; among more it takes seconds


def vector(x: object, dim: int) -> Floats:
    """Return ``x`` as a finite (dim,) float64 vector with a norm of at most 1e6.

    Raises:
        InputError: ``x`` is nested, of another length, not numeric, not finite or too large.
    """
    values = _floats(x)
    if values is None:
        raise InputError(
            f"the context must be {dim} numbers; got {brief(x)}. "
            "Encode mappings and text with steersman.features.FeatureMap first."
        )
    if values.shape != (dim,):
        raise InputError(
            f"the context must have shape ({dim},); got shape {values.shape}. "
            "Encode it with the feature map that this policy was declared with."
        )
    # BLAS instead of @: a huge context is refused below, not warned about here.
    if blas.ddot(values, values) <= LARGEST_NORM**2:
        return values
    raise InputError(_vector_problem(values))


def matrix(rows: object, dim: int) -> Floats:
    """Return ``rows`` as a finite (n, dim) float64 matrix, every row as in :func:`vector`."""
    values = _floats(rows)
    if isinstance(rows, (list, tuple)):
        _refuse_odd_rows(rows)
    if values is None:
        raise InputError(f"the rows must be numbers of shape (n, {dim}); got {brief(rows)}")
    if values.ndim != 2 or values.shape[1] != dim:
        raise InputError(f"the rows must have shape (n, {dim}); got shape {values.shape}")
    flat = values.ravel()
    if flat.size and blas.ddot(flat, flat) <= LARGEST_NORM**2:
        return values  # nearly always: where all norms together are small, each is
    with np.errstate(over="ignore", invalid="ignore"):
        fits = np.einsum("ij,ij->i", values, values) <= LARGEST_NORM**2
    if fits.all():
        return values
    row = int(np.flatnonzero(~fits)[0])
    raise InputError(f"row {row}: {_vector_problem(values[row])}")


def numbers(name: str, values: Any, *, axes: int = 1) -> Floats:
    """Return real numbers as float64 with so many axes; they need not be finite.

    Raises:
        InputError: anything else.
    """
    if type(values) is np.ndarray and values.dtype == _FLOAT64 and values.ndim == axes:
        return values
    found = _floats(values)
    if found is None:
        raise InputError(f"{name} must be real numbers; got {brief(values)}")
    if np.ndim(values) != axes:
        shape = np.shape(values)
        raise InputError(f"{name} has shape {shape}; allowed: an array of {axes} dimensions")
    return found.reshape(np.shape(values))  # of an empty one `_floats` keeps no shape


def texts(name: str, values: Any) -> list[str]:
    """Return a tuple of texts.

    Raises:
        InputError: a single text, not a sequence, or an empty entry.
    """
    unordered = (str, bytes, set, frozenset, Mapping)
    try:
        found = None if isinstance(values, unordered) else list(values)
    except TypeError:
        found = None
    if found is None or not all(map(is_text, found)):
        raise InputError(f"{name} must be a list of non-empty names; got {brief(values)}")
    return list(map(str, found))  # numpy's texts show their type in messages


def kind(name: str, value: object, wanted: type | tuple[type, ...], what: str) -> None:
    """Refuse a value of another type; ``what`` describes allowed values."""
    if not isinstance(value, wanted):
        raise InputError(f"{name} must be {what}; got {brief(value)}")


def _refuse_odd_rows(rows: Sequence[Any]) -> None:
    """Refuse booleans and masked arrays, which numpy would convert to numbers."""
    for place, row in enumerate(rows):
        kind = type(row)
        if kind is np.ndarray:
            if row.dtype is _FLOAT64:  # nearly always
                continue
        elif kind is list and row and type(row[0]) in _PLAIN and not _holds_booleans(row):
            continue
        if _floats(row) is None:
            raise InputError(f"row {place}: the context must be numbers; got {brief(row)}")


def _floats(values: object) -> Floats | None:
    """Return real numbers as C-contiguous float64; None for other values."""
    if type(values) is np.ndarray and values.dtype == np.float64:
        return np.ascontiguousarray(values)
    if isinstance(values, (list, tuple)) and _holds_booleans(values):
        return None
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iuf" or isinstance(values, _NO_NUMBERS):
            # An empty list has no numeric kind; the shape check reports it.
            return np.zeros(0) if array.size == 0 else None
        return np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def _holds_booleans(values: Sequence[Any]) -> bool:
    return not _BOOLEANS.isdisjoint(map(type, values))


def _vector_problem(values: Floats) -> str:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        return (
            f"the context has a non-finite number: x[{bad[0]}] is {values[bad[0]]}. "
            "Declare what a missing value means in the spec, or drop the request."
        )
    worst = int(np.abs(values).argmax())
    return (
        f"the context is too large: x[{worst}] is {values[worst]:g}, its norm may be at most "
        f"{LARGEST_NORM:g}. Declare a scale (zscore or robust) for this number."
    )


def reward(value: object) -> float:
    """Return a finite reward."""
    number = _number(value, "reward")
    if math.isfinite(number):
        return number
    raise InputError(f"the reward must be finite; got {number}. Leave a missing reward out.")


def unit_reward(value: object) -> float:
    """Return a reward in [0, 1]."""
    number = _number(value, "reward")
    if 0.0 <= number <= 1.0:
        return number
    raise InputError(
        f"the reward must lie in [0, 1] for a Beta posterior; got {number}. "
        "Declare low and high for every reward term, so that it is scaled."
    )


def weight(value: object) -> float:
    """Return a weight in [0, 1e9]."""
    number = _number(value, "weight")
    if 0.0 <= number <= LARGEST_WEIGHT:
        return number
    raise InputError(f"the weight must lie in [0, {LARGEST_WEIGHT:g}]; got {number}")


def parameter(
    name: str, value: object, low: float, high: float, *, open_low: bool = False
) -> float:
    """Return a hyper-parameter within [low, high], or (low, high] with ``open_low``."""
    number = _number(value, name)
    if (low < number or (number == low and not open_low)) and number <= high:
        return number
    bracket = "(" if open_low else "["
    raise InputError(f"{name} must lie in {bracket}{low:g}, {high:g}]; got {number}")


def variances(prior_var: object, noise_var: object) -> tuple[float, float]:
    """Return both within [1e-9, 1e9], the prior's at most 1e12 times the noise's.

    With a larger ratio, float64 cannot represent the posterior after one reward.
    """
    prior = parameter("prior_var", prior_var, 1e-9, 1e9)
    noise = parameter("noise_var", noise_var, 1e-9, 1e9)
    if prior <= LARGEST_VARIANCE_RATIO * noise:
        return prior, noise
    raise InputError(
        f"prior_var must be at most {LARGEST_VARIANCE_RATIO:g} times noise_var; got {prior:g} "
        f"and {noise:g}: float64 cannot represent the posterior. Raise noise_var"
    )


def whole(name: str, value: object, low: int, high: int) -> int:
    """Return a whole number within [low, high]."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, NO_NUMBER):
        number = int(value)
        if low <= number <= high:
            return number
    raise InputError(f"{name} must be a whole number in [{low}, {high}]; got {brief(value)}")


def truth(name: str, value: object) -> bool:
    """Return a bool; refuse other types, because any non-empty text would be true."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise InputError(f"{name} must be True or False; got {brief(value)}")


def floor(value: object) -> float:
    """Return a floor in [0, 1)."""
    number = _number(value, "floor")
    if 0.0 <= number < 1.0:
        return number
    raise InputError(f"floor is a total mass and must lie in [0, 1); got {number}")


def names(actions: Sequence[str], what: str = "actions") -> tuple[str, ...]:
    """Return the actions as a tuple of different, non-empty strings."""
    if isinstance(actions, str):
        raise InputError(f"{what} must be a sequence of names, not the one string {brief(actions)}")
    if isinstance(actions, (set, frozenset)):
        raise InputError(
            f"{what} must be a sequence of names; got {brief(actions)}, whose order differs "
            f"between processes. Pass sorted({what})"
        )
    try:
        listed = tuple(actions)
    except TypeError:
        raise InputError(f"{what} must be a sequence of names; got {brief(actions)}") from None
    for name in listed:
        if not is_text(name):
            raise InputError(f"an action must be a non-empty string of text; got {brief(name)}")
    if len(set(listed)) < len(listed):
        double = next(name for name, times in Counter(listed).items() if times > 1)
        raise InputError(f"duplicate action {double!r}; name each action once")
    return listed


def count(what: str, rows: object) -> int:
    """Return the number of rows of a list or array; refuse unordered collections."""
    try:
        if not isinstance(rows, (str, bytes, set, frozenset, Mapping)):
            return len(rows)  # type: ignore[arg-type]  # what has none is refused below
    except TypeError:
        pass
    raise InputError(f"{what} must be a list or array with one row per item; got {brief(rows)}")


def each(check: Callable[[Any], _T], values: Iterable[Any]) -> list[_T]:
    """Return the checked values; an error names the row."""
    try:
        return [check(value) for value in values]
    except InputError:
        for row, value in enumerate(values):
            try:
                check(value)
            except InputError as error:
                raise type(error)(f"row {row}: {error}") from None
        raise


def no_generator(rng: object) -> InputError:
    """Return the error for an invalid ``rng``."""
    return InputError(
        f"rng must be a numpy Generator, such as np.random.default_rng(0); got {brief(rng)}"
    )


def uniforms(rng: np.random.Generator) -> Callable[[], float]:
    """Return the function that draws one uniform from a generator.

    Raises:
        InputError: ``rng`` is not a generator, for example a seed, a class or a module.
    """
    found = getattr(rng, "random", None)
    if found is None or isinstance(rng, (type, ModuleType)):
        raise no_generator(rng)
    one: Callable[[], float] = found
    return one


def is_text(value: object) -> bool:
    """Return whether a value is a non-empty string without lone surrogates."""
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def unknown_action(name: object, known: Sequence[str]) -> ActionError:
    """Return the error for an unknown action, with the most similar known name."""
    comparable = isinstance(name, str) and len(known) <= _MOST_COMPARED
    near = difflib.get_close_matches(str(name), known, n=1) if comparable else []
    if near:
        message = f"did you mean {near[0]!r}? add_action adds a new one"
    elif known:
        message = f"known: {_some(known)}; add_action adds an action"
    else:
        message = "the policy has no actions; add_action adds one"
    return ActionError(f"unknown action {brief(name)}; {message}")


def _some(known: Sequence[str]) -> str:
    text = ", ".join(known[:_MOST_SHOWN])
    return text if len(text) <= 80 and len(known) <= _MOST_SHOWN else f"{text[:77]}..."


def bucket(value: object) -> int:
    """Return a time bucket in [0, 2^53]."""
    return whole("bucket", value, 0, 2**53)


def _number(value: object, what: str) -> float:
    if isinstance(value, NO_NUMBER):
        raise InputError(f"the {what} must be a number; got {brief(value)}")
    if isinstance(value, (float, int, np.floating, np.integer)):
        try:
            return float(value)
        except OverflowError as error:
            raise InputError(f"the {what} {brief(value)} is beyond the float64 range") from error
    raise InputError(f"the {what} must be a number; got {brief(value)}")
