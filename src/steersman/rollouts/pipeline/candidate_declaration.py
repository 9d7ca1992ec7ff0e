"""Candidate's declaration: the live one with the parameters of the configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from steersman.rollouts.pipeline.config import problems_at
from steersman.spec.base import Problem
from steersman.spec.point import DecisionPoint
from steersman.spec.policy import algorithm_names, parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from steersman.points.systems import System
    from steersman.rollouts.pipeline.config import LoadedConfig

_PRIOR = ("alpha_prior", "beta_prior")
_OLD_DIM = "feature_dim"
_OTHERS = ("algorithm", "dim", "floor")


def check_points(loaded: LoadedConfig, system: System) -> None:
    """Refuse training parameters of unknown decision points.

    Raises:
        SpecError: a decision point is unknown, or named twice.
    """
    problems, seen = [], set()
    for name, given in loaded.config.training.items():
        point = system.old_names.get(name, name)
        place = ("training", name)
        if point not in system.points:
            allowed = ", ".join(system.points)
            problems.append(Problem(place, "unknown decision point", given, allowed, "correct it"))
        elif point in seen:
            what = f"duplicate of {point}"
            problems.append(Problem(place, what, given, "each once", "remove one of the two"))
        seen.add(point)
    if problems:
        raise loaded.refuse(problems_at(problems))


def candidate_of(
    loaded: LoadedConfig, system: System, declared: DecisionPoint
) -> DecisionPoint | None:
    """Return the declaration of a candidate.

    Returns:
        The new declaration; None if the configuration changes nothing.

    Raises:
        SpecError: a parameter is unknown, or out of its range.
    """
    training = loaded.config.training
    name = next(
        (key for key in training if system.old_names.get(key, key) == declared.decision), None
    )
    if not name or not training[name]:
        return None
    given = training[name]
    place = ("training", name)
    problems = list(_problems(given, declared, place))
    if problems:
        raise loaded.refuse(problems_at(problems))
    try:
        changed = DecisionPoint.model_validate(_changed(given, declared))
    except ValidationError as error:
        raise loaded.refuse(_moved(error, given, place)) from None
    return None if changed.spec_hash == declared.spec_hash else changed


def document_of(spec: DecisionPoint) -> str:
    """Return a declaration as a JSON document."""
    dumped = spec.model_dump(mode="json", exclude_unset=True)
    return json.dumps(dumped, indent=1, ensure_ascii=False)


def _problems(
    given: Mapping[str, Any], declared: DecisionPoint, place: tuple[str, str]
) -> Iterator[Problem]:
    """Check names of parameters. The declaration itself checks their values."""
    algorithm = given.get("algorithm", declared.policy.algorithm)
    if algorithm not in algorithm_names():
        allowed = ", ".join(algorithm_names())
        path = (*place, "algorithm")
        yield Problem(path, "unknown choice", algorithm, allowed, "use one of these")
        return
    known = (*_parameters(algorithm), *_OTHERS)
    for name, value in given.items():
        if name in known or name == _OLD_DIM or (name in _PRIOR and "prior" in known):
            continue
        what = f"unknown parameter of {algorithm}"
        advice = "remove it"
        if name in _PRIOR:
            advice += ", or set algorithm: beta_thompson, which has this prior"
        yield Problem((*place, name), what, value, ", ".join(known), advice)
    for name, old in (("dim", (_OLD_DIM,)), ("prior", _PRIOR)):
        twice = [other for other in old if other in given and name in given]
        for other in twice:
            what = f"duplicate of {name}"
            advice = "remove one of the two"
            yield Problem((*place, other), what, given[other], f"one of {name} and {other}", advice)


def _parameters(algorithm: str) -> list[str]:
    return [name for name in parameters_of(algorithm).model_fields if name != "algorithm"]


def _changed(given: Mapping[str, Any], declared: DecisionPoint) -> dict[str, Any]:
    dumped: dict[str, Any] = declared.model_dump(mode="json", exclude_unset=True)
    algorithm = given.get("algorithm", declared.policy.algorithm)
    same = algorithm == declared.policy.algorithm
    policy = dict(dumped["policy"]) if same else {"algorithm": algorithm}
    policy |= {name: given[name] for name in _parameters(algorithm) if name in given}
    if any(name in given for name in _PRIOR):
        before = policy.get("prior") or (1.0, 1.0)
        policy["prior"] = [given.get(name, old) for name, old in zip(_PRIOR, before, strict=True)]
    dumped["policy"] = policy
    dim = given.get("dim", given.get(_OLD_DIM))
    if dim is not None:
        dumped["context"] = {**dumped.get("context", {}), "dim": dim}
    if "floor" in given:
        dumped["floor"] = given["floor"]
    return dumped


def _moved(
    error: ValidationError, given: Mapping[str, Any], place: tuple[str, str]
) -> ValidationError:
    """Return errors of a declaration with the paths of the parameters that caused them."""
    found: list[InitErrorDetails] = []
    for details in error.errors(include_url=False):
        context = details.get("ctx", {})
        kind: Any = details["type"]
        if kind == "declared":
            message = "{what}; allowed {allowed}; {advice}"
            kind = PydanticCustomError("declared", message, context)
        at = (*place, *_parameter(details["loc"], given))
        found.append(InitErrorDetails(type=kind, loc=at, input=details["input"], ctx=context))
    return ValidationError.from_exception_data("pipeline", found)


def _parameter(path: tuple[str | int, ...], given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parameter that sets a field of a declaration; empty: unknown."""
    last = next((part for part in reversed(path) if isinstance(part, str)), "")
    if last == "dim" and _OLD_DIM in given:
        return (_OLD_DIM,)
    if last == "prior":
        place = path[-1] if isinstance(path[-1], int) else 0
        return (_PRIOR[place],) if _PRIOR[place] in given else ("prior",)
    return (last,) if last in given else ()
