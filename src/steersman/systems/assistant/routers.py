"""Public routing and tool-choice sets in the assistant's shape: texts, actions, what each earns.

Every action's outcome is known for every row, so any policy can be replayed exactly. The sets are
read from a directory that the caller names; nothing of them is shipped. Reading Parquet needs the
extra ``[bench]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_ORIGINS = {
    "routerbench_subset": "withmartian/routerbench (zero-shot files)",
    "llmrouter_dc": "ulab-uiuc/LLMRouter (data/dcrouter_preprocessed)",
    "metatool": "HowieHwong/MetaTool (single-tool queries)",
}


@dataclass(frozen=True, eq=False)
class RouterSet:
    """Requests with every action's outcome.

    Args:
        name: of the set.
        texts: n requests.
        categories: n names of tasks, or ``""`` where the set has none.
        actions: K names.
        scores: (n, K) float64 in [0, 1], how right each action is.
        costs_usd: (n, K) float64 USD per call, or None where the set has none.
        train: (n,) bool, the rows a policy may start from.
    """

    name: str
    texts: tuple[str, ...]
    categories: tuple[str, ...]
    actions: tuple[str, ...]
    scores: Floats
    costs_usd: Floats | None
    train: NDArray[np.bool_]


def load_router_set(name: str, data: Path) -> RouterSet:
    """Return one of the sets ``routerbench_subset``, ``llmrouter_dc``, ``metatool``.

    Args:
        name: of the set, which is also its folder inside ``data``.
        data: directory of the data sets.

    Raises:
        DataError: an unknown set, a missing folder, or pyarrow is not installed.
    """
    if name not in _READERS:
        raise DataError(f"unknown routing set {name!r}; known are {sorted(_READERS)}")
    folder = data / name
    if not folder.is_dir():
        raise DataError(
            f"data set {name!r} is not in {data}; the original is {_ORIGINS[name]} on GitHub"
        )
    return _READERS[name](folder)


def _routerbench(folder: Path) -> RouterSet:
    rows = _columns(folder / "routerbench_zs_subset.parquet")
    actions = tuple(name.removesuffix("|score") for name in rows if name.endswith("|score"))
    return RouterSet(
        "routerbench_subset",
        tuple(rows["prompt"]),
        tuple(rows["eval_name"]),
        actions,
        _matrix(rows, [f"{name}|score" for name in actions]),
        _matrix(rows, [f"{name}|cost" for name in actions]),
        np.array(rows["split"]) == "train",
    )


def _llmrouter(folder: Path) -> RouterSet:
    rows = _columns(folder / "llmrouter_9models.parquet")
    actions = tuple(name for name in rows if name not in {"split", "question", "task_name"})
    return RouterSet(
        "llmrouter_dc",
        tuple(rows["question"]),
        tuple(rows["task_name"]),
        actions,
        _matrix(rows, actions),
        None,
        np.array(rows["split"]) == "train",
    )


def _metatool(folder: Path) -> RouterSet:
    rows = _columns(folder / "metatool_single.parquet")
    actions, right = np.unique(rows["tool"], return_inverse=True)
    texts = tuple(rows["query"])
    return RouterSet(
        "metatool",
        texts,
        ("",) * len(texts),
        tuple(str(name) for name in actions),
        np.eye(len(actions))[right],
        None,
        np.zeros(len(texts), dtype=np.bool_),
    )


def _columns(file: Path) -> dict[str, list[Any]]:
    try:
        from pyarrow import parquet  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise DataError(
            "reading this set needs pyarrow; install the extra: pip install 'steersman[bench]'"
        ) from error
    if not file.is_file():
        raise DataError(f"{file.name} is missing in {file.parent}; fetch the set again")
    columns: dict[str, list[Any]] = parquet.read_table(file).to_pydict()
    return columns


def _matrix(rows: Mapping[str, list[Any]], names: Any) -> Floats:
    """Return columns as (n, K); a missing score or cost counts as 0, as the sets' users do."""
    columns = [np.array(rows[name], dtype=np.float64) for name in names]
    return np.nan_to_num(np.column_stack(columns), nan=0.0)


_READERS: dict[str, Callable[[Path], RouterSet]] = {
    "routerbench_subset": _routerbench,
    "llmrouter_dc": _llmrouter,
    "metatool": _metatool,
}
