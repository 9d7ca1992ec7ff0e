"""Context encoding, identical for deciding, storing and learning.

Vectors are stored as float32. They are rounded before use, because a decision from the unrounded
vector could not be replayed from its row.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.features import FeatureMap
    from steersman.spec.point import DecisionPoint

NO_KEY = "(none)"
"""Key of a context without one; a policy's key is never empty."""
_CHECKERS: WeakKeyDictionary[FeatureMap, FeatureMap] = WeakKeyDictionary()


def encode(
    point: DecisionPoint, features: FeatureMap, context: Mapping[str, object]
) -> tuple[NDArray[np.float64] | None, str | None]:
    """Return what a point's policy reads of the context: a vector, a key, or neither.

    The context must always match the declaration, so that other policies can learn from the same
    log.

    Returns:
        ``x``: shape (dim,), float64 that float32 holds exactly, or None; ``key``: at least
        1 character, or None.

    Raises:
        InputError: the context does not match the declaration, or needed statistics are not
            fitted.

    >>> from steersman.features import FeatureMap
    >>> from steersman.spec.loader import loads
    >>> point = loads('''
    ... format: 1
    ... skill: search
    ... decision: depth
    ... context: {dim: 8, fields: {intent: {type: category}}}
    ... actions: {kind: choice, names: [shallow, deep]}
    ... policy: {algorithm: beta_thompson, key: intent}
    ... floor: 0.02
    ... fallback: {rules: [], otherwise: shallow}
    ... reward: {terms: {clicked: {weight: 1}}}
    ... ''')
    >>> features = FeatureMap(point.context)
    >>> encode(point, features, {"intent": "refund"})
    (None, 'refund')
    >>> encode(point, features, {})
    (None, '(none)')
    """
    reads = point.policy.reads
    if reads == "vector":
        # An encoded context has a norm of at most 2: rounding it cannot overflow.
        return features.encode(context).astype(np.float32).astype(np.float64), None
    _checker(point, features).encode(context)
    if reads == "key":
        return None, _key(getattr(point.policy, "key", None), context)
    return None, None


def encode_rows(
    features: FeatureMap, contexts: Sequence[Mapping[str, object]]
) -> NDArray[np.float32]:
    """Return the encoded vectors of several contexts.

    Returns:
        Shape (n, dim), float32.

    Raises:
        InputError: as `encode`.
    """
    return features.encode_batch(contexts).astype(np.float32)


def rounded(values: Any) -> NDArray[np.float64]:
    """Return numbers rounded to float32, as float64.

    Args:
        values: numbers of any shape, within the range of float32.

    Returns:
        Same shape, float64.

    Raises:
        InputError: not numbers, or not finite as float32.

    >>> rounded([0.1, 2.0]).tolist()
    [0.10000000149011612, 2.0]
    """
    try:
        with np.errstate(over="ignore"):
            result = np.asarray(values, dtype=np.float64).astype(np.float32).astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        message = f"features are {values!r:.80}; expected a list of numbers"
        raise InputError(message) from None
    if not np.isfinite(result).all():
        message = "a feature is not finite; allowed are numbers up to 1e38; leave unknown ones out"
        raise InputError(message)
    return result


def as_stored(numbers: NDArray[np.floating[Any]]) -> array[float]:
    """Return numbers as a flat float32 array, with 4 bytes each instead of 32 in a list.

    Args:
        numbers: any shape; float32 holds them exactly.

    >>> as_stored(rounded([[0.5], [2.0]]))
    array('f', [0.5, 2.0])
    """
    return array("f", numbers.astype(np.float32, copy=False).tobytes())


def _checker(point: DecisionPoint, features: FeatureMap) -> FeatureMap:
    """Return a map that validates like ``features`` without fitted statistics.

    A point may first log under fixed actions or rules, and fit its statistics on that log.
    """
    if not features.unfitted:
        return features
    checker = _CHECKERS.get(features)
    if checker is None:
        state = features.state()
        known = {name: pair or [0.0, 1.0] for name, pair in state["statistics"].items()}
        checker = type(features).from_state(point.context, {**state, "statistics": known})
        _CHECKERS[features] = checker
    return checker


def _key(name: str | None, context: Mapping[str, object]) -> str:
    value = None if name is None else context.get(name)
    return value if isinstance(value, str) and value else NO_KEY
