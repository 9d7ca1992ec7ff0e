"""Serving of evaluated configurations: barred, eligible and candidate ones.

A configuration that broke a hard gate must not serve, whatever its reward: it is barred in the
declaration of the decision point. A configuration without evaluation may break a gate too, and the
exploration floor of a candidate can choose it. To exclude this, pass the configurations that hold
all gates as eligible.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from steersman.errors import InputError
from steersman.spec.actions import Mixed
from steersman.spec.loader import loads
from steersman_systems.rag_tuner.configuration import FUSED, Configuration
from steersman_systems.rag_tuner.reward import breaches, pooled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.spec.point import DecisionPoint
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch

_WEIGHT = "fusion_weight"


def broken(batches: Iterable[Batch], tuned: PolicyConfig) -> dict[Configuration, tuple[str, ...]]:
    """Return the hard gates that each evaluated configuration breaks, over all its batches."""
    own: dict[Configuration, list[Batch]] = {}
    for batch in batches:
        own.setdefault(batch.configuration.canonical(), []).append(batch)
    return {one: breaches(pooled(several), tuned.thresholds) for one, several in own.items()}


def barred(
    found: Mapping[Configuration, tuple[str, ...]], point: DecisionPoint
) -> list[dict[str, Any]]:
    """Return the actions to bar at a decision point: configurations that broke a gate.

    Raises:
        InputError: The point's actions are not mixed.
    """
    actions = _mixed(point)
    listed = [dict(one) for one in actions.barred]
    for configuration, gates in found.items():
        parts = _parts(configuration, actions)
        if gates and parts is not None and parts not in listed:
            listed.append(parts)
    return listed


def eligible(found: Mapping[Configuration, tuple[str, ...]], point: DecisionPoint) -> list[str]:
    """Return the actions that were evaluated and hold every gate, for a request's ``eligible``.

    Raises:
        InputError: The point's actions are not mixed, or none holds.
    """
    actions = _mixed(point)
    held = [_parts(one, actions) for one, gates in found.items() if not gates]
    names = [_name(parts) for parts in held if parts is not None]
    if not names:
        raise InputError(
            f"none of {len(found)} evaluated configurations passes every hard gate; evaluate others"
        )
    return list(dict.fromkeys(names))


def declared_with(
    point: DecisionPoint,
    configuration: Configuration,
    found: Mapping[Configuration, tuple[str, ...]],
    *,
    floor: float = 0.05,
) -> str:
    """Return the declaration of a candidate that serves one configuration, for a rollout.

    Args:
        floor: Exploration floor, in (0, 1). This share of the traffic uses all configurations that
            are not barred, evaluated or not. To exclude some, bar them, or send the `eligible`
            ones with every request.

    Raises:
        InputError: The configuration was never evaluated, broke a hard gate, or is not one of the
            point; or another one that broke a gate is not barred, so the floor could serve it.
    """
    one, actions = configuration.canonical(), _mixed(point)
    if one not in found:
        raise InputError(f"{one} has no evaluation, so its gates are unknown; evaluate it first")
    if found[one]:
        raise InputError(
            f"{one} breaks {', '.join(found[one])} and must not serve; choose another configuration"
        )
    parts = {name: value for name, value in one.parts().items() if name in actions.parts}
    if _parts(one, actions) is None or actions.name_of(parts) not in actions.names:
        raise InputError(f"{one} is not a configuration of {point.skill}/{point.decision}")
    _check_barred(found, point)
    dumped = point.model_dump(mode="json")
    dumped |= {"policy": {"algorithm": "fixed", "action": parts}, "floor": floor}
    dumped["explore"] = "floor"
    text = json.dumps(dumped, ensure_ascii=False)
    loads(text, source="candidate")
    return text


def configuration_of(action: str) -> Configuration:
    """Return the configuration of a served action.

    Returns:
        The canonical form; parts that the point lacks have their defaults.

    Raises:
        InputError: The action is not a configuration.

    >>> str(configuration_of('{"k":4,"variant":"bm25"}'))
    'bm25 k=4'
    """
    try:
        parts = json.loads(action)
    except ValueError:
        parts = None
    if not isinstance(parts, dict):
        raise InputError(f"{action!r:.80} is not a configuration; expected JSON of its parts")
    return Configuration.of(parts).canonical()


def _check_barred(found: Mapping[Configuration, tuple[str, ...]], point: DecisionPoint) -> None:
    """Refuse a point that could serve a configuration with a broken gate."""
    there = [one.items() for one in _mixed(point).barred]
    loose = [
        parts for parts in barred(found, point) if not any(one <= parts.items() for one in there)
    ]
    if loose:
        named = "; ".join(_name(parts) for parts in loose[:3])
        raise InputError(
            f"{len(loose)} configurations broke a hard gate, and {point.skill}/{point.decision} "
            f"does not bar them, so exploration could serve them: {named}; first declare the point "
            "with barred(found, point) as its actions.barred"
        )


def _mixed(point: DecisionPoint) -> Mixed:
    if not isinstance(point.actions, Mixed):
        message = f"{point.skill}/{point.decision} has {point.actions.kind} actions"
        raise InputError(f"{message}; the tuner needs mixed actions")
    return point.actions


def _parts(configuration: Configuration, actions: Mixed) -> dict[str, Any] | None:
    """Return the parts of a configuration at a point; None: the point does not have it."""
    parts = configuration.parts()
    if configuration.variant != FUSED:
        parts.pop(_WEIGHT)
    defaults = Configuration().parts()
    for name in [name for name in parts if name not in actions.parts]:
        if parts.pop(name) != defaults[name]:
            return None  # the point cannot choose it
    return None if list(actions.wrong_values(parts)) else parts


def _name(parts: Mapping[str, Any]) -> str:
    return json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
