"""Language models behind HTTP: the chat completions that most servers speak."""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import msgspec

from steersman.errors import (
    BackendAnswerError,
    BackendError,
    BackendUnavailableError,
    InputError,
)
from steersman.llm.asked import check_asked, encoded
from steersman.llm.backend import Completion
from steersman.llm.breaker import Breaker
from steersman.llm.exchange import Server, post
from steersman.wire import Refused, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from steersman.llm.exchange import Reply

MAX_ANSWER_BYTES = 1 << 20
_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_MODEL = re.compile(r"[^\x00-\x1f]{1,200}")
_OF_PROMPT = frozenset({400, 413, 422})
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_PATH = re.compile(r"[\x21-\x7e]*")
_QUOTED = 200


class ChatBackend:
    """A model behind a server that speaks OpenAI's ``/chat/completions``.

    One request per prompt, over a connection of its own, never repeated by itself: whoever asks
    has a time to keep and something to fall back to. A server that failed three times in a row,
    or asks by ``Retry-After`` to be left alone, is not asked for a while; then one request tries.
    May be used from several threads.

    Args:
        base_url: http(s)://host[:port][/prefix], such as ``http://127.0.0.1:8080/v1``; the prefix
            as it is sent, with %20 for a space.
        model: as the server names it, 1 to 200 characters.
        api_key: sent as bearer token; None: none is sent. Never logged or shown; if the server
            repeats it in an error, it is blotted out.
        ca_file: certificates to trust, in PEM; None: those that the system trusts.
        clock: monotonic clock in seconds.

    Raises:
        InputError: an argument out of range.

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
        self._breaker = Breaker(clock)

    def __repr__(self) -> str:
        return f"ChatBackend({self._url!r}, {self._model!r})"

    @property
    def name(self) -> str:
        """Server and model: another server's model of the same name may be another model."""
        return f"{self._url}#{self._model}"

    def complete(self, prompt: str, *, max_tokens: int = 64, timeout_s: float = 10.0) -> str:
        """Return what the model says to a prompt, by its most likely words.

        Args:
            prompt: complete prompt, 1 to 200,000 characters.
            max_tokens: maximum answer tokens, 1 to 100,000; default 64.
            timeout_s: total timeout in seconds, 0.001 to 3600.

        Returns:
            The text of the first choice, as it came.

        Raises:
            BackendUnavailableError: no answer in time, no connection, or the server is busy or
                broken; ``retry_after_s`` says when to try again, where it is known.
            BackendAnswerError: the server refused the request, or what it sent is no completion.
            InputError: an argument is out of range; no request was sent.
        """
        return self.completion(prompt, max_tokens=max_tokens, timeout_s=timeout_s).text

    def completion(
        self, prompt: str, *, max_tokens: int = 64, timeout_s: float = 10.0
    ) -> Completion:
        """Return what `complete` does, with the tokens that the server says it counted.

        Args:
            prompt: as for `complete`.
            max_tokens: as for `complete`.
            timeout_s: as for `complete`.

        Returns:
            The text and ``usage``; a count that is absent or no count is None.

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
            said = self._ask(body, timeout_s)
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
        return said

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
            return self._said(reply)
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

    def _said(self, reply: Reply) -> Completion:
        if reply.status != 200:
            raise _refusal(reply, self._hidden(_complaint(reply.body)))
        try:
            value = read(reply.body, max_bytes=MAX_ANSWER_BYTES)
            return Completion(_content(value), *_usage(value))
        except Refused as error:
            raise _unread(reply.body, error) from None

    def _hidden(self, text: str) -> str:
        # Before anything is cut or quoted, so that no half of it stays.
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


def _refusal(reply: Reply, said: str) -> BackendError:
    """Return the error that a status other than 200 means, with what the server says of it."""
    quoted = f": {said[:_QUOTED]!r}" if said else ""
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
    """Return the error that an answer means which cannot be read."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = f"the answer is not JSON ({len(body)} bytes): {why}"
        return BackendAnswerError(f"{message}; check that the server speaks chat completions")
    told = str(why).partition(";")[0]
    message = f"the answer is JSON outside the limits: {told}; change the prompt or the model"
    return BackendAnswerError(message, of_prompt=True)


def _complaint(body: bytes) -> str:
    """Return the message of an error as OpenAI's and most others' servers send it, or ""."""
    try:
        value = read(body, max_bytes=MAX_ANSWER_BYTES)
    except Refused:
        return ""
    error = value.get("error", "") if isinstance(value, dict) else ""
    text = error.get("message", "") if isinstance(error, dict) else error
    return text if isinstance(text, str) else ""


def _seconds(retry_after: str) -> float | None:
    """Return a Retry-After in seconds; its other form, a date, says too little to be worth it."""
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
        # A filter or the call of a tool answers so, each time that it is asked this.
        message = f"choices[0].message.content is {kind}; it must be a string"
        raise BackendAnswerError(message, of_prompt=True)
    return place


def _usage(value: Any) -> tuple[int | None, int | None]:
    usage = value.get("usage") if isinstance(value, dict) else None
    told = usage if isinstance(usage, dict) else {}
    counts = [told.get(name) for name in ("prompt_tokens", "completion_tokens")]
    prompt, answer = (n if type(n) is int and n >= 0 else None for n in counts)
    return prompt, answer
