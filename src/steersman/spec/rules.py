"""Rules: conditions on the context, each with an action."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag, field_validator
from pydantic_core import PydanticCustomError

from steersman.errors import SpecError
from steersman.spec.base import ActionName, Declared, Identifier
from steersman.spec.expressions import compile_rule
from steersman.spec.rule_kinds import never_works


def _target_tag(value: object) -> str:
    return "#parts" if isinstance(value, dict) else "#name"


Configuration = Annotated[
    dict[Identifier, str | bool | int | float], Field(min_length=1), Tag("#parts")
]
Target = Annotated[Annotated[ActionName, Tag("#name")] | Configuration, Discriminator(_target_tag)]
"""Action name, or a value for every part of a mixed action."""


class Rule(Declared):
    """A condition and its action."""

    when: str
    """Condition on the context, for example `confidence < 0.2 and intent in ["faq", "chat"]`."""
    action: Target
    """Action when the condition holds."""

    @field_validator("when")
    @classmethod
    def _parses(cls, text: str) -> str:
        try:
            compile_rule(text)
        except SpecError as error:
            said, _, advice = str(error).rpartition("; ")
            what, _, allowed = said.rpartition("; allowed")
            raise _wrong(what, allowed.lstrip(": "), advice) from None
        never = never_works(text)
        if never:
            raise _wrong(*never)
        return text


def _wrong(what: str, allowed: str, advice: str) -> PydanticCustomError:
    details = {"what": what, "allowed": allowed, "advice": advice}
    return PydanticCustomError("declared", "{what}; allowed {allowed}; {advice}", details)


Rules = Annotated[tuple[Rule, ...], Field(strict=False, max_length=100)]


class RuleList(Declared):
    """Ordered rules: the first rule that holds chooses the action."""

    rules: Rules = ()
    """Conditions and actions, checked in order."""
    otherwise: Target
    """Action when no rule holds. For mixed actions: a value for each part. In a fallback over open
    candidates: `first` is the first eligible candidate."""
