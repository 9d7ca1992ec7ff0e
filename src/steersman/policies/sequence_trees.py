"""Tree-based sequence policy without online learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

from steersman.errors import MergeError, StateError
from steersman.policies import inputs, states
from steersman.policies.fixed import UnlearningPolicy
from steersman.policies.sequence import StepRule
from steersman.policies.sequential import SequencePolicy, form_of
from steersman.policies.tree_scorer import LEAVES, TreeScorer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from steersman.policies.states import Sums

    Floats = NDArray[np.float64]


class SequenceTrees(SequencePolicy, UnlearningPolicy):
    """Sequence policy that scores actions with boosted trees plus start weights.

    Args:
        actions: must be empty: candidates come with each request.
        features: names of the candidate features.
        max_steps: largest number of picks, 1 to 100.
        vector: length of the candidate vector after the features, 0 to 1,024.
        stop: whether a selection may stop before ``max_steps``.
        leading: number of best-scored candidates from which each step draws, 1 to 1,000.
        temperature: of the softmax, in units of the trees' scores; or 0: greedy.
        start: weights by column; the trees add to this base score. None: trees only.
        floor: probability of each step in [0, 1) that is spread evenly over its eligible actions.

    Raises:
        InputError: argument out of range.

    >>> import numpy as np
    >>> policy = SequenceTrees(features=["score"], max_steps=2, start={"score": 2.0})
    >>> policy.scores(np.array([[0.5] + [0.0] * 8])).tolist()
    [1.0]
    >>> stump = TreeScorer.of_stumps(9, [(0, 0.4, -1.0, 3.0)])
    >>> policy.holding(stump).scores(np.array([[0.5] + [0.0] * 8])).tolist()
    [4.0]

    Source: sums of regression trees: Friedman, Greedy Function Approximation (2001).
    """

    algorithm = "sequence_trees"
    state_per_action = False
    learns_online = False

    def __init__(
        self,
        actions: Sequence[str] = (),
        *,
        features: Sequence[str],
        max_steps: int,
        vector: int = 0,
        stop: bool = True,
        leading: int = 8,
        temperature: float = 1.0,
        start: Mapping[str, float] | None = None,
        floor: float = 0.0,
    ) -> None:
        form = form_of(actions, features, max_steps, vector, stop=stop)
        super().__init__((), floor=floor)
        self._declare(
            form,
            StepRule(leading, inputs.parameter("temperature", temperature, 0.0, 100.0), self.floor),
            {} if start is None else start,
        )
        self.trees: TreeScorer | None = None

    def holding(self, trees: TreeScorer) -> Self:
        """Return a copy of this policy with trees.

        Args:
            trees: trees over this policy's columns.

        Raises:
            StateError: wrong number of columns.
        """
        state = self.state()
        meta, sums = states.unpack(state, algorithm=self.algorithm, version=self.version)
        _, arrays = states.unpack(trees.state(), algorithm="TreeScorer", version=1)
        self._check_columns(trees)
        meta |= {"trees": len(arrays["values"])}
        return type(self).from_state(states.pack(meta, {**sums, **arrays}))

    def scores(self, rows: Floats) -> Floats:
        """Return the score of each action.

        Args:
            rows: (k, columns) columns of each action.
        """
        start = self.starting(rows)
        return start if self.trees is None else start + self.trees.scores(rows)

    def _config(self) -> dict[str, Any]:
        return self._shape()

    def _arrays(self) -> Sums:
        if self.trees is None:
            return {}
        return states.unpack(self.trees.state(), algorithm="TreeScorer", version=1)[1]

    def _counters(self) -> dict[str, Any]:
        return {"trees": len(self._arrays().get("values", ()))}

    def _sums(self) -> Sums:
        return self._arrays()

    def _sum_shapes(self, meta: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        count = states.whole(meta, "trees")
        if not count:
            return {}
        nodes = (count, LEAVES - 1)
        shapes = dict.fromkeys(("places", "thresholds", "kept"), nodes)
        return {**shapes, "values": (count, LEAVES)}

    def _load(self, meta: dict[str, Any], sums: Sums) -> None:
        if not states.whole(meta, "trees"):
            self.trees = None
            return
        own = {name: sums[name] for name in ("places", "thresholds", "kept", "values")}
        header = {"algorithm": "TreeScorer", "version": 1}
        header |= {"config": {"actions": [], "columns": len(self.form.columns)}}
        self.trees = TreeScorer.from_state(states.pack(header, own))

    def _check_columns(self, trees: TreeScorer) -> None:
        if trees.columns != len(self.form.columns):
            raise StateError(
                f"the trees use {trees.columns} columns, but the decision point has "
                f"{len(self.form.columns)} ({', '.join(self.form.columns)}); train the trees "
                "on its log"
            )

    def _difference(
        self, meta: dict[str, Any], sums: Sums, base_meta: dict[str, Any], base: Sums
    ) -> NoReturn:
        raise MergeError(
            "sequence_trees has no delta, because trees are not sums; publish a snapshot"
        )

    def _sum(
        self, meta: dict[str, Any], sums: Sums, other_meta: dict[str, Any], other: Sums
    ) -> NoReturn:
        raise MergeError(
            "sequence_trees cannot merge, because trees are not sums; publish the better snapshot"
        )

    def _named(self) -> set[str]:
        return set()
