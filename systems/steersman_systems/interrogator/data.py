"""``steersman data record interrogator``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.cli.data import checked_output

if TYPE_CHECKING:
    from pathlib import Path


def record(home: Path | None, out: Path | None) -> tuple[Path, bytes, dict[str, Any]]:
    """Ask 10,000 random questions about the requests reserved for warm starts."""
    from steersman.retrieval.dense import MiniLM  # noqa: PLC0415 (slow)
    from steersman_systems.interrogator import log_recorder as recording  # noqa: PLC0415
    from steersman_systems.interrogator import step_log  # noqa: PLC0415
    from steersman_systems.interrogator.questions import load_questions  # noqa: PLC0415
    from steersman_systems.interrogator.target_sets import load_targets  # noqa: PLC0415

    out = checked_output(out or step_log.STEPS)
    questions, embedder = load_questions(), MiniLM(home)
    targets = load_targets(part="warm", home=home)
    log = recording.record(questions, targets, embedder)
    content = log.to_bytes()
    about = recording.provenance(log, content, questions, embedder.name)
    return out, content, about
