"""Embedder over HTTP, for servers with OpenAI's ``/v1/embeddings``."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import urllib3

from steersman.errors import BackendAnswerError, BackendUnavailableError, InputError
from steersman.platform.retry import Backoff
from steersman.retrieval.dense import check_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

KEY_VARIABLE = "STEERSMAN_EMBEDDINGS_API_KEY"
_BATCH = 64
_MAX_BYTES = 64 << 20
_PART = 1 << 16
_MAX_NUMBERS = 65_536
_LATER = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_QUOTED = 200
_BACKOFF = Backoff(first_s=0.5, longest_s=10.0)


class HttpEmbedder:
    """Embedder over HTTP, with retries and limits of time and size per request.

    The key is never stored or shown; it is removed from error messages of the server. A model name
    does not identify its weights, so rename a model when its weights change.

    Args:
        url: URL up to ``/v1`` without a query, with the model after ``#``:
            ``http://127.0.0.1:8080/v1#bge-small``.
        size: dimension of the vectors; None: requested from the server.
        key: API key, 1 to 4096 printable ASCII characters without spaces; default: from
            ``STEERSMAN_EMBEDDINGS_API_KEY``; empty: no key.
        timeout_s: timeout per request in seconds; default 30.
        tries: maximum attempts per request, ≥ 1; default 3.
        sleep: function that waits some seconds between attempts.

    Raises:
        InputError: the URL has no server or model, or has a password or a query; or the key is
            invalid.
        BackendUnavailableError: the server does not respond.
        BackendAnswerError: its response is not an embedding.
    """

    def __init__(
        self,
        url: str,
        *,
        size: int | None = None,
        key: str | None = None,
        timeout_s: float = 30.0,
        tries: int = 3,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name, self._address, self._model = _parsed(url)
        key = os.environ.get(KEY_VARIABLE) if key is None else key
        self._headers = {"content-type": "application/json"}
        self._secret: re.Pattern[str] | None = None
        if key:
            self._headers["authorization"] = f"Bearer {_checked_key(key)}"
            self._secret = _in_any_form(key)
        self._timeout_s, self._tries, self._sleep = timeout_s, tries, sleep
        self._http = urllib3.PoolManager(maxsize=4, retries=False)
        self.size = len(self._ask(["size"], None)[0]) if size is None else size

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts.

        Args:
            texts: texts; an empty one is sent as a space, because servers refuse it.

        Returns:
            (texts, size) float32, each row of norm 1.

        Raises:
            InputError: a text holds a lone surrogate.
            BackendUnavailableError: all attempts failed.
            BackendAnswerError: the server refused, or sent no embedding of this size.
        """
        check_texts(texts)
        rows = [
            self._ask([text or " " for text in texts[first : first + _BATCH]], self.size)
            for first in range(0, len(texts), _BATCH)
        ]
        return np.concatenate(rows) if rows else np.zeros((0, self.size), np.float32)

    def _ask(self, texts: Sequence[str], size: int | None) -> NDArray[np.float32]:
        body = msgspec.json.encode(
            {"model": self._model, "input": texts, "encoding_format": "float"}
        )
        for attempt in range(1, self._tries + 1):
            try:
                return self._checked(self._post(body), len(texts), size)
            except BackendUnavailableError as error:
                if attempt == self._tries:
                    raise
                pause_s = error.retry_after_s or _BACKOFF.pause_s(attempt)
                self._sleep(min(pause_s, _BACKOFF.longest_s))
        raise AssertionError("unreachable: the last try returns or raises")

    def _post(self, body: bytes) -> bytes:
        try:
            answer = self._http.request(
                *("POST", self._address),
                body=body,
                headers=self._headers,
                timeout=self._timeout_s,
                redirect=False,
                preload_content=False,
            )
            with answer:
                data = self._read(answer)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            cause = self._hidden(repr(error))[:300]
            message = f"no embeddings from {self._address}: {cause}; check the address, "
            raise BackendUnavailableError(message + "and that the server is running") from error
        if len(data) > _MAX_BYTES:
            raise BackendAnswerError(
                f"{self._address} sent more than {_MAX_BYTES:,} bytes, the maximum"
            )
        if answer.status != 200:
            raise self._refused(answer.status, answer.headers.get("retry-after", ""), data)
        return data

    def _read(self, answer: Any) -> bytes:
        """Return the body; the timeout covers the whole transfer, also from slow servers."""
        until = time.monotonic() + self._timeout_s
        data = bytearray()
        while len(data) <= _MAX_BYTES and (part := answer.read1(_PART)):
            data += part
            if time.monotonic() > until:
                raise TimeoutError(f"no complete answer within {self._timeout_s:g} s")
        return bytes(data)

    def _refused(self, status: int, after: str, data: bytes) -> Exception:
        text = self._hidden(data.decode("utf-8", "replace"))[:_QUOTED]
        message = f"{self._address} answered {status}: {text!r}; "
        if status in _LATER:
            wait = float(after) if _SECONDS.fullmatch(after) else None
            return BackendUnavailableError(message + "retry later", retry_after_s=wait)
        return BackendAnswerError(f"{message}check the model {self._model!r} and {KEY_VARIABLE}")

    def _hidden(self, text: str) -> str:
        # Before truncation, so that no part of the key remains.
        return text if self._secret is None else self._secret.sub("***", text)

    def _checked(self, data: bytes, count: int, size: int | None) -> NDArray[np.float32]:
        """Return the rows of a response in the order of the texts."""
        try:
            answer = msgspec.json.decode(data, type=_EmbeddingResponse)
            places = {one.index: one.embedding for one in answer.data}
            rows = np.array([places[place] for place in range(count)], np.float64)
        except (msgspec.DecodeError, msgspec.ValidationError, KeyError, ValueError) as error:
            message = f"{self._address} did not send a list of {count} embeddings: {error!r:.200}"
            raise BackendAnswerError(
                message + "; check that it is an embeddings endpoint"
            ) from error
        wanted = rows.shape[1] if size is None and rows.ndim == 2 else size
        if rows.ndim != 2 or rows.shape[1] != wanted or not 1 <= rows.shape[1] <= _MAX_NUMBERS:
            message = f"{self._address} sent vectors of shape {rows.shape}; expected {count} "
            raise BackendAnswerError(
                f"{message}of dimension {wanted}; check that the model is the same"
            )
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        # This form also refuses NaN.
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            message = (
                f"{self._address} sent a vector of norm {lengths.min()}, which cannot be normalised"
            )
            raise BackendAnswerError(message)
        return np.asarray(rows / lengths, np.float32)


class _Embedding(msgspec.Struct):
    index: int
    embedding: list[float]


class _EmbeddingResponse(msgspec.Struct):
    data: list[_Embedding]


def _parsed(url: str) -> tuple[str, str, str]:
    """Return name, address and model; errors quote no URL that may hold a secret."""
    try:
        parts: Any = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        message = "invalid embedder URL; expected http(s)://host[:port]/v1#model"
        raise InputError(message) from None
    if "@" in parts.netloc:
        message = "the embedder URL holds a password, and the URL is stored with the corpus; put "
        raise InputError(f"{message}the key in {KEY_VARIABLE}")
    if parts.query:
        message = "the embedder URL has a query (?...), which would not be sent; remove "
        raise InputError(f"{message}it, and put a key in {KEY_VARIABLE}")
    if parts.scheme not in {"http", "https"} or not host:
        raise InputError(f"invalid embedder URL {url!r:.120}; expected http(s)://host/v1#model")
    if not parts.fragment:
        raise InputError(f"{url!r:.120} has no model; add it after #, as in {url:.80}#bge-small")
    base = parts._replace(fragment="", path=parts.path.rstrip("/")).geturl()
    return f"served:{base}#{parts.fragment}", f"{base}/embeddings", parts.fragment


def _checked_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise InputError(
            f"{KEY_VARIABLE} must be 1 to 4096 printable ASCII characters without spaces; the one "
            f"given has {len(key)}, some not allowed (check for a trailing line break)"
        )
    return key


def _in_any_form(key: str) -> re.Pattern[str]:
    """Return a pattern for a key, also with JSON escapes."""
    return re.compile("".join(rf"(?:\\u(?i:{ord(one):04x})|\\?{re.escape(one)})" for one in key))
