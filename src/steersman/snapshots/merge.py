"""Merging of policy deltas: the same bytes for any order and grouping.

Floating point sums depend on their order, so deltas are always added in the order of their ids.
Groups of deltas are collected first and folded once, without rounding in between.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import MergeError, VerificationError
from steersman.points.policy_factory import load_policy
from steersman.points.state_bytes import state_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    State = Mapping[str, NDArray[Any]]
    Header = dict[str, Any]

_BLOCK = 16_384  # block size whose running sum fits into the CPU cache
_MOST = 2**53
_UNAGED = "plays"  # forgetting decays all sums but the action counts


def gather(*groups: Iterable[State]) -> list[State]:
    """Return the deltas of several groups in canonical order.

    Raises:
        MergeError: a state is not a delta, or a delta occurs twice, also inside another.

    >>> from steersman.policies import LinUCB
    >>> copies = [LinUCB(["a", "b"], dim=1) for _ in range(2)]
    >>> one, other = (copy.delta(id=name) for copy, name in zip(copies, ["w2", "w1"], strict=True))
    >>> [delta_id(delta) for delta in gather([one], [other])]
    ['w1', 'w2']
    """
    named: dict[str, State] = {}
    seen: set[str] = set()
    for delta in (delta for group in groups for delta in _listed(group)):
        header = _header(delta)
        names = {_id(header), *_includes(header)}
        twice = seen & names
        if twice:
            message = (
                f"delta {min(twice)!r} occurs twice, or is included in another delta; nothing was "
                "merged. Create it again with delta(since=...) a state that both share."
            )
            raise MergeError(message)
        seen |= names
        named[_id(header)] = delta
    return [named[name] for name in sorted(named)]


def delta_id(delta: State) -> str:
    """Return the id of a delta.

    Raises:
        MergeError: it is a state and not a delta, or damaged.

    >>> from steersman.policies import Fixed
    >>> delta_id(Fixed(["a"], "a").delta(id="worker-3"))
    'worker-3'
    """
    return _id(_header(delta))


def merge_states(base: State, deltas: Iterable[State]) -> dict[str, NDArray[Any]]:
    """Return the base state with all deltas added: the same bytes for any order and grouping.

    Sums of linear models are folded block by block into one delta, which is then merged into the
    base. Merging in several steps rounds in between, so results differ in the last bits. To get
    equal bytes, keep the base and `gather` all deltas.

    Raises:
        MergeError: a delta was merged before, occurs twice, does not match the base, or is not
            finite; nothing was merged.
        StateError: the base is not a valid policy state.

    >>> from steersman.policies import LinUCB
    >>> base = LinUCB(["a", "b"], dim=1)
    >>> deltas = []
    >>> for name, reward in (("w2", 0.1), ("w1", 0.7)):
    ...     copy = LinUCB.from_state(base.state())
    ...     copy.learn([1.0], "a", reward)
    ...     deltas.append(copy.delta(id=name))
    >>> merged = merge_states(base.state(), deltas)
    >>> load_policy(merged).updates
    2
    >>> merged["moment"][0] == merge_states(base.state(), deltas[::-1])["moment"][0]
    array([ True])

    Source:
        Why additions need an order: Goldberg (1991), "What every computer scientist should know
        about floating-point arithmetic", section on summation.
    """
    ordered = gather(deltas)
    policy = load_policy(base)
    if ordered and "gram" in base:
        ordered = [_folded(ordered, getattr(policy, "forget", 1.0))]
    policy.merge(ordered)
    return policy.state()


def _folded(deltas: Sequence[State], forget: float) -> State:
    """Return one delta with the sum of all deltas, in their order, and all their ids."""
    headers = [_header(delta) for delta in deltas]
    first = headers[0]
    for delta, header in zip(deltas, headers, strict=True):
        _refuse_other(deltas[0], first, delta, header)
    timed = [header for header in headers if header.get("buckets") is not None]
    for header in timed:
        if header["buckets"] != timed[0]["buckets"]:
            by, other = (timed[0], header) if timed[0]["buckets"] else (header, timed[0])
            message = f"delta {_id(by)!r} learned with time buckets and {_id(other)!r} without; "
            raise MergeError(
                message + "pass a bucket with every update of all copies, or with none"
            )
    now = max(_whole(header, "clock") for header in headers)
    ages = [forget ** (now - header["clock"]) for header in headers]
    sums = {
        name: _sum(
            [delta[name] for delta in deltas], [1.0] * len(ages) if name == _UNAGED else ages
        )
        for name in deltas[0]
        if name != "meta"
    }
    if not all(np.isfinite(array).all() for array in sums.values()):
        raise _not_finite(deltas, headers)
    names = [_id(header) for header in headers]
    inside = {name for header in headers for name in _includes(header)}
    together = {
        **first,
        **({"buckets": timed[0]["buckets"]} if timed else {}),
        "clock": now,
        "updates": sum(_whole(header, "updates", least=-_MOST) for header in headers),
        "delta": names[0],
        "includes": sorted({*names[1:], *inside}),
    }
    return {**sums, "meta": _packed(together)}


def _sum(arrays: Sequence[Floats], factors: Sequence[float]) -> Floats:
    """Return Σ factor · array, added in order, block by block."""
    total: Floats = np.zeros(arrays[0].shape)
    flat = total.reshape(-1)
    rows = [np.ascontiguousarray(array).reshape(-1) for array in arrays]
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK]
            for row, factor in zip(rows, factors, strict=True):
                part = row[start : start + _BLOCK]
                block += part if factor == 1.0 else factor * part
    return total


def _refuse_other(first: State, model: Header, delta: State, header: Header) -> None:
    for name in ("algorithm", "version", "config", "removals"):
        if header.get(name) != model.get(name):
            message = (
                f"delta {_id(header)!r} has {name} {header.get(name)!r:.200}, delta "
                f"{_id(model)!r} {model.get(name)!r:.200}; use one configuration for all copies"
            )
            raise MergeError(message)
    shapes = {name: (array.shape, array.dtype) for name, array in delta.items() if name != "meta"}
    wanted = {name: (array.shape, array.dtype) for name, array in first.items() if name != "meta"}
    if shapes != wanted or any(kind != np.float64 for _, kind in shapes.values()):
        message = f"delta {_id(header)!r} and delta {_id(model)!r} have different arrays"
        raise MergeError(message)


def _not_finite(deltas: Sequence[State], headers: Sequence[Header]) -> MergeError:
    for delta, header in zip(deltas, headers, strict=True):
        if not all(np.isfinite(array).all() for name, array in delta.items() if name != "meta"):
            return MergeError(f"delta {_id(header)!r} holds NaN or infinity; nothing was merged")
    return MergeError("the merged sums exceed the float64 range; nothing was merged")


def _listed(group: Iterable[State]) -> Iterable[State]:
    if isinstance(group, Mapping):
        raise MergeError("deltas must be a list; put this one into a list")
    return group


def _header(delta: State) -> Header:
    try:
        return state_header(delta)
    except VerificationError as error:
        message = f"this delta cannot be read: {error}"
        raise MergeError(message) from None


def _id(header: Header) -> str:
    name = header.get("delta")
    if isinstance(name, str) and name:
        return name
    raise MergeError("this is a state, not a delta; pass the result of delta()")


def _includes(header: Header) -> list[str]:
    names = header.get("includes")
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return names
    message = f"delta {_id(header)!r} does not list the deltas it includes; create it again"
    raise MergeError(message)


def _whole(header: Header, name: str, *, least: int = 0) -> int:
    """Return a counter. The number of updates may be negative."""
    value = header.get(name)
    if type(value) is int and least <= value <= _MOST:
        return value
    message = f"delta {_id(header)!r} has {name} {value!r:.80}; allowed is a whole number"
    raise MergeError(message)


def _packed(header: Header) -> NDArray[np.uint8]:
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return np.frombuffer(text.encode(), dtype=np.uint8).copy()
