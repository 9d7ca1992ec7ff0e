"""Neural network scorer that needs only numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError, StateError
from steersman.errors.format import brief
from steersman.policies import inputs, states

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.policies.states import State

    Floats = NDArray[np.float64]

_ALGORITHM, _VERSION = "NetworkScorer", 1


class NetworkScorer:
    """Neural network with tanh layers and a linear output, over standardised rows.

    Args:
        mean: (columns,) subtracted from each row.
        scale: (columns,) divisor of each row, > 0.
        layers: (weights (out, in), biases (out,)) per layer; the last layer has one output.

    Raises:
        InputError: layers that do not fit, a scale that is not above 0, or non-finite numbers.

    >>> line = NetworkScorer.linear(np.array([2.0, 0.0]))
    >>> line.scores(np.array([[1.0, 5.0]])).tolist()
    [2.0]
    """

    def __init__(
        self, mean: Floats, scale: Floats, layers: Sequence[tuple[Floats, Floats]]
    ) -> None:
        mean, scale = inputs.numbers("mean", mean).copy(), inputs.numbers("scale", scale).copy()
        layers = _copies(layers)
        arrays = [mean, scale, *(array for layer in layers for array in layer)]
        width = len(mean)
        self.columns = width
        for weights, biases in layers:
            if weights.shape != (len(biases), width):
                raise InputError(
                    f"a layer has shape {weights.shape}; expected {(len(biases), width)}"
                )
            width = len(biases)
        sound = all(np.isfinite(array).all() for array in arrays) and (scale > 0).all()
        if not layers or width != 1 or len(scale) != self.columns or not sound:
            raise InputError(
                f"invalid network of {len(layers)} layers with {width} outputs; allowed: one "
                "or more layers, one output, finite numbers, scales above 0"
            )
        self._mean, self._scale, self._layers = mean, scale, layers

    @classmethod
    def linear(cls, weights: Floats, bias: float = 0.0) -> NetworkScorer:
        """Return a linear scorer.

        Args:
            weights: (columns,).
            bias: constant term.

        Raises:
            InputError: not numbers.
        """
        weights = inputs.numbers("weights", weights)
        columns, bias = len(weights), inputs.parameter("bias", bias, -1e300, 1e300)
        layer = (weights[None], np.array([bias]))
        return cls(np.zeros(columns), np.ones(columns), [layer])

    def scores(self, rows: Floats) -> Floats:
        """Return a score for each row; larger is better.

        Args:
            rows: (n, columns) float64 finite.

        Raises:
            InputError: wrong number of columns, or not numbers.
        """
        rows = inputs.numbers("rows", rows, axes=2)
        if rows.shape[1] != self.columns:
            raise InputError(f"rows have shape {rows.shape}; allowed: (n, {self.columns})")
        hidden = (rows - self._mean) / self._scale
        for weights, biases in self._layers[:-1]:
            hidden = np.tanh(hidden @ weights.T + biases)
        weights, biases = self._layers[-1]
        found: Floats = (hidden @ weights.T + biases)[:, 0]
        return found

    def state(self) -> State:
        """Return the network as arrays and a header."""
        meta = {
            "algorithm": _ALGORITHM, "version": _VERSION,
            "config": {"actions": [], "layers": len(self._layers)},
        }  # fmt: skip
        sums = {"mean": self._mean.copy(), "scale": self._scale.copy()}
        for number, (weights, biases) in enumerate(self._layers):
            sums |= {f"weights.{number}": weights.copy(), f"biases.{number}": biases.copy()}
        return states.pack(meta, sums)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> NetworkScorer:
        """Return the scorer of a state.

        Args:
            state: result of `state`.

        Raises:
            StateError: not a state of this class, or damaged.
        """
        meta, sums = states.unpack(state, algorithm=_ALGORITHM, version=_VERSION)
        count = meta["config"].get("layers")
        if type(count) is not int or not 1 <= count <= 16:
            raise StateError(f"the state has {count!r} layers; allowed: 1 to 16")
        try:
            layers = [(sums[f"weights.{n}"], sums[f"biases.{n}"]) for n in range(count)]
            return cls(sums["mean"], sums["scale"], layers)
        except (KeyError, InputError) as wrong:
            raise StateError(f"the state is damaged: {wrong}; use an older state") from wrong


def _copies(layers: Any) -> list[tuple[Floats, Floats]]:
    try:
        pairs = [(weights, biases) for weights, biases in layers]
    except (TypeError, ValueError):
        message = f"layers must be pairs (weights, biases); got {brief(layers)}"
        raise InputError(message) from None
    return [
        (
            inputs.numbers("weights", weights, axes=2).copy(order="C"),
            inputs.numbers("biases", biases).copy(),
        )
        for weights, biases in pairs
    ]
