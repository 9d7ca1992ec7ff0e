"""Shipped log of the interrogator: recording and provenance."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.retrieval.dense import MODEL, TOKENIZER
from steersman_systems.assistant.requests import WHEEL
from steersman_systems.interrogator.answer_cache import MemoryCache
from steersman_systems.interrogator.answers import OptionAnswerer
from steersman_systems.interrogator.choosers import Learned
from steersman_systems.interrogator.step_log import load_steps, record_steps, warm
from steersman_systems.interrogator.target_sets import recorded_vectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.retrieval.dense import Embedder
    from steersman.spec.point import DecisionPoint
    from steersman_systems.interrogator.questions import Questions
    from steersman_systems.interrogator.step_log import StepLog
    from steersman_systems.interrogator.targets import Target

SEED = 3
STEPS = 10_000


def record(
    questions: Questions, targets: Sequence[Target], embedder: Embedder, *, steps: int = STEPS
) -> StepLog:
    """Return a log of uniform choices, from an empty cache and a fixed seed."""
    answerer = OptionAnswerer(embedder, MemoryCache())
    rng = np.random.default_rng(SEED)
    log = record_steps(targets, answerer, questions=questions, rng=rng, steps=steps)
    rows = np.array([target.row for target in targets], np.int32)
    return replace(log, target=rows[log.target])


def warm_started(
    point: DecisionPoint, questions: Questions, *, frozen: bool = False, trust: float = 1.0
) -> Learned:
    """Return the declared policy after one epoch over the shipped log.

    Args:
        trust: Weight of a logged step, in (0, 1].

    Returns:
        The chooser; it takes half a second.

    Raises:
        DataError: The log or the recording is missing, or has other questions.
    """
    learned = Learned.declared(point, frozen=frozen)
    warm(learned, load_steps(questions), recorded_vectors(), trust=trust)
    return learned


def provenance(log: StepLog, content: bytes, questions: Questions, embedder: str) -> dict[str, Any]:
    """Return the provenance of a log, for ``steps.json``.

    Args:
        content: Result of `StepLog.to_bytes`.
    """
    last = np.append(log.session[1:] != log.session[:-1], [True])
    return {
        "made_by": "steersman data record interrogator",
        "sha256": hashlib.sha256(content).hexdigest(),
        "questions": questions.sha256,
        "embedder": embedder,
        "seed": SEED,
        "steps": len(log),
        "sessions": len(np.unique(log.session)),
        "targets": len(np.unique(log.target)),
        "sources": [
            {"wheel": wheel.filename, "sha256": wheel.sha256, "licence": wheel.licence}
            for wheel in (WHEEL, MODEL, TOKENIZER)
        ],
        "libraries": {
            name: importlib.metadata.version(name)
            for name in ("numpy", "onnxruntime", "tokenizers")
        },
        "machine": {
            "architecture": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "similarity": {
            "opening": round(float(log.opening[last].mean()), 4),
            "reached": round(float(log.after[last].mean()), 4),
        },
        "mean_gain": round(float(log.gain.mean()), 5),
        "cache_hit_rate": round(float(1.0 - log.missed.mean()), 4),
    }
