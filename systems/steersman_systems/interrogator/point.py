"""Decision point of the interrogator: the next question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import SpecError
from steersman.spec.loader import load
from steersman_systems.configs import shipped

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.spec.point import DecisionPoint
    from steersman_systems.interrogator.questions import Questions


def load_point(questions: Questions, path: Path | None = None) -> DecisionPoint:
    """Return the decision point with the questions as actions.

    Args:
        path: YAML file; ``None`` for the shipped one.

    Raises:
        SpecError: The file is not a valid declaration, or its actions are not the names of the
            questions in the same order.

    >>> from steersman_systems.interrogator.questions import load_questions
    >>> point = load_point(load_questions())
    >>> point.decision, point.policy.algorithm, point.context.dim
    ('question', 'lin_ts', 256)
    """
    path = path or shipped("interrogator/question.yaml")
    point = load(path)
    names = tuple(getattr(point.actions, "names", ()))
    if names == questions.names:
        return point
    missing = [name for name in questions.names if name not in names]
    unknown = [name for name in names if name not in questions.names]
    differs = (
        f"questions that are not actions: {', '.join(missing) or 'none'}; "
        f"actions that are not questions: {', '.join(unknown) or 'none'}"
        if missing or unknown
        else "the order differs"
    )
    message = (
        f"{path}: actions.names are not the names in questions.yaml; {differs}; "
        "list the same names in the same order"
    )
    raise SpecError(message)


def point_document(path: Path | None = None) -> str:
    """Return the declaration as text, for declaring it to a service.

    Args:
        path: YAML file; ``None`` for the shipped one.

    Raises:
        SpecError: The file cannot be read.

    >>> "decision: question" in point_document()
    True
    """
    path = path or shipped("interrogator/question.yaml")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path}: cannot be read: {error}; check the path, and save the file as UTF-8"
        raise SpecError(message) from None
