"""Checks across the sections of a decision point.

Each check names the sections that it compares. It is skipped when one of them is invalid, so one
run reports all errors of a document.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from steersman.errors import InputError
from steersman.spec.actions import FIRST_ELIGIBLE, STANDING, Actions, Choice, Mixed, Sequence
from steersman.spec.base import Meant, Problem, some_of
from steersman.spec.expressions import compile_rule
from steersman.spec.parts import too_much
from steersman.spec.policy import (
    MODELS,
    FactoredTSPolicy,
    FixedPolicy,
    PolicyParameters,
    RulesPolicy,
    SequenceLinearPolicy,
    SequenceTreesPolicy,
    loadable,
)
from steersman.spec.rule_kinds import never_works

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from steersman.spec.context import Context
    from steersman.spec.point import Learning
    from steersman.spec.policy import RuleList, Target
    from steersman.spec.privacy import Privacy
    from steersman.spec.rule_kinds import Kind

Path = tuple[str | int, ...]
_LEAST_TEMPERATURE = 1e-6
_LEAST_FLOOR = 1e-6
_MOST_DRAWN_AMONG = 2_000  # every answer and row has names and probabilities of all steps
_LARGEST_STATE_MIB = 255  # a snapshot holds 256; the rest is for names and counts
_KIND_OF_FIELD: dict[str, Kind] = {
    "text": "text",
    "category": "text",
    "number": "number",
    "vector": "vector",
}


def crosscheck(sections: Mapping[str, object]) -> Iterator[Problem]:
    """Yield every conflict between valid sections, given by name."""
    for names, check in _CHECKS:
        if all(name in sections for name in names):
            yield from check(*(sections[name] for name in names))


def _floor(explore: str, floor: float) -> Iterator[Problem]:
    if explore == "floor" and floor == 0:
        yield Problem(
            ("floor",),
            "without a floor some actions are never tried and off-policy evaluation is impossible",
            floor,
            "above 0 and below 1",
            "set a floor such as 0.02, or explore: none",
        )
    if 0 < floor < _LEAST_FLOOR:
        yield Problem(
            ("floor",),
            "too small: the floor is lost in rounding",
            floor,
            f"{_LEAST_FLOOR:g} to below 1, or 0 with explore: none",
            "set a floor such as 0.02",
        )
    if explore == "none" and floor > 0:
        yield Problem(
            ("floor",),
            "floor must be 0 when explore is none",
            floor,
            "0",
            "remove it or set explore: floor",
        )


def _policy_actions(actions: Actions, policy: PolicyParameters) -> Iterator[Problem]:
    if actions.kind not in policy.policy_class.action_kinds:
        yield from _of_another_kind(actions, policy)
        return
    reads_actions = policy.reads == "action_features"
    if isinstance(actions, Choice) and not reads_actions:
        if not actions.names:
            yield from _nothing_named(policy)
            return
        if actions.features:
            yield from _features_unread(actions, policy)
        if actions.open:
            yield from _open_to_nobody(policy)
        # `first` is valid in the fallback only.
        actions = actions.model_copy(update={"open": False})
    if isinstance(policy, FixedPolicy):
        yield from _unknown_action(actions, ("policy", "action"), policy.action)
    if isinstance(policy, RulesPolicy):
        yield from _rule_actions(actions, ("policy",), policy)
    if isinstance(policy, SequenceLinearPolicy | SequenceTreesPolicy):
        yield from _start(actions, policy)
        yield from _drawing(actions, policy)
    if reads_actions and isinstance(actions, Choice) and not actions.features:
        yield Problem(
            ("policy", "algorithm"),
            f"{policy.algorithm} needs features of the actions",
            policy.algorithm,
            f"{policy.algorithm} with actions.features",
            "add actions.features, or use a policy that reads the context",
        )


def _joint() -> str:
    """Return the algorithms that read features of named or open actions, for messages."""
    return " or ".join(
        found.algorithm
        for found in loadable()
        if found.reads == "action_features" and "choice" in found.action_kinds
    )


def _built(
    context: Context, actions: Actions, policy: PolicyParameters, floor: float
) -> Iterator[Problem]:
    """Yield what the constructor of a policy without a model in this package refuses."""
    if policy.algorithm in MODELS or actions.kind not in policy.policy_class.action_kinds:
        return
    try:
        import_module("steersman.points.policy_factory").of_sections(
            context, actions, policy, floor
        )
    except Exception as error:  # noqa: BLE001 (of a constructor that others wrote)
        name = policy.policy_class.__name__
        what = str(error) if isinstance(error, InputError) else f"{name} fails: {error!r}"
        own = policy.model_dump(exclude={"algorithm"})
        yield Problem(("policy",), what, own, f"what {name} accepts", "correct it")


def _nothing_named(policy: PolicyParameters) -> Iterator[Problem]:
    yield Problem(
        ("policy", "algorithm"),
        "this policy needs named actions",
        policy.algorithm,
        f"{_joint()} if every request sends its candidates",
        "add actions.names, or add actions.features and use a joint policy",
    )


def _features_unread(actions: Choice, policy: PolicyParameters) -> Iterator[Problem]:
    yield Problem(
        ("actions", "features"),
        f"{policy.algorithm} does not use features of actions",
        list(actions.features),
        f"no features, or {_joint()}",
        "remove them, or use a joint policy",
    )


def _open_to_nobody(policy: PolicyParameters) -> Iterator[Problem]:
    yield Problem(
        ("actions", "open"),
        f"{policy.algorithm} accepts only named actions",
        got=True,
        allowed=f"false, or {_joint()}",
        advice="remove it, or use a joint policy",
    )


def _of_another_kind(actions: Actions, policy: PolicyParameters) -> Iterator[Problem]:
    allowed = [found.algorithm for found in loadable() if actions.kind in found.action_kinds]
    yield Problem(
        ("policy", "algorithm"),
        f"this policy does not support {actions.kind} actions",
        policy.algorithm,
        some_of(allowed),
        "use another policy, or another kind of actions",
    )


def _start(
    actions: Actions, policy: SequenceLinearPolicy | SequenceTreesPolicy
) -> Iterator[Problem]:
    columns = [*(actions.features if isinstance(actions, Sequence) else ()), *STANDING]
    for name, weight in policy.start.items():
        if name not in columns:
            yield Problem(
                ("policy", "start", name),
                "unknown column",
                weight,
                some_of(columns),
                Meant(name, columns),
            )


def _drawing(
    actions: Actions, policy: SequenceLinearPolicy | SequenceTreesPolicy
) -> Iterator[Problem]:

    steps = actions.max_steps if isinstance(actions, Sequence) else 1
    if steps * policy.leading > _MOST_DRAWN_AMONG:
        yield Problem(
            ("policy", "leading"),
            f"{steps} steps would log {steps * policy.leading:,} candidates per decision",
            policy.leading,
            f"max_steps times leading at most {_MOST_DRAWN_AMONG:,}",
            "lower leading or max_steps",
        )
    if 0 < policy.temperature < _LEAST_TEMPERATURE:
        yield Problem(
            ("policy", "temperature"),
            "temperature is too small for a softmax",
            policy.temperature,
            f"0, or {_LEAST_TEMPERATURE:g} to 100",
            "set 0 to take the best action, or raise it",
        )


def _size(context: Context, actions: Actions, policy: PolicyParameters) -> Iterator[Problem]:
    """Yield a problem if the learned state would not fit into a snapshot."""
    if isinstance(actions, Mixed):
        if isinstance(policy, FactoredTSPolicy):
            yield from too_much(actions, policy, context.dim)
        return
    if not policy.policy_class.second_moments or policy.reads == "nothing":
        return
    shared = not policy.policy_class.state_per_action
    models, dim = len(getattr(actions, "names", ())), context.dim
    dim += getattr(policy, "random_features", 0)
    if shared:
        models, dim = 1, len(actions.features) + getattr(actions, "vector", 0)
    each = dim * (dim + 3) / 2 * 8 / 2**20
    if models * each > _LARGEST_STATE_MIB:
        fewer = f", or {int(_LARGEST_STATE_MIB / each):,} models of this size"
        yield Problem(
            ("actions", "features") if shared else ("context", "dim"),
            f"{models:,} models of {dim:,} numbers need a state of {models * each:,.0f} MiB",
            dim,
            f"{_LARGEST_STATE_MIB} MiB{'' if shared else fewer}",
            "declare fewer features"
            if shared
            else "lower dim, declare fewer actions, or use a joint policy",
        )


def _policy_learning(policy: PolicyParameters, learning: Learning) -> Iterator[Problem]:
    if not policy.policy_class.learns_online and learning.mode != "frozen":
        yield Problem(
            ("learning", "mode"),
            f"{policy.algorithm} cannot learn online: it is trained from the log and published",
            learning.mode,
            "frozen",
            "set learning: {mode: frozen}, or use another policy",
        )


def _fallback_actions(actions: Actions, fallback: RuleList) -> Iterator[Problem]:
    yield from _rule_actions(actions, ("fallback",), fallback)


def _rule_actions(actions: Actions, path: Path, listed: RuleList) -> Iterator[Problem]:
    for place, rule in enumerate(listed.rules):
        yield from _unknown_action(actions, (*path, "rules", place, "action"), rule.action)
    yield from _unknown_action(actions, (*path, "otherwise"), listed.otherwise)


def _unknown_action(actions: Actions, path: Path, action: Target) -> Iterator[Problem]:
    if isinstance(actions, Mixed):
        yield from _configuration(actions, path, action)
        return
    known = list(actions.names) if isinstance(actions, Choice) else []
    if not isinstance(actions, Choice) or actions.open:
        known.append(FIRST_ELIGIBLE)
    if action not in known:
        yield Problem(path, "unknown action", action, some_of(known), Meant(str(action), known))


def _configuration(actions: Mixed, path: Path, action: Target) -> Iterator[Problem]:
    if not isinstance(action, dict):
        parts = ", ".join(actions.parts)
        allowed = f"a value for each part: {parts}"
        yield Problem(path, "not a configuration", action, allowed, "write part: value pairs")
        return
    wrong = list(actions.wrong_values(action))
    yield from (problem._replace(path=(*path, *problem.path)) for problem in wrong)
    missing = [name for name in actions.parts if name not in action]
    for name in missing:
        yield Problem(
            path, f"no value for part {name}", action, actions.parts[name].allowed, "add it"
        )
    if not wrong and not missing and actions.name_of(action) not in actions.names:
        yield Problem(
            path, "configuration is barred", action, "an allowed configuration", "change it"
        )


def _policy_names(context: Context, policy: PolicyParameters) -> Iterator[Problem]:
    if isinstance(policy, RulesPolicy):
        yield from _rule_names(context, ("policy",), policy)
    key = getattr(policy, "key", None)
    if policy.reads == "key" and key is not None:
        categories = [name for name, field in context.fields.items() if field.type == "category"]
        if key not in categories:
            yield Problem(
                ("policy", "key"),
                "not a category field of the context",
                key,
                some_of(categories) or "null (the context has no category field)",
                Meant(key, categories),
            )


def _fallback_names(context: Context, fallback: RuleList) -> Iterator[Problem]:
    yield from _rule_names(context, ("fallback",), fallback)


def _rule_names(context: Context, path: Path, listed: RuleList) -> Iterator[Problem]:
    known = sorted(context.fields)
    kinds = {name: _KIND_OF_FIELD[field.type] for name, field in context.fields.items()}
    for place, rule in enumerate(listed.rules):
        never = never_works(rule.when, kinds)
        if never:
            what, allowed, advice = never
            yield Problem((*path, "rules", place, "when"), what, rule.when, allowed, advice)
        for name in sorted(compile_rule(rule.when).names - set(known)):
            yield Problem(
                (*path, "rules", place, "when"),
                f"unknown context field {name}",
                rule.when,
                some_of(known) or "no names (the context has no fields)",
                Meant(name, known),
            )


def _privacy_fields(context: Context, privacy: Privacy) -> Iterator[Problem]:
    texts = [name for name, field in context.fields.items() if field.type == "text"]
    for place, name in enumerate(privacy.fields or ()):
        if name not in texts:
            yield Problem(
                ("privacy", "fields", place),
                "not a text field of the context",
                name,
                some_of(texts) or "none (the context has no text field)",
                Meant(name, texts),
            )


_CHECKS: tuple[tuple[tuple[str, ...], Callable[..., Iterator[Problem]]], ...] = (
    (("explore", "floor"), _floor),
    (("actions", "policy"), _policy_actions),
    (("context", "actions", "policy"), _size),
    (("policy", "learning"), _policy_learning),
    (("context", "actions", "policy", "floor"), _built),
    (("actions", "fallback"), _fallback_actions),
    (("context", "policy"), _policy_names),
    (("context", "fallback"), _fallback_names),
    (("context", "privacy"), _privacy_fields),
)
