"""Portable policy states: arrays and one JSON header, without pickle.

A state is ``{"meta": uint8 JSON, name: float64 array, ...}``. The header names the algorithm, its
format version, the constructor's arguments and the counters; the arrays are sums. A delta has the
same form and an ``id``, so that merging it twice can be refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import StateError
from steersman.policies import inputs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    Sums = dict[str, NDArray[np.float64]]
    State = dict[str, NDArray[Any]]

_LARGEST_META = 64 * 1024 * 1024


def pack(meta: Mapping[str, Any], sums: Mapping[str, NDArray[np.float64]]) -> State:
    """Return a state: the arrays and the header as canonical JSON bytes.

    Raises:
        StateError: the header takes more than 64 MiB, the limit of the reader.
    """
    text = json.dumps(meta, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    if len(text) > _LARGEST_META:
        raise StateError(
            f"the state's header takes {len(text):,} bytes; at most {_LARGEST_META:,} can be read "
            "again. Learn fewer or shorter keys, or name fewer actions"
        )
    return {"meta": np.frombuffer(text, dtype=np.uint8).copy(), **sums}


def unpack(
    state: Mapping[str, Any], *, algorithm: str, version: int
) -> tuple[dict[str, Any], Sums]:
    """Return header and float64 arrays of a state, checked but for the arrays' shapes.

    Raises:
        StateError: no header, damaged header, another algorithm or version, non-finite sums.
    """
    meta = _header(state)
    if meta.get("algorithm") != algorithm:
        raise StateError(
            f"this state is of algorithm {meta.get('algorithm')!r}, not {algorithm!r}; "
            "load it with the class that wrote it"
        )
    if type(meta.get("version")) is not int or meta["version"] != version:
        raise StateError(
            f"this state has format version {meta.get('version')!r}, and {algorithm} reads "
            f"{version}; relearn it by replaying the log"
        )
    sums: Sums = {}
    for name, array in state.items():
        if name != "meta":
            sums[name] = _finite(name, array)
    return meta, sums


def algorithm_of(state: Mapping[str, Any], *, known: Collection[str]) -> str:
    """Return the algorithm that a state's header names; StateError unless it is ``known``."""
    name = _header(state).get("algorithm")
    if isinstance(name, str) and name in known:
        return name
    raise StateError(f"the state is of algorithm {name!r}; this version knows {sorted(known)}")


def check_shapes(sums: Sums, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise StateError unless the arrays are exactly those named, with those shapes."""
    for name, shape in shapes.items():
        found = sums[name].shape if name in sums else None
        if found != shape:
            raise StateError(f"the state's {name!r} must have shape {shape}; got {found}")
    extra = sorted(set(sums) - set(shapes))
    if extra:
        raise StateError(f"the state has unknown arrays {extra}; expected {sorted(shapes)}")


def reorder(sums: Sums, axes: Mapping[str, int], order: Sequence[int]) -> Sums:
    """Return the arrays with their actions' axis taken in ``order``; -1 makes zeros.

    Args:
        sums: arrays by name.
        axes: the axis along which actions lie, for those arrays that have one.
        order: for each new place, the old one or -1.
    """
    index = np.array(order, dtype=np.intp)
    taken = dict(sums)
    for name, axis in axes.items():
        moved = np.moveaxis(sums[name], axis, 0)
        fresh = np.zeros((len(index), *moved.shape[1:]))
        fresh[index >= 0] = moved[index[index >= 0]]
        taken[name] = np.ascontiguousarray(np.moveaxis(fresh, 0, axis))
    return taken


def mapping(state: object) -> Mapping[str, Any]:
    """Return a state that is a mapping; of what, is looked at later."""
    if isinstance(state, Mapping):
        return state
    raise StateError(f"a state is a mapping of arrays; got {type(state).__name__}")


def _header(state: Mapping[str, Any]) -> dict[str, Any]:
    if "meta" not in mapping(state):
        raise StateError("not a state: it has no 'meta' array; pass the result of state()")
    raw = np.asarray(state["meta"])
    if raw.dtype != np.uint8 or raw.ndim != 1:
        raise StateError(f"'meta' must be a (n,) uint8 array; got {raw.dtype} {raw.shape}")
    if raw.size > _LARGEST_META:
        raise StateError(f"'meta' has {raw.size:,} bytes; at most {_LARGEST_META:,} are read")
    try:
        meta = json.loads(raw.tobytes())
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise StateError(f"'meta' is not JSON: {error}") from error
    if not isinstance(meta, dict) or not isinstance(meta.get("config"), dict):
        raise StateError("'meta' must be a JSON object with a 'config' object")
    if not isinstance(meta["config"].get("actions"), list):
        raise StateError("'meta' must name its actions as a list in 'config'")
    return meta


def whole(meta: Mapping[str, Any], name: str) -> int:
    """Return a counter of a header: a whole number in [0, 2^53]."""
    value = meta.get(name)
    if type(value) is int and 0 <= value <= 2**53:
        return value
    raise StateError(f"the header's {name!r} must be a whole number in [0, 2^53]; got {value!r}")


def difference(meta: Mapping[str, Any], name: str) -> int:
    """Return a delta's counter: a whole number in [-2^53, 2^53], as more may be taken back."""
    value = meta.get(name)
    if type(value) is int and abs(value) <= 2**53:
        return value
    raise StateError(f"the delta's {name!r} must be a whole number in [-2^53, 2^53]; got {value!r}")


def emitted(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the deltas that a header says were made before it, in their order: id -> fingerprint.

    States of policies that made none, and older ones, have no such entry.
    """
    value = meta.get("emitted", [])
    if isinstance(value, list) and all(_is_pair_of_texts(pair) for pair in value):
        return dict(value)
    raise StateError("the header's 'emitted' must be a list of pairs of texts of Unicode")


def _is_pair_of_texts(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(map(_is_writable, pair))


def _is_writable(item: object) -> bool:
    return item == "" or inputs.is_text(item)


def texts(meta: Mapping[str, Any], name: str) -> set[str]:
    """Return a list of different strings of a header as a set."""
    value = meta.get(name)
    if isinstance(value, list) and all(map(_is_writable, value)):
        return set(value)
    raise StateError(f"the header's {name!r} must be a list of strings of Unicode")


def reservations(meta: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return the exploration budgets of a header: action -> (updates, share)."""
    value = meta.get("reserved")
    known = set(meta["config"]["actions"])
    if not isinstance(value, dict) or not set(value) <= known:
        raise StateError("the header's 'reserved' must be an object over the state's actions")
    for pair in value.values():
        fits = isinstance(pair, list) and [type(item) for item in pair] == [float, float]
        if not fits or not (0.0 <= pair[0] <= 1e9 and 0.0 <= pair[1] <= 0.5):
            raise StateError(f"the header's 'reserved' has {pair!r}; expected [updates, share]")
    return {name: (pair[0], pair[1]) for name, pair in value.items()}


def _finite(name: str, array: object) -> NDArray[np.float64]:
    values = np.asarray(array)
    if values.dtype != np.float64:
        raise StateError(f"the state's {name!r} must be float64; got {values.dtype}")
    if not np.isfinite(values).all():
        raise StateError(f"the state's {name!r} holds NaN or infinity; use an older state")
    return values
