"""Digests of what a run of learning is told, so that checkpoints of another run are known as such.

Names alone say too little: the same questions with other candidates, other rewards or another start
make another run, and going on from its checkpoints would mix two without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from copyreg import dispatch_table
from dataclasses import asdict, fields, is_dataclass
from functools import partial
from hashlib import sha256
from pathlib import PurePath
from pickle import PicklingError
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.policies import scorer_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.learn.selecting.task import Task, Walk
    from steersman.policies import Scorer


_PLAIN = (str, int, float, bytes, np.generic, type(None))


def about_run(settings: Any, seed: int, tasks: Sequence[Task], start: Scorer) -> dict[str, object]:
    """Return what tells one run from another, for `Checkpoints`.

    Args:
        settings: a dataclass.
        seed: of all draws.
        tasks: what is learned from and judged by.
        start: the policy to begin with.

    Raises:
        InputError: a start that has no state to tell it by.
    """
    return {
        "settings": asdict(settings),
        "seed": seed,
        "tasks": [task.id for task in tasks],
        "contents": digest_of_tasks(tasks),
        "start": digest_of_scorer(start),
    }


def digest_of_scorer(scorer: Scorer) -> str:
    """Return the sha256 of a scorer's arrays.

    Args:
        scorer: trees, a network, or a sum of these.

    Raises:
        InputError: a scorer of another kind.
    """
    return _digest(scorer_state(scorer))


def digest_of_tasks(tasks: Sequence[Task]) -> str:
    """Return the sha256 of some questions: what each holds and declares, and its first rows.

    Args:
        tasks: in their order. Of one that is a dataclass every field counts, such as the pool and
            the terms of its reward; see `digest_of`.
    """
    return _digest([(task.id, task.options(task.begin()), task) for task in tasks])


def digest_of(value: object) -> str:
    """Return the sha256 of what a value is made of, the same in every process.

    Args:
        value: plain values, arrays, containers and dataclasses count by what they hold; functions
            by their names, code, defaults and what they close over; methods by their objects too.
            Any other object counts by what it gives to be pickled, where its class says so, else by
            its attributes, or, without any, by what it is made again of; and of one that has a
            name, such as a language model, by the name and its plain attributes alone, as
            connections and counters differ from run to run.
    """
    return _digest(value)


def digest_of_log(log: Sequence[Walk]) -> str:
    """Return the sha256 of a log: each step's actions, rows and propensity, and what came back.

    Args:
        log: in its order.
    """
    # Written out and not by `_parts`: a log has tens of thousands of selections.
    found = sha256()
    for one in log:
        steps = [(taken.step.eligible, taken.step.action, taken.step.p) for taken in one.taken]
        found.update(repr((one.task, float(one.reward), float(one.propensity), steps)).encode())
        found.update(one.potentials.tobytes())
        for taken in one.taken:
            found.update(repr((taken.chosen, taken.place, taken.rows.shape)).encode())
            found.update(np.ascontiguousarray(taken.rows).tobytes())
    return found.hexdigest()


def _digest(value: object, known: dict[int, tuple[object, str]] | None = None) -> str:
    found = sha256()
    for part in _parts(value, {} if known is None else known):
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.hexdigest()


def _parts(value: Any, known: dict[int, tuple[object, str]]) -> Iterator[bytes]:
    """Yield a value piece by piece, the same in every process.

    Args:
        value: any.
        known: digests of objects by their place in memory, where many questions share one; and the
            objects, so that none of them goes and leaves its place to another.
    """
    yield type(value).__qualname__.encode()
    if isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, _PLAIN):
        yield repr(value).encode()
    elif (inner := _inner(value)) is not None:
        for one in inner:
            yield from _parts(one, known)
    else:
        if id(value) not in known:
            known[id(value)] = value, ""  # whatever leads back to it
            known[id(value)] = value, _digest(_state(value), known)
        yield known[id(value)][1].encode()


def _inner(value: Any) -> Sequence[object] | None:
    """Return what a value is made of; None for an object that only its attributes tell."""
    if is_dataclass(value) and not isinstance(value, type):
        return [(one.name, getattr(value, one.name)) for one in fields(value)]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, dict):
        return [(key, value[key]) for key in sorted(value, key=repr)]
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, list | tuple):
        return [len(value), *value]
    if isinstance(value, PurePath):  # which remembers what it was asked
        return [str(value)]
    return _inner_of_code(value)


def _inner_of_code(value: Any) -> Sequence[object] | None:
    """Return what functions, methods and classes are told by; None for anything else."""
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, CodeType):
        return [value.co_code, value.co_names, value.co_consts]
    if isinstance(value, FunctionType):
        held = [one.cell_contents for one in value.__closure__ or ()]
        told = value.__module__, value.__qualname__, value.__code__, value.__defaults__
        return [*told, value.__kwdefaults__ or {}, held]
    if isinstance(value, type | BuiltinFunctionType):
        return [value.__module__, value.__qualname__]
    return None


def _state(value: Any) -> object:
    """Return what tells an object from others of its class."""
    kind = type(value)
    if getattr(kind, "__getstate__", None) is not getattr(object, "__getstate__", None):
        return value.__getstate__()
    slots = [name for one in kind.__mro__ for name in getattr(one, "__slots__", ())]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    held |= getattr(value, "__dict__", {})
    name = getattr(value, "name", None)
    if isinstance(name, str):
        held = {key: one for key, one in held.items() if isinstance(one, _PLAIN)} | {"name": name}
    return [kind.__module__, held] if held else [kind.__module__, *_made_of(value)]


def _made_of(value: Any) -> list[object]:
    """Return what pickling says of an object without attributes: a range, a date, a pattern."""
    try:
        reducer: Any = dispatch_table.get(type(value))
        made = reducer(value) if reducer else value.__reduce_ex__(4)
    except (TypeError, PicklingError):  # a lock, say, which is like every other
        return []
    if isinstance(made, str):  # its name
        return [made]
    return [list(one) if isinstance(one, Iterator) else one for one in made[1:]]
