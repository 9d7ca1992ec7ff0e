"""Boosted trees trained by LightGBM and stored as arrays; only training needs ``evidence``."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from steersman.errors import DataError, InputError
from steersman.errors.format import check_numbers
from steersman.errors.install_hint import how_to_install
from steersman.policies.tree_scorer import LEAVES, TreeScorer, blank

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from steersman.policies.scorers import Scorer
    from steersman_systems.evidence_selection.training.examples import Examples

    Floats = NDArray[np.float64]

_ALL = 0xFFFF
_NO_SPLIT = "num_features()) > (0)"
"""Part of LightGBM's error for a custom objective when no split is possible."""


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """Settings of boosted trees.

    Args:
        trees: number of trees, 1 to 2,000.
        learning_rate: weight of each tree, in (0, 1].
        leaves: leaves per tree, 2 to 16.
        least: minimum examples per leaf, ≥ 1.
        ridge: L2 penalty of leaf values, ≥ 0.
        columns: share of columns per tree, in (0, 1].
        rows: share of examples per tree, sampled for each tree, in (0, 1]. Values below 1 reduce
            overfitting to uncertain examples.

    Raises:
        InputError: a value is out of range.

    >>> TreeSettings().leaves
    16
    """

    trees: int = 120
    learning_rate: float = 0.08
    leaves: int = 16
    least: int = 20
    ridge: float = 1.0
    columns: float = 0.8
    rows: float = 1.0

    def __post_init__(self) -> None:
        check_numbers(
            self,
            {
                "trees": "[1, 2000]",
                "learning_rate": "(0, 1]",
                "leaves": f"[2, {LEAVES}]",
                "least": ">= 1",
                "ridge": ">= 0",
                "columns": "(0, 1]",
                "rows": "(0, 1]",
            },
        )


def grow(
    examples: Examples,
    settings: TreeSettings | None = None,
    *,
    start: Scorer | None = None,
    loss: Literal["binary", "softmax"] = "binary",
    seed: int = 0,
) -> TreeScorer:
    """Return trees whose sum scores how correct an action is.

    With loss ``binary`` the sum is the log-odds that an action is correct. With ``softmax`` the
    trees maximise the likelihood of correct actions under the softmax policy: Σ over steps of
    Σ_a w_a y_a ln π(a). Its gradient in a step's scores is w (y − π) for one correct action of
    weight w.

    Args:
        examples: steps with correct and wrong actions; for ``binary`` a target between 0 and 1
            counts partly as both.

    Raises:
        InputError: no example, or all targets are equal.
        DataError: the extra ``evidence`` is not installed.

    Source: Friedman, Greedy Function Approximation (2001), section 4.5, and Stochastic Gradient
    Boosting (2002) where trees are grown from shares; Ke et al., LightGBM (2017).
    """
    try:
        import lightgbm  # noqa: PLC0415 - an extra: trained trees run without it
    except ImportError as missing:
        message = "training trees needs the package lightgbm; install it with: "
        raise DataError(message + how_to_install("evidence")) from missing
    how = settings or TreeSettings()
    if loss == "binary":
        rows, targets, weights = _both_kinds(examples)
        objective: object = "binary"
    else:
        rows, targets, weights = examples.rows, examples.targets, None
        objective = _softmax(examples)
        _check_differ(targets)
    parameters = {
        "objective": objective, "num_leaves": how.leaves, "learning_rate": how.learning_rate,
        "min_data_in_leaf": how.least, "lambda_l2": how.ridge, "feature_fraction": how.columns,
        "deterministic": True, "force_row_wise": True, "num_threads": 1, "seed": seed,
        "bagging_fraction": how.rows, "bagging_freq": int(how.rows < 1), "verbosity": -1,
    }  # fmt: skip
    before = None if start is None else start.scores(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LightGBM warns about its own defaults
        data = lightgbm.Dataset(
            rows, targets, weight=weights, init_score=before, params={"verbosity": -1}
        )
        try:
            model = lightgbm.train(parameters, data, num_boost_round=how.trees).dump_model()
        except lightgbm.basic.LightGBMError as wrong:
            if _NO_SPLIT not in str(wrong):
                raise
            return TreeScorer(rows.shape[1], *blank(1))
    return _as_arrays(model, rows.shape[1])


def _softmax(examples: Examples) -> Callable[[Floats, object], tuple[Floats, Floats]]:
    """Return the gradient and the diagonal of the Hessian of the softmax loss, step by step."""
    starts = examples.sizes.cumsum() - examples.sizes
    right = examples.targets * examples.weights
    total = np.repeat(np.add.reduceat(right, starts), examples.sizes)

    def derivatives(scores: Floats, _: object) -> tuple[Floats, Floats]:
        top = np.repeat(np.maximum.reduceat(scores, starts), examples.sizes)
        masses = np.exp(scores - top)
        shares = masses / np.repeat(np.add.reduceat(masses, starts), examples.sizes)
        return total * shares - right, np.maximum(total * shares * (1.0 - shares), 1e-9)

    return derivatives


def _check_differ(targets: Floats) -> None:
    if len(np.unique(targets)) < 2:
        raise InputError(
            f"all {len(targets)} examples have the same target; trees need correct actions and "
            "wrong actions"
        )


def _both_kinds(examples: Examples) -> tuple[Floats, Floats, Floats]:
    """Return rows with targets 0 and 1 only; a fractional target becomes two weighted rows."""
    targets, between = examples.targets, (examples.targets > 0) & (examples.targets < 1)
    rows, weights = examples.rows, examples.weights
    if between.any():
        rows = np.concatenate([rows, rows[between]])
        weights = np.concatenate([
            weights * np.where(between, targets, 1.0), weights[between] * (1 - targets[between])
        ])  # fmt: skip
        targets = np.concatenate([np.where(between, 1.0, targets), np.zeros(between.sum())])
    used = weights > 0
    _check_differ(targets[used])
    return rows[used], targets[used], weights[used]


def _as_arrays(model: dict[str, Any], columns: int) -> TreeScorer:
    trees = model["tree_info"]
    places, thresholds, kept, values = blank(len(trees))
    for number, tree in enumerate(trees):
        nodes: list[tuple[int, float, int]] = []
        leaves: list[float] = []
        _read(tree["tree_structure"], nodes, leaves)
        for slot, (place, threshold, under_left) in enumerate(nodes):
            places[number, slot], thresholds[number, slot] = place, threshold
            kept[number, slot] = _ALL & ~under_left
        values[number, : len(leaves)] = leaves
    return TreeScorer(columns, places, thresholds, kept, values)


def _read(node: dict[str, Any], nodes: list[tuple[int, float, int]], leaves: list[float]) -> int:
    """Collect nodes and leaves from left to right; return the leaves under this node."""
    if "leaf_value" in node:
        leaves.append(float(node["leaf_value"]))
        return 1 << (len(leaves) - 1)
    if node["decision_type"] != "<=":
        raise InputError(f"a node splits by {node['decision_type']!r}; only <= is supported")
    slot = len(nodes)
    nodes.append((0, 0.0, 0))
    left = _read(node["left_child"], nodes, leaves)
    right = _read(node["right_child"], nodes, leaves)
    nodes[slot] = (int(node["split_feature"]), float(node["threshold"]), left)
    return left | right
