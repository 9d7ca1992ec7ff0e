"""Embedding cache by content hash, so that no text is embedded twice."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from typing import TYPE_CHECKING, Self

import numpy as np

from steersman.db.vector_file import PAGE, VectorFile
from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder

_log = logging.getLogger(__name__)
_BATCH = 256


class CachedEmbedder:
    """Embedder with a cache on disk.

    Vectors are stored and returned as 16-bit floats, whether cached or computed, so a text always
    has the same bits. Several processes may share the file, and may be killed at any time. A full
    cache stores no more vectors, which is counted and logged once.

    Args:
        embedder: embedder of texts that are not cached.
        file: cache file, created with its folder; several embedders may share it, separated by
            their names.
        max_bytes: maximum file size in bytes, ≥ 65,536; later vectors are not stored.

    Attributes:
        computed: number of embedded texts.
        found: number of cached texts.
        unstored: number of embedded texts that could not be stored.

    Raises:
        InputError: `max_bytes` is too small.
        DataError: the file is damaged, not an embedding cache, or not writable.
    """

    def __init__(self, embedder: Embedder, file: Path, *, max_bytes: int = 4_000_000_000) -> None:
        if max_bytes < 16 * PAGE:
            raise InputError(f"max_bytes is {max_bytes!r}; the minimum is {16 * PAGE:,}")
        self.name = embedder.name
        self.size = embedder.size
        self.computed = self.found = self.unstored = 0
        self._embedder = embedder
        self._file = VectorFile(file, max_bytes // PAGE)
        self._logged = False

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, embedding those not in the cache.

        Returns:
            (texts, size) float32, each row of norm 1 up to 16-bit rounding.

        Raises:
            InputError: `texts` is a string, or the embedder returned rows that are not finite, not
                of norm 1, or of another dimension; nothing is stored then.
            DataError: the cache is damaged.
        """
        if isinstance(texts, str):
            raise InputError(f"texts is the string {texts[:40]!r}; put it in a list")
        rows = [self._encode_batch(texts[i : i + _BATCH]) for i in range(0, len(texts), _BATCH)]
        return np.concatenate(rows) if rows else np.zeros((0, self.size), np.float32)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _encode_batch(self, texts: Sequence[str]) -> NDArray[np.float32]:
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        vectors = self._look_up(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in vectors}
        if missing:
            rows = unit_rows(self._embedder.encode(list(missing.values())), len(missing), self)
            computed = dict(zip(missing, rows.astype(np.float16), strict=True))
            self._store(computed)
            vectors |= computed
        self.computed += len(missing)
        self.found += len(texts) - len(missing)
        return np.stack([vectors[key] for key in keys]).astype(np.float32)

    def _look_up(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float16]]:
        try:
            return self._file.read(self.name, keys, self.size)
        except (OSError, sqlite3.Error) as error:
            self._log_once(error)
            return {}

    def _store(self, vectors: Mapping[bytes, NDArray[np.float16]]) -> None:
        try:
            self._file.write(self.name, vectors)
        except (OSError, sqlite3.Error) as error:
            self.unstored += len(vectors)
            self._log_once(error)

    def _log_once(self, error: Exception) -> None:
        if not self._logged:
            message = "cannot store embeddings in %s now; they will be computed again next time: %s"
            _log.warning(message, self._file.path, error)
        self._logged = True


def unit_rows(rows: NDArray[np.float32], count: int, embedder: Embedder) -> NDArray[np.float32]:
    """Return the rows of an embedder as float32, checked.

    Raises:
        InputError: another shape, or rows that are not finite or not of norm 1.
    """
    found = np.asarray(rows, np.float32)
    if found.shape != (count, embedder.size):
        raise InputError(
            f"the embedder {embedder.name} returned shape {found.shape} for {count} texts; "
            f"expected ({count}, {embedder.size})"
        )
    lengths = np.linalg.norm(found, axis=1)
    # This form also refuses NaN.
    if not (np.abs(lengths - 1.0) <= 1e-3).all():
        worst = lengths[np.argmax(np.where(np.isfinite(lengths), np.abs(lengths - 1), np.inf))]
        raise InputError(
            f"the embedder {embedder.name} returned a vector of norm {worst}; expected finite "
            "rows of norm 1: divide each by its norm"
        )
    return found
