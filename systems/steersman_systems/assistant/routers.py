"""Public routing data as a bandit problem: contexts, and the reward of every choice.

The user gives the directory (``--data``, or ``STEERSMAN_DATA``) of three public sets; none is
shipped. Each folder has the content of its original, as Parquet:

================== ===================================== ==========================================
folder             choices                               public original
================== ===================================== ==========================================
routerbench_subset 11 language models, with prices       RouterBench (Hu et al., 2024), 0-shot
llmrouter_dc       9 language models, 14 tasks           LLMRouter, data of RouterDC
metatool           199 tools                             MetaTool (Huang et al., 2023)
================== ===================================== ==========================================

Other folders are also read if they have one Parquet file with the columns of one of these sets:
columns ending in ``|score`` and ``|cost``; split, question, task_name and one column per model; or
query and tool. Descriptions of the choices are optional there.

All rewards of a request are known, so policies can be replayed and compared with the best fixed
choice and the oracle. Reading Parquet needs pyarrow, from the extra ``bench``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Table = dict[str, list[Any]]

USD_PRICE = 20.0
"""Score points per dollar on routerbench_subset: 5 USD for 1,000 prompts cost .1 point."""
_TEST_SHARE = 0.2
_JSON_CAP = 10_000_000


@dataclass(frozen=True, slots=True)
class RouterWorld:
    """n requests with the reward of each of K choices.

    Args:
        name: Name of the data set.
        texts: n requests.
        contexts: n contexts: ``text``, and ``task`` if the set has tasks.
        rewards: (n, K) float64 rewards; within [0, 1], or lower if prices are subtracted.
        names: K choices.
        train: (n,) bool, rows of the train split; the others are the test split.
        descriptions: K descriptions of the choices; empty if the set has none.
        costs_usd: (n, K) float64 prices; ``None`` if the set has none.
    """

    name: str
    texts: tuple[str, ...]
    contexts: tuple[dict[str, str], ...]
    rewards: NDArray[np.float64]
    names: tuple[str, ...]
    train: NDArray[np.bool_]
    descriptions: tuple[str, ...] = ()
    costs_usd: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def has_one_right(self) -> bool:
        """True if each request has one right choice, without prices and tasks."""
        return self.costs_usd is None and not any("task" in one for one in self.contexts)

    def best_fixed(self) -> str:
        """Return the choice with the highest mean reward on the train split."""
        return self.names[int(self.rewards[self.train].mean(axis=0).argmax())]

    def oracle(self) -> float:
        """Return the mean reward of the best choice per request, on the test split."""
        return float(self.rewards[~self.train].max(axis=1).mean())


def load_router(name: str, data: Path, *, usd_price: float = USD_PRICE) -> RouterWorld:
    """Load one of the three sets, or a set in one of their formats.

    Args:
        usd_price: Score points per dollar, ≥ 0; for sets with prices.

    Returns:
        The world. Missing scores count as 0, as in the baselines of the original.

    Raises:
        InputError: Unknown name, or a negative price.
        DataError: A file is missing or has another format, a split is empty, or pyarrow is not
            installed.
    """
    folder = data / name
    if name not in _LOADERS and not folder.is_dir():
        message = f"unknown router data {name!r}; allowed: {', '.join(_LOADERS)}"
        raise InputError(f"{message}, or a folder of {data} in one of their formats")
    if not usd_price >= 0:
        message = f"usd_price is {usd_price}; allowed: 0 or more score points per dollar"
        raise InputError(message)
    if not folder.is_dir():
        message = (
            f"{folder} is missing; put {name} there ({_ORIGINALS[name]}), or give another --data"
        )
        raise DataError(message)
    table = _read(_file(folder))
    try:
        return _LOADERS[_format(folder, table)](folder, table, usd_price)
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        if isinstance(wrong, InputError):
            raise
        message = f"{folder} is not in the expected format: {wrong!r}"
        raise DataError(message) from wrong


def _format(folder: Path, table: Table) -> str:
    """Return the format of a table: by the name of its folder, else by its columns."""
    if folder.name in _LOADERS:
        return folder.name
    if any(column.endswith("|score") for column in table):
        return "routerbench_subset"
    if {"split", "question", "task_name"} <= table.keys():
        return "llmrouter_dc"
    if {"query", "tool"} <= table.keys():
        return "metatool"
    message = f"{folder} has a table with the columns {', '.join(table)[:200]}"
    raise DataError(f"{message}; expected the columns of {' or '.join(_LOADERS)}")


def _routerbench(folder: Path, table: Table, usd_price: float) -> RouterWorld:
    names = tuple(column[: -len("|score")] for column in table if column.endswith("|score"))
    scores = _matrix(table, [f"{name}|score" for name in names])
    costs = _matrix(table, [f"{name}|cost" for name in names])
    texts = _texts(table["prompt"])
    return RouterWorld(
        name=folder.name,
        texts=texts,
        contexts=_contexts(texts, _texts(table["eval_name"])),
        rewards=scores - usd_price * costs,
        names=names,
        train=_is_train(folder, table["split"]),
        costs_usd=costs,
    )


def _llmrouter(folder: Path, table: Table, usd_price: float) -> RouterWorld:
    del usd_price  # the set has list prices, but no cost per call
    names = tuple(name for name in table if name not in {"split", "question", "task_name"})
    described = _json(folder / "models.json")
    texts = _texts(table["question"])
    return RouterWorld(
        name=folder.name,
        texts=texts,
        contexts=_contexts(texts, _texts(table["task_name"])),
        rewards=_matrix(table, list(names)),
        names=names,
        train=_is_train(folder, table["split"]),
        descriptions=tuple(str(described.get(name, {}).get("feature", "")) for name in names),
    )


def _metatool(folder: Path, table: Table, usd_price: float) -> RouterWorld:
    del usd_price  # no prices
    texts, tools = _texts(table["query"]), _texts(table["tool"])
    names = tuple(sorted(set(tools)))
    place = {name: i for i, name in enumerate(names)}
    rewards = np.zeros((len(tools), len(names)))
    rewards[np.arange(len(rewards)), [place[tool] for tool in tools]] = 1.0
    # The original has no split; this one is fixed.
    test = np.random.default_rng(0).random(len(rewards)) < _TEST_SHARE
    described = {_plain(k): str(v) for k, v in _json(folder / "plugin_des.json").items()}
    described |= {_plain(k): str(v) for k, v in _json(folder / "big_tool_des.json").items()}
    return RouterWorld(
        name=folder.name,
        texts=texts,
        contexts=tuple({"text": query} for query in texts),
        rewards=rewards,
        names=names,
        train=~test,
        descriptions=tuple(described.get(_plain(name), "") for name in names),
    )


KNOWN = ("routerbench_subset", "llmrouter_dc", "metatool")
_LOADERS: dict[str, Callable[[Path, Table, float], RouterWorld]] = {
    "routerbench_subset": _routerbench,
    "llmrouter_dc": _llmrouter,
    "metatool": _metatool,
}
_ORIGINALS = {
    "routerbench_subset": "RouterBench 0-shot tables, as in the repository of RouterDC",
    "llmrouter_dc": "the preprocessed tables of the repository LLMRouter",
    "metatool": "the data set of the repository MetaTool",
}


_FILES = {
    "routerbench_subset": "routerbench_zs_subset.parquet",
    "llmrouter_dc": "llmrouter_9models.parquet",
    "metatool": "metatool_single.parquet",
}


def _file(folder: Path) -> Path:
    """Return the Parquet file of a folder."""
    if folder.name in _FILES:
        path = folder / _FILES[folder.name]
        if not path.is_file():
            message = f"{path} is missing; copy it from {_ORIGINALS[folder.name]}"
            raise DataError(message)
        return path
    found = sorted(folder.glob("*.parquet"))
    if len(found) != 1:
        message = f"{folder} has {len(found)} Parquet files; expected one, with the columns"
        raise DataError(f"{message} of {' or '.join(_LOADERS)}")
    return found[0]


def _read(path: Path) -> Table:
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - an extra
    except ImportError as missing:
        message = "reading Parquet needs pyarrow; install it with: "
        raise DataError(message + how_to_install("bench")) from missing
    try:
        table: Table = parquet.read_table(path).to_pydict()
    except (OSError, ArrowException) as wrong:
        message = f"{path} is not a Parquet file: {wrong}"
        raise DataError(message) from wrong
    if not any(table.values()):
        message = f"{path} has no rows; copy it from its original again"
        raise DataError(message)
    return table


def _json(path: Path) -> dict[str, Any]:
    if path.parent.name not in _LOADERS and not path.is_file():
        return {}
    if not path.is_file() or path.stat().st_size > _JSON_CAP:
        message = f"{path} is missing or larger than {_JSON_CAP} bytes"
        raise DataError(message)
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _texts(column: list[Any]) -> tuple[str, ...]:
    for row, text in enumerate(column):
        if not isinstance(text, str):
            message = f"row {row + 1} is {text!r}; expected a text"
            raise TypeError(message)
    return tuple(column)


def _matrix(table: Table, columns: list[str]) -> NDArray[np.float64]:
    matrix = np.array([table[column] for column in columns], np.float64).T
    if np.isinf(matrix).any():
        message = f"infinite number in {', '.join(columns)[:80]}"
        raise ValueError(message)
    return np.nan_to_num(matrix, nan=0.0)


def _contexts(texts: Sequence[str], tasks: Sequence[str]) -> tuple[dict[str, str], ...]:
    return tuple({"text": text, "task": task} for text, task in zip(texts, tasks, strict=True))


def _is_train(folder: Path, splits: list[str]) -> NDArray[np.bool_]:
    train = np.array([split == "train" for split in splits], np.bool_)
    if train.all() or not train.any():
        only = "train" if train.all() else "test"
        message = (
            f"{folder}: all {len(train):,} rows are in the {only} split; both splits need rows"
        )
        raise DataError(message)
    return train


def _plain(name: str) -> str:
    """Return a tool's name as in the descriptions: lower case, no separators."""
    return "".join(filter(str.isalnum, name)).lower()
