"""Registry of algorithms: the policy class of each name that a declaration may use.

A built-in algorithm is one line below. A distribution adds its own by an entry point in the group
``steersman.policies``: its name is the algorithm, its value the class. What an algorithm reads and
supports is said by attributes of its class (`ChoicePolicy`), its parameters by the keywords of its
constructor. Classes are imported when they are needed.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, get_args

from steersman.errors import InputError
from steersman.points.systems import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

    from steersman.policies import ChoicePolicy

GROUP = "steersman.policies"
BUILT_IN = {
    "lin_ucb": "steersman.policies.linucb:LinUCB",
    "bounded_lin_ucb": "steersman.policies.linucb:BoundedLinUCB",
    "kernel_ucb": "steersman.policies.kernel_ucb:KernelUCB",
    "lin_ts": "steersman.policies.lints:LinTS",
    "beta_thompson": "steersman.policies.beta_thompson:BetaThompson",
    "epsilon_greedy": "steersman.policies.epsilon_greedy:EpsilonGreedy",
    "fixed": "steersman.policies.fixed:Fixed",
    "rules": "steersman.policies.fixed:Rules",
    "joint_squarecb": "steersman.policies.joint:JointSquareCB",
    "joint_lin_ts": "steersman.policies.joint:JointLinTS",
    "factored_ts": "steersman.policies.factored:FactoredTS",
    "sequence_linear": "steersman.policies.sequence_linear:SequenceLinear",
    "sequence_trees": "steersman.policies.sequence_trees:SequenceTrees",
}


@cache
def _installed() -> dict[str, list[EntryPoint]]:
    """Return the entry points by name; a built-in policy cannot be replaced."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        if entry.name not in BUILT_IN:
            found.setdefault(entry.name, []).append(entry)
    return found


def algorithm_names() -> tuple[str, ...]:
    """Return the names of all algorithms: built-in ones, then installed ones.

    >>> algorithm_names()[:2]
    ('lin_ucb', 'bounded_lin_ucb')
    """
    return (*BUILT_IN, *_installed())


@cache
def policy_class(name: str) -> type[ChoicePolicy]:
    """Return the policy class of an algorithm.

    Raises:
        InputError: unknown name, two installed policies have it, or its entry point cannot be
            loaded or is not a policy class.

    >>> policy_class("lin_ucb").reads
    'vector'
    """
    if name in BUILT_IN:
        found: type[ChoicePolicy] = load(BUILT_IN[name])
        return found
    entries = _installed().get(name, [])
    if not entries:
        raise InputError(
            f"unknown algorithm {name!r}; allowed: {', '.join(algorithm_names())}; install the "
            "distribution that has it"
        )
    entry = entries[0]
    if len(entries) > 1:
        values = " and ".join(one.value for one in entries)
        raise InputError(f"two policies are named {name!r}: {values}; uninstall one of them")
    try:
        return _checked(entry, entry.load())
    except InputError:
        raise
    except Exception as error:  # whatever the code of others raises
        raise InputError(
            f"the policy {name!r} is installed, but {entry.value} cannot be imported: {error!r}; "
            "correct or uninstall its distribution"
        ) from error


def _checked(entry: EntryPoint, found: Any) -> type[ChoicePolicy]:
    from steersman.policies.base import ChoicePolicy, Reads  # noqa: PLC0415 (scipy is slow)

    wrong = ""
    if not (isinstance(found, type) and issubclass(found, ChoicePolicy)):
        wrong = "not a subclass of steersman.policies.ChoicePolicy"
    elif getattr(found, "algorithm", None) != entry.name:
        wrong = f"its algorithm is {getattr(found, 'algorithm', None)!r}, expected {entry.name!r}"
    elif getattr(found, "reads", None) not in get_args(Reads):
        wrong = f"its reads is {getattr(found, 'reads', None)!r}, expected one of {get_args(Reads)}"
    if wrong:
        raise InputError(
            f"invalid entry point {entry.name!r} of {GROUP}: {entry.value} is wrong: {wrong}; "
            "correct or uninstall its distribution"
        )
    return found  # type: ignore[no-any-return]


def loadable() -> Iterator[type[ChoicePolicy]]:
    """Yield the class of every algorithm that can be loaded, to list what is allowed."""
    for name in algorithm_names():
        try:
            yield policy_class(name)
        except InputError:  # reported to those who use it
            continue
