"""From a context to what is decided from, stored and learned from: the same bits all three times.

A vector is stored as float32. If a decision were made from the unrounded one, replaying its stored
row would give another state, so contexts are rounded before anything is done with them.
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
    from steersman.spec import DecisionPoint

NO_KEY = "(none)"
"""The key of a context without one: a policy's key is never empty."""
_LINEAR = {"lin_ucb", "bounded_lin_ucb", "kernel_ucb", "lin_ts"}
_CHECKERS: WeakKeyDictionary[FeatureMap, FeatureMap] = WeakKeyDictionary()


def encode(
    point: DecisionPoint, features: FeatureMap, context: Mapping[str, object]
) -> tuple[NDArray[np.float64] | None, str | None]:
    """Return what a point's policy makes of a context: a vector, a key, or neither.

    A policy that reads the vector gets ``x``; a Beta posterior gets its ``key``; fixed actions,
    joint models (which read the actions' features) and epsilon-greedy without context read
    neither, and rules read the context itself. Whichever it is, the context must be one that the
    declaration allows, so that another policy can be learned from the same log.

    Args:
        point: the declaration.
        features: the map of ``point.context``.
        context: values by field name.

    Returns:
        ``x``: shape (dim,), float64 that float32 holds exactly, or None; ``key``: 1 character or
        more, or None.

    Raises:
        InputError: a context that is not as declared, or needed statistics that are not fitted.

    >>> from steersman.features import FeatureMap
    >>> from steersman.spec import loads
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
    policy = point.policy
    if reads_vector(point):
        # An encoded context has a norm of at most 2: rounding it cannot overflow.
        return features.encode(context).astype(np.float32).astype(np.float64), None
    _checker(point, features).encode(context)
    if policy.algorithm == "beta_thompson":
        return None, _key(policy.key, context)
    return None, None


def reads_vector(point: DecisionPoint) -> bool:
    """Return whether a point's policy reads the encoded context.

    Args:
        point: the declaration.

    Returns:
        False: it reads a key, the actions' features, or the context itself.
    """
    return point.policy.algorithm in _LINEAR or getattr(point.policy, "contextual", False)


def encode_rows(
    features: FeatureMap, contexts: Sequence[Mapping[str, object]]
) -> NDArray[np.float32]:
    """Return what `encode` makes of several contexts for a policy that reads vectors.

    Args:
        features: the map of the point's context.
        contexts: values by field name.

    Returns:
        Shape (n, dim), as it is stored; as float64 it is what is decided from.

    Raises:
        InputError: as `encode`.
    """
    return features.encode_batch(contexts).astype(np.float32)


def rounded(values: Any) -> NDArray[np.float64]:
    """Return numbers as their column holds them: rounded to float32, as float64 again.

    Args:
        values: numbers in any shape, within the range of float32.

    Returns:
        The same shape, float64.

    Raises:
        InputError: no numbers, or one that is not finite as float32.

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
    """Return numbers as a row carries them: flat, in 4 bytes each instead of 32 for a list's.

    Args:
        numbers: any shape; float32 holds them exactly.

    Returns:
        Row after row.

    >>> as_stored(rounded([[0.5], [2.0]]))
    array('f', [0.5, 2.0])
    """
    return array("f", numbers.astype(np.float32, copy=False).tobytes())


def _checker(point: DecisionPoint, features: FeatureMap) -> FeatureMap:
    """Return a map that refuses what ``features`` does, though its statistics are not fitted yet.

    A point may log under fixed actions or rules first, and fit its numbers on that log.
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
