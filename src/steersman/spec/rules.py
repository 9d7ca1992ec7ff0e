"""Rules: conditions on the context, and what is done where they hold."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag, field_validator
from pydantic_core import PydanticCustomError

from steersman.errors import SpecError
from steersman.spec.base import ActionName, Declared, Identifier
from steersman.spec.expressions import compile_rule


def _target_tag(value: object) -> str:
    return "#parts" if isinstance(value, dict) else "#name"


Configuration = Annotated[
    dict[Identifier, str | bool | int | float], Field(min_length=1), Tag("#parts")
]
Target = Annotated[Annotated[ActionName, Tag("#name")] | Configuration, Discriminator(_target_tag)]
"""A named action, or a value for every part of a mixed one."""


class Rule(Declared):
    """An action and the condition under which it is taken."""

    when: str
    """A condition on the context, such as `confidence < 0.2 and intent in ["faq", "chat"]`."""
    action: Target
    """The action taken when the condition holds."""

    @field_validator("when")
    @classmethod
    def _parses(cls, text: str) -> str:
        try:
            compile_rule(text)
        except SpecError as error:
            what, _, allowed = str(error).partition("; allowed: ")
            details = {"what": what, "allowed": allowed, "advice": "correct the condition"}
            message = "{what}; allowed {allowed}; {advice}"
            raise PydanticCustomError("declared", message, details) from None
        return text


Rules = Annotated[tuple[Rule, ...], Field(strict=False, max_length=100)]


class RuleList(Declared):
    """Rules in order, the first that holds wins, and what is done when none does."""

    rules: Rules = ()
    """Conditions and actions, tried in order."""
    otherwise: Target
    """The action when no rule holds: a name; in the fallback `first` for the first eligible of open
    candidates; a value for each part where actions are mixed."""
