"""Digests of what a run of learning is told, so that checkpoints of another run are known as such.

Names alone say too little: the same questions with other candidates, other rewards or another start
make another run, and going on from its checkpoints would mix two without a word.
"""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.policies import scorer_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from steersman.learn.selecting.task import Task, Walk
    from steersman.policies import Scorer


def about_run(settings: Any, seed: int, tasks: Sequence[Task], start: Scorer) -> dict[str, object]:
    """Return what tells one run from another, for `Checkpoints`.

    Args:
        settings: a dataclass.
        seed: of all draws.
        tasks: what is learned from and judged by.
        start: the policy to begin with.

    Raises:
        InputError: a start that has no state to tell it by.

    No doctest: ``tests/learn/selecting/test_digests.py`` shows it.
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

    No doctest: ``tests/learn/selecting/test_digests.py`` shows it.
    """
    return _digest(scorer_state(scorer))


def digest_of_tasks(tasks: Sequence[Task]) -> str:
    """Return the sha256 of some questions: what each holds and declares, and its first rows.

    Args:
        tasks: in their order. Of one that is a dataclass every field counts, such as the pool and
            the terms of its reward; functions count by their names.

    No doctest: ``tests/learn/selecting/test_digests.py`` shows it.
    """
    return _digest([(task.id, task.options(task.begin()), task) for task in tasks])


def digest_of_log(log: Sequence[Walk]) -> str:
    """Return the sha256 of a log: each step's actions, rows and propensity, and what came back.

    Args:
        log: in its order.

    No doctest: ``tests/learn/selecting/test_digests.py`` shows it.
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


def _digest(value: object) -> str:
    found = sha256()
    for part in _parts(value):
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    """Yield a value piece by piece, the same in every process."""
    yield type(value).__qualname__.encode()
    if isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, str | int | float | bytes | np.generic) or value is None:
        yield repr(value).encode()
    else:
        for inner in _inner(value):
            yield from _parts(inner)


def _inner(value: Any) -> Sequence[object]:
    """Return what a value is made of; nothing where its type says all that can be said."""
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
    return [getattr(value, "__module__", ""), getattr(value, "__qualname__", "")]
