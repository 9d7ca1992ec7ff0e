"""Worker program of `LocalBackend`: one line of JSON in, one line of JSON out.

Arguments: model, context size and chat template in JSON; the parent's process id. Its first line
is the runtime name, or why loading failed. It exits within seconds after its parent, also while it
loads the model or generates an answer.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_BATCH_TOKENS = 512
_LOOK_S = 1.0


def serve(ask: Callable[[Mapping[str, Any]], Any], source: BinaryIO, sink: BinaryIO) -> None:
    """Answer prompts until the source ends."""
    for line in source:
        asked = msgspec.json.decode(line)
        try:
            answer = _answer(ask(request(asked["prompt"], asked["max_tokens"], asked["stop"])))
        except Exception as error:  # noqa: BLE001 (reported to the parent, which raises it)
            answer = {"error": str(error) or repr(error)}
        _send(sink, answer)


def request(prompt: str, max_tokens: int, stop: Sequence[str] = ()) -> dict[str, Any]:
    """Return the server request: greedy decoding, no prompt cache.

    >>> request("Why?", 8)["temperature"]
    0.0
    """
    return {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0.0,
        "seed": 0,
        "stop": list(stop),
        # With a prompt cache, a shared prefix changes the batches, and rounding would make an
        # answer depend on earlier prompts.
        "cache_prompt": False,
        "stream": False,
    }


def _answer(response: Any) -> dict[str, Any]:
    if "error" in response:
        error = response["error"]
        return {"error": str(error.get("message", error)), "status": error.get("code")}
    usage = response.get("usage", {})
    return {
        "text": response["choices"][0]["message"]["content"] or "",
        "prompt_tokens": usage.get("prompt_tokens"),
        "answer_tokens": usage.get("completion_tokens"),
    }


def _send(sink: BinaryIO, value: Mapping[str, Any]) -> None:
    sink.write(msgspec.json.encode(value) + b"\n")
    sink.flush()


def _opened(model: str, context_tokens: int, template: str) -> tuple[Any, str]:
    import xllamacpp  # noqa: PLC0415 (an extra)

    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_ctx = context_tokens
    parameters.chat_template = template
    parameters.n_batch = parameters.n_ubatch = _BATCH_TOKENS
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.use_jinja = True
    parameters.warmup = False
    parameters.cache_ram_mib = 0  # it would cache up to 8 GiB of prompts that are rarely repeated
    parameters.verbosity = 0
    # The library always listens on a port; the key prevents other access.
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [secrets.token_urlsafe(32)]
    return xllamacpp.Server(parameters), str(xllamacpp.__version__)


def end_with(parent: int) -> None:
    """Exit when the parent process has exited.

    A closed pipe is not sufficient: another process may hold it open.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Serve over the standard streams, with the model from the arguments."""
    end_with(int(sys.argv[2]))
    lines = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the library must not be read as an answer
    settings = msgspec.json.decode(sys.argv[1])
    try:
        server, version = _opened(**settings)
    except Exception as error:  # noqa: BLE001 (reported to the parent, which raises it)
        missing = isinstance(error, ModuleNotFoundError)
        _send(lines, {"error": str(error) or repr(error), "missing": missing})
        return
    _send(lines, {"runtime": f"llama.cpp/{version}"})
    serve(server.handle_chat_completions, sys.stdin.buffer, lines)
