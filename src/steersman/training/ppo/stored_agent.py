"""Checks of a saved PPO state before it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # Adam moments of each network weight


def check_state(state: Arrays, own: Arrays, weights: Sequence[tuple[int, ...]]) -> None:
    """Raise an error if an agent cannot load a state.

    Args:
        weights: shapes of the network weights in Adam's order.

    Raises:
        StateError: the state belongs to another agent or is damaged.

    >>> own = {"network.a": np.zeros(2), "learning_rate": np.array(0.1), "updates": np.array(0)}
    >>> check_state(own, own, [(2,)])
    >>> check_state({**own, "adam.0.step": np.array(1.0)}, own, [(2,)])
    Traceback (most recent call last):
    steersman.errors.StateError: adam.0.exp_avg, adam.0.exp_avg_sq: allowed are ...
    """
    wanted = {name for name in own if not name.startswith("adam.")}
    moments = {name for name in state if name.startswith("adam.")}
    odd = {n for n in wanted if n not in state or np.shape(state[n]) != np.shape(own[n])}
    if odd:
        message = f"{_few(odd)} do not fit; restore a state of the same parts, features and width"
        raise StateError(message)
    if wrong := {name for name in wanted | moments if not _is_sound(state[name])}:
        raise StateError(f"{_few(wrong)} are not finite numbers; restore an older state")
    _check_moments({name: state[name] for name in moments}, weights)
    rate, updates = float(state["learning_rate"]), float(state["updates"])
    if rate <= 0.0 or updates < 0.0 or updates % 1.0:
        message = f"learning_rate is {rate:g} and updates {updates:g}; allowed are a rate above 0 "
        raise StateError(message + "and whole numbers from 0; restore an older state")


def _check_moments(kept: Arrays, weights: Sequence[tuple[int, ...]]) -> None:
    """Raise an error if moments are incomplete or have wrong shapes; none is fine before a step."""
    fitting = {
        f"adam.{number}.{field}": () if field == "step" else shape
        for number, shape in enumerate(weights)
        for field in _MOMENTS
    }
    if kept and (odd := set(kept) ^ set(fitting)):
        message = f"{_few(odd)}: allowed are {', '.join(_MOMENTS)} of each of {len(weights)} "
        raise StateError(message + "weights, or none; restore an older state")
    if odd := {name for name, array in kept.items() if np.shape(array) != fitting[name]}:
        message = f"{_few(odd)} do not have the shapes of their weights"
        raise StateError(message + "; restore an older state")


def _few(names: set[str]) -> str:
    return ", ".join(sorted(names)[:3])


def _is_sound(array: object) -> bool:
    values = np.asarray(array)
    return values.dtype.kind in "fiu" and bool(np.isfinite(values).all())
