"""Answer cache: the interface, and the cache in memory.

An entry has the vectors of all options of a template after one hypothesis. It does not depend on
the target, so later investigations can reuse it.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol

from steersman.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from steersman_systems.interrogator.questions import Template

_MAX_BYTES = 1 << 28


class AnswerCache(Protocol):
    """Cache of the vectors of answers; it may drop an entry at any time."""

    def get(self, key: str) -> NDArray[np.float16] | None:
        """Return the vectors of a key, or None."""

    def put(self, key: str, vectors: NDArray[np.float16]) -> None:
        """Store vectors under a key; replaces an older entry.

        Args:
            vectors: (options, size) float16.
        """


class MemoryCache:
    """In-memory `AnswerCache`; the least recently used entry is evicted.

    Args:
        max_bytes: Maximum size of all vectors, ≥ 0; 256 MiB hold about 30,000 answers.

    Raises:
        InputError: ``max_bytes`` is below zero.

    >>> import numpy as np
    >>> cache = MemoryCache(max_bytes=8)
    >>> cache.put("a", np.zeros((1, 4), np.float16))
    >>> cache.put("b", np.ones((1, 4), np.float16))
    >>> cache.get("a") is None, len(cache)
    (True, 1)
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        if max_bytes < 0:
            message = f"max_bytes is {max_bytes}; allowed: 0 or more; 0 disables the cache"
            raise InputError(message)
        self._max_bytes, self._bytes = max_bytes, 0
        self._kept: OrderedDict[str, NDArray[np.float16]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._kept)

    def get(self, key: str) -> NDArray[np.float16] | None:
        """Return the vectors of a key, or None.

        Returns:
            (options, size) float16, the stored array.
        """
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: str, vectors: NDArray[np.float16]) -> None:
        """Store vectors under a key; replaces an older entry.

        Args:
            vectors: (options, size) float16.
        """
        before = self._kept.pop(key, None)
        self._bytes -= 0 if before is None else before.nbytes
        self._kept[key] = vectors
        self._bytes += vectors.nbytes
        while self._bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.nbytes


def cache_key(
    template: Template, hypothesis: str, embedder: str, slots: Mapping[str, str] | None = None
) -> str:
    """Return the cache key of an answer; it does not depend on the target.

    Returns:
        64 hex digits.

    >>> from steersman_systems.interrogator.questions import load_questions
    >>> field = load_questions()["field"]
    >>> cache_key(field, "A text", "one") == cache_key(field, "A text", "another")
    False
    """
    options = template.options
    plain: Any = options if isinstance(options, tuple) else sorted(options.items())
    held = (slots or {}).get(template.needs or "")
    return _digest(["answer", template.name, template.phrase, plain, held, hypothesis, embedder])


def text_key(text: str, embedder: str) -> str:
    """Return the cache key of a text, for example of the opening.

    Returns:
        64 hex digits.

    >>> len(text_key("A text", "all-minilm-l6-v2-int8"))
    64
    """
    return _digest(["text", text, embedder])


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()
