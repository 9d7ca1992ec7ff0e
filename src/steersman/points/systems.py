"""Plug-in seam for systems: what an installed system adds to the product.

A distribution names its systems in the entry-point group ``steersman.systems``; each entry point is
a `System`. It holds data and import strings alone, so that reading it costs nothing: what a string
names is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (of a field)
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from steersman.errors import InputError, SteersmanError

GROUP = "steersman.systems"


@dataclass(frozen=True, slots=True)
class Command:
    """Command that a system adds.

    Attributes:
        help: one line for the list of commands.
        target: ``module:attribute`` of a click command.
    """

    help: str
    target: str


@dataclass(frozen=True, slots=True)
class System:
    """Installed system: decision points, commands, demo and HTTP routes. Every part is optional.

    Attributes:
        name: name in commands, such as ``assistant``.
        about: one line that says what it decides.
        skill: application capability of its decision points; empty if it declares none.
        points: its decision points in the order of a request.
        old_names: former names of decision points in configurations, and their current names.
        documents: ``module:function`` without arguments that returns the YAML texts of its points.
        sample: whether `steersman up` declares these points in the sample tenant, if it has
            `documents`.
        sample_request: body of a decide request that `steersman up` prints; None for none.
        commands: top-level commands by name.
        demo: the command ``steersman demo <name>``, by name.
        pipeline: ``module:function`` without arguments that returns the path of its configuration
            for ``steersman run``; without it, the command needs ``--config``.
        fetch: ``module:function(home)`` that downloads its data and returns what it fetched.
        record: ``module:function(home, out)`` that returns (file, bytes, provenance).
        rollout_gates: ``module`` with ``gate_options`` and ``gate_sources`` for the controller.
        service: ``module:class`` of its HTTP part, with its routes; see `steersman.api.parts`.

    >>> System("router", "Chooses a model.", skill="router", points=("model",)).points
    ('model',)
    """

    name: str
    about: str
    skill: str = ""
    points: tuple[str, ...] = ()
    old_names: Mapping[str, str] = field(default_factory=dict)
    documents: str = ""
    sample: bool = False
    sample_request: Mapping[str, Any] | None = None
    commands: Mapping[str, Command] = field(default_factory=dict)
    demo: Mapping[str, Command] = field(default_factory=dict)
    pipeline: str = ""
    fetch: str = ""
    record: str = ""
    rollout_gates: str = ""
    service: str = ""


def load(target: str) -> Any:
    """Return what an import string names.

    >>> load("math:tau") > 6
    True
    """
    module, _, attribute = target.partition(":")
    found: Any = import_module(module)
    return getattr(found, attribute) if attribute else found


def load_of(what: str, target: str) -> Any:
    """Return what an import string of an installed system names.

    Args:
        what: field or command, and its system, for the error.
        target: import string.

    Raises:
        InputError: it cannot be imported. An error about a missing extra is raised unchanged.

    >>> load_of("field service of the system 'router'", "router:Part")
    Traceback (most recent call last):
    steersman.errors.InputError: cannot load the field service of the system 'router', ...
    """
    try:
        return load(target)
    except SteersmanError:
        raise
    except Exception as error:  # whatever the code of others raises
        raise InputError(
            f"cannot load the {what}, {target!r}: {error!r}; correct or uninstall its distribution"
        ) from error


def load_part(system: System, part: str) -> Any:
    """Return what the import string of a system's part names.

    Args:
        part: name of an attribute of `System`, such as ``service``; not empty.

    Raises:
        InputError: it cannot be imported.
    """
    return load_of(f"field {part} of the system {system.name!r}", getattr(system, part))


@cache
def installed_systems() -> Mapping[str, System]:
    """Return the installed systems by name, in alphabetical order.

    Raises:
        InputError: an entry point cannot be loaded or is not a `System`, or two have the same name.
    """
    found: dict[str, System] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            system = entry.load()
        except Exception as error:
            raise InputError(
                f"cannot load the entry point {entry.name!r} of {GROUP} ({entry.value}): "
                f"{error!r}; correct or uninstall its distribution"
            ) from error
        if not isinstance(system, System):
            raise InputError(
                f"invalid entry point {entry.name!r} of {GROUP}: {entry.value} is a "
                f"{type(system).__name__}, expected a steersman.points.systems.System; correct or "
                "uninstall its distribution"
            )
        if system.name in found:
            raise InputError(
                f"two installed systems are named {system.name!r}; uninstall one of them"
            )
        found[system.name] = system
    return found


def systems_with(part: str) -> Mapping[str, System]:
    """Return the installed systems that have a part, by name."""
    return {name: one for name, one in installed_systems().items() if getattr(one, part)}
