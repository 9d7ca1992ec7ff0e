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
        text: what was said.

    Raises:
        InputError: another speaker.
    """

    speaker: Literal["user", "agent"]
    text: str

    def __post_init__(self) -> None:
        if self.speaker not in _SPEAKERS:
            raise InputError(f"speaker is {self.speaker!r}; allowed: user, agent")


@dataclass(frozen=True, slots=True)
class Question:
    """A question; no selector may look at `answers` or `gold`, only what trains and judges.

    Args:
        id: unique in its set.
        text: what is asked, not blank.
        history: the turns before it, the first first.
        answers: texts that answer it, any of them; () if unknown.
        gold: ids of the passages that its answer needs, all of them; () if unknown.
        category: its kind, known before it is answered; "" if unknown.
        conversation: it is a turn of; "" if it is none.

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
