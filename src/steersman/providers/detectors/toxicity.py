"""Detector of hateful and offensive texts, by a small classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.providers.detectors.flags import Flag
from steersman.providers.detectors.onnx_locale import in_plain_locale

if TYPE_CHECKING:
    from collections.abc import Sequence

_NEITHER = 2
_CLASSES = ("hateful", "offensive")
_PROBE = "The museum opens at nine."


class Toxicity:
    """Detector of hateful or offensive texts, by a classifier.

    Args:
        model: ONNX model: input ``text``, output probabilities of hateful, offensive and neither.
            `steersman.providers.detectors.toxicity_model.toxicity` loads one from a wheel.
        threshold: probability of hateful or offensive above which a text is flagged, in [0, 1].

    Raises:
        DataError: the extra ``rag`` (ONNX Runtime) is not installed, or the model does not match.
        InputError: the threshold is out of range.
    """

    name = "toxicity"

    def __init__(self, model: bytes, *, threshold: float = 0.5) -> None:
        if not 0 <= threshold <= 1:
            raise InputError(f"threshold is {threshold!r}; allowed: 0 to 1")
        self.threshold = threshold
        self._session = _session(in_plain_locale(model))
        if self.probabilities([_PROBE]).shape != (1, 3):
            raise DataError("the model does not have the classes hateful, offensive and neither")

    def probabilities(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the probabilities of hateful, offensive and neither.

        Returns:
            (texts, 3), each row with sum 1.

        Raises:
            DataError: the model returns another shape.
        """
        if not texts:
            return np.zeros((0, 3))
        # The model is case-sensitive, and a lone surrogate is not valid text.
        given = [one.lower().encode("utf-8", "replace").decode() for one in texts]
        try:
            rows = self._session.run(None, {"text": np.array(given, object)})[1]
            return np.array([[row[kind] for kind in range(3)] for row in rows], np.float64)
        except Exception as error:
            message = f"the model does not return probabilities of three classes: {error!s:.200}"
            raise DataError(message) from error

    def detect(self, text: str) -> tuple[Flag, ...]:
        """Return a flag over the whole text, or none."""
        found = self.probabilities([text])[0]
        score = float(1.0 - found[_NEITHER])
        if score <= self.threshold:
            return ()
        kind = _CLASSES[int(np.argmax(found[:_NEITHER]))]
        return (Flag(self.name, kind, score, 0, len(text)),)


def _session(model: bytes) -> Any:
    try:
        import onnxruntime  # noqa: PLC0415 (an extra)
    except ImportError as missing:
        message = "toxicity needs the package onnxruntime; install it with: "
        raise DataError(message + how_to_install("rag")) from missing
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        providers = ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(model, options, providers=providers)
    except Exception as error:
        raise DataError(f"ONNX Runtime cannot load the model: {error!s:.300}") from error
