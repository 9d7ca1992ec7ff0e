"""Declaration of decision points in YAML, with validation.

`load` and `loads` read a declaration, `json_schema` returns its JSON Schema, and `compile_rule`
compiles the condition of a rule. All parts are frozen.

Names are imported on first use, so that rules do not need the YAML parser and the validator.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steersman.spec.actions import (
        FIRST_ELIGIBLE,
        Actions,
        Choice,
        Mixed,
        Sequence,
        configuration_name,
    )
    from steersman.spec.context import (
        CategoryField,
        Context,
        ContextField,
        NumberField,
        TextField,
        VectorField,
    )
    from steersman.spec.expressions import CompiledRule, compile_rule
    from steersman.spec.loader import load, loads
    from steersman.spec.operation import Budgets, Gates, Learning
    from steersman.spec.parts import BooleanPart, CategoricalPart, IntegerPart, Part, RealPart
    from steersman.spec.point import DecisionPoint
    from steersman.spec.policy import (
        BetaThompsonPolicy,
        BoundedLinUCBPolicy,
        EpsilonGreedyPolicy,
        FactoredTSPolicy,
        FixedPolicy,
        JointLinTSPolicy,
        JointSquareCBPolicy,
        KernelUCBPolicy,
        LinTSPolicy,
        LinUCBPolicy,
        Policy,
        RulesPolicy,
        SequenceLinearPolicy,
        SequenceTreesPolicy,
    )
    from steersman.spec.privacy import CUSTOM, KINDS, Privacy
    from steersman.spec.reward import MissingValue, Reward, Term
    from steersman.spec.rollout import (
        ErrorBudget,
        Guardrail,
        Objective,
        Rollout,
        Stage,
        guardrail_name,
    )
    from steersman.spec.rules import Rule, RuleList
    from steersman.spec.schema import json_schema

__all__ = [
    "CUSTOM",
    "FIRST_ELIGIBLE",
    "KINDS",
    "Actions",
    "BetaThompsonPolicy",
    "BooleanPart",
    "BoundedLinUCBPolicy",
    "Budgets",
    "CategoricalPart",
    "CategoryField",
    "Choice",
    "CompiledRule",
    "Context",
    "ContextField",
    "DecisionPoint",
    "EpsilonGreedyPolicy",
    "ErrorBudget",
    "FactoredTSPolicy",
    "FixedPolicy",
    "Gates",
    "Guardrail",
    "IntegerPart",
    "JointLinTSPolicy",
    "JointSquareCBPolicy",
    "KernelUCBPolicy",
    "Learning",
    "LinTSPolicy",
    "LinUCBPolicy",
    "MissingValue",
    "Mixed",
    "NumberField",
    "Objective",
    "Part",
    "Policy",
    "Privacy",
    "RealPart",
    "Reward",
    "Rollout",
    "Rule",
    "RuleList",
    "RulesPolicy",
    "Sequence",
    "SequenceLinearPolicy",
    "SequenceTreesPolicy",
    "Stage",
    "Term",
    "TextField",
    "VectorField",
    "compile_rule",
    "configuration_name",
    "guardrail_name",
    "json_schema",
    "load",
    "loads",
]

_HOMES = {
    "actions": "FIRST_ELIGIBLE Actions Choice Mixed Sequence configuration_name",
    "context": "CategoryField Context ContextField NumberField TextField VectorField",
    "expressions": "CompiledRule compile_rule",
    "loader": "load loads",
    "operation": "Budgets Gates Learning",
    "parts": "BooleanPart CategoricalPart IntegerPart Part RealPart",
    "point": "DecisionPoint",
    "policy": "BetaThompsonPolicy BoundedLinUCBPolicy EpsilonGreedyPolicy FactoredTSPolicy "
    "FixedPolicy JointLinTSPolicy JointSquareCBPolicy KernelUCBPolicy LinTSPolicy LinUCBPolicy "
    "Policy RulesPolicy SequenceLinearPolicy SequenceTreesPolicy",
    "privacy": "CUSTOM KINDS Privacy",
    "reward": "MissingValue Reward Term",
    "rollout": "ErrorBudget Guardrail Objective Rollout Stage guardrail_name",
    "rules": "Rule RuleList",
    "schema": "json_schema",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
