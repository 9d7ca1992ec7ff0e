"""Other people's routing data in the shape of a bandit: contexts, and the reward of every choice.

Three public sets, read from a directory that the user names (``--data`` or ``STEERSMAN_DATA``);
none is shipped. Each folder holds what its public original holds, as Parquet:

================== ===================================== ==========================================
folder             choices                               public original
================== ===================================== ==========================================
routerbench_subset 11 language models, with prices       RouterBench (Hu et al., 2024), 0-shot
llmrouter_dc       9 language models, 14 tasks           LLMRouter, data of RouterDC
metatool           199 tools                             MetaTool (Huang et al., 2023)
================== ===================================== ==========================================

All rewards of a request are known, so policies can be replayed, and compared with the best fixed
choice and with the oracle. Reading Parquet takes pyarrow, from the extra ``bench``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import DataError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Table = dict[str, list[Any]]

USD_PRICE = 20.0
"""Points of score a dollar costs on routerbench_subset: 5 USD for 1,000 prompts cost .1 point."""
_TEST_SHARE = 0.2
_JSON_CAP = 10_000_000


@dataclass(frozen=True, slots=True)
class RouterWorld:
    """n requests with the reward of each of K choices.

    Args:
        name: Name of the data set.
        texts: n requests.
        contexts: n contexts: ``text``, and ``task`` where the set has tasks.
        rewards: (n, K) float64 rewards; within [0, 1], or below where prices are charged.
        names: K choices.
        train: (n,) bool, rows of the training split; the others are the test split.
        descriptions: K texts that describe the choices; empty where the set has none.
        costs_usd: (n, K) float64 prices; ``None`` where the set has none.
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

    def best_fixed(self) -> str:
        """Return the choice that earned most on the training split."""
        return self.names[int(self.rewards[self.train].mean(axis=0).argmax())]

    def oracle(self) -> float:
        """Return the mean reward on the test split of the best choice for each request."""
        return float(self.rewards[~self.train].max(axis=1).mean())


def load_router(name: str, data: Path, *, usd_price: float = USD_PRICE) -> RouterWorld:
    """One of the three sets.

    Args:
        name: "routerbench_subset", "llmrouter_dc" or "metatool".
        data: Directory that holds the folder of that name.
        usd_price: Points of score that a dollar costs, ≥ 0; for sets with prices.

    Returns:
        The world. Scores that the original does not give count as 0, as in its own baselines.

    Raises:
        InputError: An unknown name or a negative price.
        DataError: A file is missing or of another format, or pyarrow is not installed.

    No doctest: it needs the data; ``tests/systems/assistant/test_routers.py`` shows it.
    """
    if name not in _LOADERS:
        message = f"router data {name!r} is unknown; allowed: {', '.join(_LOADERS)}"
        raise InputError(message)
    if not usd_price >= 0:
        message = f"usd_price is {usd_price}; allowed: 0 or more points of score per dollar"
        raise InputError(message)
    folder = data / name
    if not folder.is_dir():
        message = f"{folder} is missing; put {name} there ({_ORIGINALS[name]}) or name its parent"
        raise DataError(message)
    try:
        return _LOADERS[name](folder, usd_price)
    except (KeyError, TypeError, ValueError) as wrong:
        if isinstance(wrong, InputError):
            raise
        message = f"{folder} is not in the expected format: {wrong!r}"
        raise DataError(message) from wrong


def _routerbench(folder: Path, usd_price: float) -> RouterWorld:
    table = _read(folder / "routerbench_zs_subset.parquet")
    names = tuple(column[: -len("|score")] for column in table if column.endswith("|score"))
    scores = _matrix(table, [f"{name}|score" for name in names])
    costs = _matrix(table, [f"{name}|cost" for name in names])
    return RouterWorld(
        name="routerbench_subset",
        texts=tuple(table["prompt"]),
        contexts=_contexts(table["prompt"], table["eval_name"]),
        rewards=scores - usd_price * costs,
        names=names,
        train=_is_train(table["split"]),
        costs_usd=costs,
    )


def _llmrouter(folder: Path, usd_price: float) -> RouterWorld:
    del usd_price  # the set has list prices, but no cost per call
    table = _read(folder / "llmrouter_9models.parquet")
    names = tuple(name for name in table if name not in {"split", "question", "task_name"})
    described = _json(folder / "models.json")
    return RouterWorld(
        name="llmrouter_dc",
        texts=tuple(table["question"]),
        contexts=_contexts(table["question"], table["task_name"]),
        rewards=_matrix(table, list(names)),
        names=names,
        train=_is_train(table["split"]),
        descriptions=tuple(str(described.get(name, {}).get("feature", "")) for name in names),
    )


def _metatool(folder: Path, usd_price: float) -> RouterWorld:
    del usd_price  # no prices
    table = _read(folder / "metatool_single.parquet")
    names = tuple(sorted(set(table["tool"])))
    place = {name: i for i, name in enumerate(names)}
    rewards = np.zeros((len(table["tool"]), len(names)))
    rewards[np.arange(len(rewards)), [place[tool] for tool in table["tool"]]] = 1.0
    # The original has no split: a fixed fifth, drawn once.
    test = np.random.default_rng(0).random(len(rewards)) < _TEST_SHARE
    described = {_plain(k): str(v) for k, v in _json(folder / "plugin_des.json").items()}
    described |= {_plain(k): str(v) for k, v in _json(folder / "big_tool_des.json").items()}
    return RouterWorld(
        name="metatool",
        texts=tuple(table["query"]),
        contexts=tuple({"text": query} for query in table["query"]),
        rewards=rewards,
        names=names,
        train=~test,
        descriptions=tuple(described.get(_plain(name), "") for name in names),
    )


_LOADERS: dict[str, Callable[[Path, float], RouterWorld]] = {
    "routerbench_subset": _routerbench,
    "llmrouter_dc": _llmrouter,
    "metatool": _metatool,
}
_ORIGINALS = {
    "routerbench_subset": "RouterBench 0-shot tables, as in the repository of RouterDC",
    "llmrouter_dc": "the preprocessed tables of the repository LLMRouter",
    "metatool": "the data set of the repository MetaTool",
}


def _read(path: Path) -> Table:
    if not path.is_file():
        message = f"{path} is missing; it is part of {_ORIGINALS[path.parent.name]}"
        raise DataError(message)
    try:
        from pyarrow import ArrowInvalid, parquet  # noqa: PLC0415 - an extra
    except ImportError as missing:
        message = "reading Parquet needs pyarrow; install it with: pip install 'steersman[bench]'"
        raise DataError(message) from missing
    try:
        table: Table = parquet.read_table(path).to_pydict()
    except ArrowInvalid as wrong:
        message = f"{path} is not a Parquet file: {wrong}"
        raise DataError(message) from wrong
    return table


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file() or path.stat().st_size > _JSON_CAP:
        message = f"{path} is missing or larger than {_JSON_CAP} bytes"
        raise DataError(message)
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _matrix(table: Table, columns: list[str]) -> NDArray[np.float64]:
    matrix = np.array([table[column] for column in columns], np.float64).T
    return np.nan_to_num(matrix, nan=0.0)


def _contexts(texts: list[str], tasks: list[str]) -> tuple[dict[str, str], ...]:
    return tuple({"text": text, "task": task} for text, task in zip(texts, tasks, strict=True))


def _is_train(splits: list[str]) -> NDArray[np.bool_]:
    return np.array([split == "train" for split in splits], np.bool_)


def _plain(name: str) -> str:
    """Descriptions spell tools in lower case and without separators."""
    return "".join(filter(str.isalnum, name)).lower()
