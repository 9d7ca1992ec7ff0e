"""Chat backend: OpenAI chat completions over HTTP."""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import msgspec

from steersman.errors import BackendAnswerError, BackendError, BackendUnavailableError, InputError
from steersman.platform.breaker import Breaker
from steersman.providers.backend import Completion, check_asked, encoded
from steersman.providers.http_exchange import Server, post
from steersman.wire import Refused, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from steersman.providers.http_exchange import Reply

FAILURES = 3
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
MAX_ANSWER_BYTES = 1 << 20
_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_MODEL = re.compile(r"[^\x00-\x1f]{1,200}")
_OF_PROMPT = frozenset({400, 413, 422})
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_PATH = re.compile(r"[\x21-\x7e]*")
_QUOTED = 200


class ChatBackend:
    """Backend for a server with OpenAI's ``/chat/completions``.

    It sends one request per prompt over a new connection, without retries. After three failures in
    a row, or a ``Retry-After`` header, a circuit breaker stops requests for a while; then one
    request probes the server. Thread-safe.

    Args:
        base_url: http(s)://host[:port][/prefix], such as ``http://127.0.0.1:8080/v1``; the prefix
            is percent-encoded.
        model: model name of the server, 1 to 200 characters.
        api_key: bearer token; None: no token. Never logged or shown; removed from error messages
            of the server.
        ca_file: trusted certificates in PEM; None: those of the system.
        clock: monotonic clock in seconds.

    Raises:
        InputError: an argument is out of range.

    >>> ChatBackend("http://127.0.0.1:8080/v1", "small-model", api_key="secret")
    ChatBackend('http://127.0.0.1:8080/v1', 'small-model')
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        ca_file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = _server(base_url, None if ca_file is None else str(ca_file))
        if not _MODEL.fullmatch(model):
            advice = "use a name that the server lists under /models"
            raise InputError(f"model is {model!r:.80}; allowed: 1 to 200 characters; {advice}")
        if api_key is not None and not _KEY.fullmatch(api_key):
            raise InputError(
                "api_key must be 1 to 4096 printable ASCII characters without spaces; the one "
                f"given has {len(api_key)}, some not allowed (check for a trailing line break)"
            )
        self._url = base_url.rstrip("/")
        self._model = model
        self._api_key = api_key
        self._clock = clock
        self._breaker = Breaker(
            "model", clock, failures=FAILURES, open_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S
        )

    def __repr__(self) -> str:
        return f"ChatBackend({self._url!r}, {self._model!r})"

    @property
    def name(self) -> str:
        """Server and model."""
        return f"{self._url}#{self._model}"

    def complete(self, prompt: str, *, max_tokens: int = 64, timeout_s: float = 10.0) -> str:
        """Return the model's answer to a prompt, at temperature 0.

        Args:
            prompt: complete prompt, 1 to 200,000 characters.
            max_tokens: maximum answer tokens, 1 to 100,000; default 64.
            timeout_s: total timeout in seconds, 0.001 to 3600.

        Raises:
            BackendUnavailableError: no answer in time, no connection, or the server is busy or
                failing; ``retry_after_s`` is the retry time, if known.
            BackendAnswerError: the server refused the request, or its answer is not a completion.
            InputError: an argument is out of range; no request was sent.
        """
        return self.completion(prompt, max_tokens=max_tokens, timeout_s=timeout_s).text

    def completion(
        self, prompt: str, *, max_tokens: int = 64, timeout_s: float = 10.0
    ) -> Completion:
        """Return the model's answer with the token counts of the server.

        Returns:
            The text and ``usage``; a missing or invalid count is None.

        Raises:
            BackendUnavailableError: as `complete` does.
            BackendAnswerError: as `complete` does.
            InputError: as `complete` does.
        """
        check_asked(prompt, max_tokens, timeout_s)
        body = self._body(prompt, max_tokens)
        turn = self._breaker.turn()
        if turn.wait_s:
            message = f"{self!r}: request not sent: the circuit breaker is open; retry in "
            message += f"{turn.wait_s:.0f} s"
            raise BackendUnavailableError(message, retry_after_s=turn.wait_s, asked=False)
        begun = self._clock()
        try:
            completion = self._ask(body, timeout_s)
        except BackendUnavailableError as error:
            self._breaker.failed(turn, error.retry_after_s, took_s=self._clock() - begun)
            raise
        except BackendAnswerError:
            self._breaker.succeeded(turn)
            raise
        except BaseException:
            self._breaker.abandoned(turn)
            raise
        self._breaker.succeeded(turn)
        return completion

    def _body(self, prompt: str, max_tokens: int) -> bytes:
        return encoded(
            {
                "model": self._model,
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": max_tokens,
                "temperature": 0,
                "stream": False,
            }
        )

    def _ask(self, body: bytes, timeout_s: float) -> Completion:
        try:
            reply = post(
                self._server,
                "/chat/completions",
                body,
                self._headers(),
                timeout_s=timeout_s,
                max_bytes=MAX_ANSWER_BYTES,
            )
            return self._parsed(reply)
        except BackendUnavailableError as error:
            raise BackendUnavailableError(
                self._hidden(f"{self!r}: {error}"), retry_after_s=error.retry_after_s
            ) from None
        except BackendAnswerError as error:
            message = self._hidden(f"{self!r}: {error}")
            raise BackendAnswerError(message, of_prompt=error.of_prompt) from None

    def _headers(self) -> dict[str, str]:
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Connection": "close",
            "Content-Type": "application/json",
        }
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        return headers

    def _parsed(self, reply: Reply) -> Completion:
        if reply.status != 200:
            raise _refusal(reply, self._hidden(_complaint(reply.body)))
        try:
            value = read(reply.body, max_bytes=MAX_ANSWER_BYTES)
            return Completion(_content(value), *_usage(value))
        except Refused as error:
            raise _unread(reply.body, error) from None

    def _hidden(self, text: str) -> str:
        # Before truncation or quoting, so that no part of the key remains.
        return text if self._api_key is None else text.replace(self._api_key, "***")


def _server(url: str, ca_file: str | None) -> Server:
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname
        (host or "").encode("idna")
        port = parts.port or (443 if scheme == "https" else 80)
    except ValueError:
        raise InputError(
            "base_url is not a URL; expected one such as http://127.0.0.1:8080/v1"
        ) from None
    if "@" in parts.netloc:
        raise InputError("base_url must not contain a user or password; pass the key as api_key")
    if scheme not in {"http", "https"} or not host or parts.query or parts.fragment:
        wanted = "http(s)://host[:port][/prefix] without query or fragment"
        raise InputError(f"base_url must be {wanted}, got {url!r:.200}")
    if not _PATH.fullmatch(url.partition("://")[2].partition("/")[2]):
        raise InputError(f"base_url has an invalid path {parts.path!r:.200}; {_way(parts.path)}")
    return Server(scheme, host, port, parts.path.rstrip("/"), ca_file)


def _way(path: str) -> str:
    try:
        return f"write it as {quote(path.strip(), safe='/%'):.200}"
    except UnicodeEncodeError:
        return "percent-encode characters outside ASCII"


def _refusal(reply: Reply, detail: str) -> BackendError:
    """Return the error for a status other than 200, with the server's message."""
    quoted = f": {detail[:_QUOTED]!r}" if detail else ""
    message = f"the server answered {reply.status}{quoted}"
    if reply.status in _LATER:
        again_s = _seconds(reply.retry_after)
        when = "later" if again_s is None else f"in {again_s:g} s"
        return BackendUnavailableError(f"{message}; retry {when}", retry_after_s=again_s)
    advice = {
        401: "check the API key",
        403: "check what the API key allows",
        404: "check base_url (it often ends in /v1) and model",
    }
    message += f"; {advice.get(reply.status, 'check base_url and model')}"
    return BackendAnswerError(message, of_prompt=reply.status in _OF_PROMPT)


def _unread(body: bytes, why: Refused) -> BackendAnswerError:
    """Return the error for an unreadable answer."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = f"the answer is not JSON ({len(body)} bytes): {why}"
        return BackendAnswerError(f"{message}; check that the server speaks chat completions")
    reason = str(why).partition(";")[0]
    message = f"the answer is JSON outside the limits: {reason}; change the prompt or the model"
    return BackendAnswerError(message, of_prompt=True)


def _complaint(body: bytes) -> str:
    """Return the server's error message in OpenAI's format, or ""."""
    try:
        value = read(body, max_bytes=MAX_ANSWER_BYTES)
    except Refused:
        return ""
    error = value.get("error", "") if isinstance(value, dict) else ""
    text = error.get("message", "") if isinstance(error, dict) else error
    return text if isinstance(text, str) else ""


def _seconds(retry_after: str) -> float | None:
    """Return Retry-After in seconds; None for its date form."""
    try:
        seconds = float(retry_after)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _content(value: Any) -> str:
    place = value
    for step in ("choices", 0, "message", "content"):
        try:
            place = place[step]
        except (KeyError, IndexError, TypeError):
            message = "the answer is JSON, but has no choices[0].message.content"
            raise BackendAnswerError(
                f"{message}; check that the server speaks chat completions"
            ) from None
    if not isinstance(place, str):
        kind = type(place).__name__
        # A content filter or a tool call gives this answer, every time for this prompt.
        message = f"choices[0].message.content is {kind}; it must be a string"
        raise BackendAnswerError(message, of_prompt=True)
    return place


def _usage(value: Any) -> tuple[int | None, int | None]:
    usage = value.get("usage") if isinstance(value, dict) else None
    reported = usage if isinstance(usage, dict) else {}
    counts = [reported.get(name) for name in ("prompt_tokens", "completion_tokens")]
    prompt, answer = (n if type(n) is int and n >= 0 else None for n in counts)
    return prompt, answer
