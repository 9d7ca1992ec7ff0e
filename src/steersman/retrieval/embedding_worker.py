"""Worker program of `EmbeddingWorkers`: frames of texts in, frames of vectors out.

Arguments: ``MODULE:ATTRIBUTE`` and the options in JSON. A frame is a letter (t: texts, v: vectors,
e: error, h: embedder), four bytes of length, and the body. It exits with its parent.
"""

from __future__ import annotations

import struct
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np

from steersman.errors import DataError

if TYPE_CHECKING:
    from steersman.retrieval.dense import Embedder

HEAD = struct.Struct("<cI")
_MOST_BYTES = 1 << 30


def read_head(data: bytes) -> tuple[bytes, int]:
    """Return letter and body length of a frame, from its first five bytes.

    Raises:
        DataError: the frame is too long.

    >>> read_head(HEAD.pack(b"t", 7))
    (b't', 7)
    """
    kind, size = HEAD.unpack(data)
    if size > _MOST_BYTES:
        raise DataError(f"frame of {size:,} bytes; the maximum is {_MOST_BYTES:,}")
    return kind, size


def serve(made_by: str, options: str, source: BinaryIO, sink: BinaryIO) -> None:
    """Create the embedder, and embed until the source ends."""
    try:
        embedder = _made(made_by, options)
        size = embedder.size
    except Exception as error:  # noqa: BLE001 (reported to the parent, which raises it)
        _send(sink, b"h", msgspec.json.encode({"error": str(error) or repr(error)}))
        return
    _send(sink, b"h", msgspec.json.encode({"name": embedder.name, "size": size}))
    while head := source.read(HEAD.size):
        _, length = read_head(head)
        texts = msgspec.msgpack.decode(source.read(length), type=list[str])
        try:
            rows = np.ascontiguousarray(embedder.encode(texts), "<f4")
        except Exception as error:  # noqa: BLE001 (reported likewise)
            _send(sink, b"e", (str(error) or repr(error)).encode())
        else:
            _send(sink, b"v", rows.tobytes())


def _made(made_by: str, options: str) -> Embedder:
    module, _, name = made_by.partition(":")
    kinds: Any = msgspec.json.decode(options)
    embedder: Embedder = getattr(import_module(module), name)(**kinds)
    return embedder


def _send(sink: BinaryIO, kind: bytes, body: bytes) -> None:
    sink.write(HEAD.pack(kind, len(body)) + body)
    sink.flush()


def main() -> None:
    """Serve over the standard streams, with the embedder from the arguments."""
    made_by, options = sys.argv[1:]
    frames, sys.stdout = sys.stdout.buffer, sys.stderr  # output must not be read as a frame
    serve(made_by, options, sys.stdin.buffer, frames)
