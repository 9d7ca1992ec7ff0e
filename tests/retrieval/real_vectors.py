"""Vectors that MiniLM gave real requests and tools: 2,040 of 384 numbers, out of the package."""

from __future__ import annotations

from importlib.resources import files

import numpy as np


def real_vectors():
    """Return vectors to be searched, and others to search them for."""
    with (files("steersman_systems.assistant") / "recording.npz").open("rb") as file:
        recorded = np.load(file, allow_pickle=False)
        rows = np.concatenate([recorded["request_embedding"], recorded["tool_embedding"]])
    rows = rows.astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    _, first = np.unique(rows, axis=0, return_index=True)  # some requests are asked twice
    rows = rows[np.sort(first)]
    return rows[60:], rows[:60]
