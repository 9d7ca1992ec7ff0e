"""Pair models run by ONNX Runtime: cross-encoders and entailment models."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError, InputError
from steersman.retrieval.dense import onnx_libraries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

_MAX_TOKENS = 512
_LARGEST = 2_000_000_000


@dataclass(frozen=True, slots=True)
class PairWeights:
    """Files of a pair model, in memory.

    Args:
        model: ONNX model with inputs ``input_ids``, ``attention_mask`` and optionally
            ``token_type_ids``, and one output of logits.
        tokenizer: content of ``tokenizer.json``.
        labels: output labels in order, in lower case; () if unknown.
        name: model name, for messages.
    """

    model: bytes
    tokenizer: str
    labels: tuple[str, ...]
    name: str

    @classmethod
    def of_folder(cls, folder: Path) -> PairWeights:
        """Read an exported model: ``model.onnx``, ``tokenizer.json``, ``config.json``.

        Raises:
            DataError: a file is missing, too large or invalid.
        """
        try:
            files = {name: _read(folder / name) for name in ("model.onnx", "tokenizer.json")}
            labels = _labels(folder / "config.json")
            return cls(files["model.onnx"], files["tokenizer.json"].decode(), labels, str(folder))
        except (OSError, ValueError, AttributeError, TypeError) as wrong:
            raise DataError(
                f"no usable model in {folder}: {wrong}; export one there, for "
                "example `optimum-cli export onnx --model cross-encoder/ms-marco-MiniLM-L6-v2 "
                f"{folder}`, which writes model.onnx, tokenizer.json and config.json"
            ) from wrong


class PairModel:
    """Pair model; it runs one pair at a time on one thread, so results are independent of batches.

    Args:
        weights: weights of the model.

    Raises:
        DataError: the extra ``rag`` is not installed, or the files are not a pair model.
    """

    def __init__(self, weights: PairWeights) -> None:
        runtime, tokenizers = onnx_libraries("a model of pairs")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session = runtime.InferenceSession(
                weights.model, options, providers=["CPUExecutionProvider"]
            )
            self._tokenizer = tokenizers.Tokenizer.from_str(weights.tokenizer)
        # Neither library has an error class.
        except Exception as wrong:
            message = f"{weights.name} is not a usable ONNX model: {wrong}; export it again"
            raise DataError(message) from wrong
        self._inputs = [one.name for one in self._session.get_inputs()]
        self._cut(self._session.get_inputs()[0].shape)

    def logits(self, firsts: Sequence[str], seconds: Sequence[str]) -> NDArray[np.float32]:
        """Return the logits of pairs.

        Args:
            seconds: second text of each pair; if a pair is too long, the longer text is truncated.

        Raises:
            InputError: the numbers of texts differ.
            DataError: the model returned another shape.
        """
        if len(firsts) != len(seconds):
            raise InputError(
                f"{len(firsts)} texts are paired with {len(seconds)}; pass the same number of both"
            )
        if not firsts:
            return np.zeros((0, 1), np.float32)
        rows = np.concatenate(
            [self._one(first, second) for first, second in zip(firsts, seconds, strict=True)]
        )
        if rows.ndim != 2 or not np.isfinite(rows).all():
            raise DataError(f"the model returned shape {rows.shape}; expected logits")
        return np.asarray(rows, np.float32)

    def _cut(self, shape: Sequence[Any]) -> None:
        # Some models are exported for a fixed length.
        length = shape[1] if len(shape) == 2 and isinstance(shape[1], int) else None
        self._tokenizer.enable_truncation(length or _MAX_TOKENS)
        if length is None:
            self._tokenizer.no_padding()
        else:
            padding = dict(self._tokenizer.padding or {}) | {"length": length}
            self._tokenizer.enable_padding(**padding)

    def _one(self, first: str, second: str) -> NDArray[np.float32]:
        encoded = self._tokenizer.encode(first, second)
        known = {
            "input_ids": encoded.ids,
            "attention_mask": encoded.attention_mask,
            "token_type_ids": encoded.type_ids,
        }
        feed = {name: np.array([known[name]], np.int64) for name in self._inputs}
        row: NDArray[np.float32] = self._session.run(None, feed)[0]
        return row


def _labels(file: Path) -> tuple[str, ...]:
    if not file.exists():
        return ()
    named = json.loads(_read(file)).get("id2label", {})
    return tuple(str(named[key]).lower() for key in sorted(named, key=int))


def _read(file: Path) -> bytes:
    size = file.stat().st_size
    if size > _LARGEST:
        raise ValueError(f"{file} has {size:,} bytes; the maximum is {_LARGEST:,}")
    return file.read_bytes()
