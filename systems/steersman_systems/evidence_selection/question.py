"""Question with its earlier turns, answers and gold passages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from steersman.errors import InputError

_SPEAKERS = ("user", "agent")


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance of a conversation.

    Args:
        speaker: ``user`` or ``agent``.
        text: text of the utterance.

    Raises:
        InputError: unknown speaker.
    """

    speaker: Literal["user", "agent"]
    text: str

    def __post_init__(self) -> None:
        if self.speaker not in _SPEAKERS:
            raise InputError(f"speaker is {self.speaker!r}; allowed: user, agent")


@dataclass(frozen=True, slots=True)
class Question:
    """Question with answers and gold passages, which selectors must not read.

    Only training and evaluation read `answers` and `gold`.

    Args:
        id: unique in its set.
        text: question text, not blank.
        history: earlier turns, oldest first.
        answers: alternative correct answers; () if unknown.
        gold: ids of all passages that the answer needs; () if unknown.
        category: kind, known before the answer; "" if unknown.
        conversation: conversation of this turn; "" if there is none.

    Raises:
        InputError: no id, or a blank text.

    >>> Question("q", "Who painted the ceiling?").gold
    ()
    """

    id: str
    text: str
    history: tuple[Turn, ...] = ()
    answers: tuple[str, ...] = ()
    gold: tuple[str, ...] = ()
    category: str = ""
    conversation: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            raise InputError("a question has no id; give it a unique id")
        if not self.text.strip():
            raise InputError(f"question {self.id!r} has no text; remove it, or add its text")
