"""Digests that identify a training run, so that it does not resume from another run's checkpoints.

Names are not enough: other candidates, rewards or start weights also make another run.
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

from steersman.policies.scorers import scorer_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.policies.scorers import Scorer
    from steersman_systems.evidence_selection.training.task import Task, Walk


_PLAIN = (str, int, float, bytes, np.generic, type(None))


def about_run(settings: Any, seed: int, tasks: Sequence[Task], start: Scorer) -> dict[str, object]:
    """Return the identity of a run for `Checkpoints`.

    Raises:
        InputError: the start policy has no state to hash.
    """
    return {
        "settings": asdict(settings),
        "seed": seed,
        "tasks": [task.id for task in tasks],
        "contents": digest_of_tasks(tasks),
        "start": digest_of_scorer(start),
    }


def digest_of_scorer(scorer: Scorer) -> str:
    """Return the SHA-256 of a scorer's arrays.

    Raises:
        InputError: unknown type of scorer.
    """
    return _digest(scorer_state(scorer))


def digest_of_tasks(tasks: Sequence[Task]) -> str:
    """Return the SHA-256 of questions: their content, declaration and first rows."""
    return _digest([(task.id, task.options(task.begin()), task) for task in tasks])


def digest_of(value: object) -> str:
    """Return the SHA-256 of a value's content, equal in every process.

    Args:
        value: plain values, arrays, containers and dataclasses count by content. Functions count by
            name, code, defaults and closure; methods also by their object. Other objects count by
            their pickled content if their class defines it, else by attributes. Objects with a
            name, such as a language model, count by name and plain attributes, because
            connections and counters differ between runs.
    """
    return _digest(value)


def digest_of_log(log: Sequence[Walk]) -> str:
    """Return the SHA-256 of a log: actions, rows, propensities and rewards."""
    # Not through `_parts`, for speed: a log has tens of thousands of selections.
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
    """Yield a value piece by piece, equally in every process."""
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
            known[id(value)] = value, ""  # a cycle
            known[id(value)] = value, _digest(_state(value), known)
        yield known[id(value)][1].encode()


def _inner(value: Any) -> Sequence[object] | None:
    """Return the content of a value; None for an object identified by its attributes."""
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
    if isinstance(value, PurePath):  # it keeps a cache
        return [str(value)]
    return _inner_of_code(value)


def _inner_of_code(value: Any) -> Sequence[object] | None:
    """Return the identity of functions, methods and classes; None for anything else."""
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
    """Return what distinguishes an object from others of its class."""
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
    """Return the pickled content of an object without attributes: a range, a date, a pattern."""
    try:
        reducer: Any = dispatch_table.get(type(value))
        made = reducer(value) if reducer else value.__reduce_ex__(4)
    except (TypeError, PicklingError):  # a lock, for example, has no identity
        return []
    if isinstance(made, str):  # its name
        return [made]
    return [list(one) if isinstance(one, Iterator) else one for one in made[1:]]
