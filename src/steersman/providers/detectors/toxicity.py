"""Detector of hateful and offensive texts, by a small classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.platform.wheel_files import PinnedWheel
from steersman.providers.detectors.flags import Flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_GRAPH, _NODE, _OPERATOR, _ATTRIBUTE, _NAME, _TEXT, _TYPE, _STRING = 7, 1, 4, 5, 1, 4, 20, 3
_FOLDS_CASE = b"StringNormalizer"
_LOCALE = b"locale"


def in_plain_locale(model: bytes) -> bytes:
    """Return an ONNX model whose case-folding nodes use the locale "C".

    Raises:
        DataError: the bytes are not an ONNX model.
    """
    try:
        return _within(model, _GRAPH, lambda graph: _within(graph, _NODE, _plain))
    except (IndexError, ValueError) as error:
        raise DataError(f"not an ONNX model ({len(model)} bytes): {error}") from None


def _plain(node: bytes) -> bytes:
    fields = list(_fields(node))
    if (_OPERATOR, _FOLDS_CASE) not in [(number, value) for number, value, _ in fields]:
        return node
    kept = [
        whole
        for number, value, whole in fields
        if not (number == _ATTRIBUTE and (_NAME, _LOCALE) in [one[:2] for one in _fields(value)])
    ]
    locale = _field(_NAME, _LOCALE) + _field(_TEXT, b"C") + _number(_TYPE << 3) + _number(_STRING)
    return b"".join([*kept, _field(_ATTRIBUTE, locale)])


def _within(message: bytes, wanted: int, change: Callable[[bytes], bytes]) -> bytes:
    parts = []
    for number, value, whole in _fields(message):
        new = change(value) if number == wanted else value
        parts.append(whole if new == value else _field(number, new))
    return b"".join(parts)


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield number, value and raw bytes of each field."""
    place = 0
    while place < len(message):
        begin = place
        key, place = _read(message, place)
        start = place
        if key & 7 == 2:
            length, start = _read(message, place)
            place = start + length
        elif key & 7 == 0:
            _, place = _read(message, place)
        elif key & 7 in {1, 5}:
            place += 8 if key & 7 == 1 else 4
        else:
            raise ValueError(f"unknown wire type {key & 7}")
        if place > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, message[start:place], message[begin:place]


def _read(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise ValueError("an integer is not terminated")


def _number(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _field(number: int, value: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(value)) + value


_NEITHER = 2
_CLASSES = ("hateful", "offensive")
_PROBE = "The museum opens at nine."


class Toxicity:
    """Detector of hateful or offensive texts, by a classifier.

    Args:
        model: ONNX model: input ``text``, output probabilities of hateful, offensive and neither.
            `steersman.providers.detectors.toxicity.toxicity` loads one from a wheel.
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


HATESONAR = PinnedWheel(
    project="hatesonar",
    version="0.1.0",
    filename="hatesonar-0.1.0-py3-none-any.whl",
    sha256="969c56618bd628b3cb9b69d4e5170b461c8270737d2b0eb37ba0d55e207e9f37",
    size=222_593,
    licence="MIT",
)
_MEMBER = "hatesonar/model/model.onnx"


def toxicity(home: Path | None = None, *, threshold: float = 0.5) -> Toxicity:
    """Return the detector with HateSonar's weights (0.2 MB), downloaded once and checked by hash.

    It is a logistic regression over words, trained on English tweets. It flags swear words, also
    friendly ones, and misses most threats. A person must review the flags.

    Args:
        threshold: probability above which a text is flagged, 0 to 1.

    Raises:
        DataError: the extra ``rag`` is not installed, or the wheel cannot be downloaded.
        InputError: the threshold is out of range.

    Source: Davidson, Warmsley, Macy & Weber, Automated Hate Speech Detection and the Problem of
    Offensive Language (2017), for the data and the confusion of the two classes.
    """
    HATESONAR.fetch(home)
    return Toxicity(HATESONAR.read({_MEMBER: 3_000_000}, home)[_MEMBER], threshold=threshold)
