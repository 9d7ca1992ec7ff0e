"""What each part is good for: the same evaluation with one thing changed at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from steersman.systems.leadr.baselines import LAMBDAS, TopK, greedily
from steersman.systems.leadr.contenders import BASELINE, CLONE, PPO, RAFT, Cloned
from steersman.systems.leadr.environment import Environment, Limits, Selection
from steersman.systems.leadr.evaluating import Fixed, evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from steersman.retrieval import Reranker
    from steersman.systems.leadr.collection import Collection
    from steersman.systems.leadr.evaluating import Contender
    from steersman.systems.leadr.evaluation import Evaluation
    from steersman.systems.leadr.paired import Estimate
    from steersman.systems.leadr.pool import Pool
    from steersman.systems.leadr.question import Question

SIZES = (20, 50, 100)
_TRAINING = (BASELINE, CLONE, RAFT, PPO)


@dataclass(frozen=True, slots=True)
class Ablated:
    """One variant beside what it is a variant of.

    Attributes:
        part: that was changed.
        variant: what it was changed to.
        figure: all gold found, share of questions; None: it could not be tried.
        ahead: over the unchanged one, paired; None for that one itself.
        why: it could not be tried; "" where it was.
    """

    part: str
    variant: str
    figure: Estimate | None
    ahead: Estimate | None = None
    why: str = ""


def ablations(
    evaluation: Evaluation,
    collection: Collection,
    questions: Sequence[Question],
    *,
    groups: Mapping[str, str] | None = None,
    query: Callable[[Question], str] | None = None,
    limits: Limits | None = None,
    rerankers: Mapping[str, Reranker] | None = None,
    folds: int = 5,
    seed: int = 0,
) -> list[Ablated]:
    """Return what changes when one part does: K, λ, reranker, expanding, stopping, training.

    Args:
        evaluation: of the unchanged policies; what it holds already is not computed again.
        collection: that is searched.
        questions: of the evaluation, in its order.
        groups: question id -> its conversation.
        query: form of the query; None for the question's own text.
        limits: of the unchanged policies.
        rerankers: name -> reranker, tried on the baseline.
        folds: as in the evaluation.
        seed: as in the evaluation.

    Returns:
        One entry a variant, those that could not be tried among them.

    No doctest: it needs a collection; ``tests/systems/leadr/test_report.py`` shows it.
    """
    rules = limits or Limits()
    full = replace(rules, expanding="always", may_stop=False)
    trial = _Trial(evaluation, groups, folds, seed)
    found = [_of(evaluation, "λ of MMR", f"λ {one:g}", f"MMR, λ {one:g}") for one in LAMBDAS]
    for size in SIZES:
        pools = [
            collection.pool(one, query=None if query is None else query(one), size=size)
            for one in questions
        ]
        for name, contender in (
            (BASELINE, Fixed(TopK("fused", Environment(rules)))),
            (CLONE, Cloned(CLONE, full, seed=seed)),
        ):
            found.append(trial.tried("candidates", f"K {size}, {name}", contender, name, pools))
    for name, reranker in (rerankers or {}).items():
        reranked = Fixed(Reranked(name, reranker, Environment(rules)))
        found.append(trial.tried("reranker of the baseline", name, reranked, BASELINE))
    never = Cloned(CLONE, replace(full, expanding="never"), seed=seed)
    found.append(trial.tried("expanding", "never", never, CLONE))
    action = Cloned(CLONE, replace(full, expanding="action"), seed=seed)
    found.append(trial.tried("expanding", "as an action", action, CLONE))
    stopping = Cloned(CLONE, replace(full, may_stop=True), seed=seed)
    found.append(trial.tried("stopping", "may stop", stopping, CLONE))
    return found + [_of(evaluation, "training", name, name) for name in _TRAINING]


@dataclass(frozen=True, slots=True)
class Reranked:
    """The best of the fused ranking, in the order that a reranker gives its leading candidates.

    Args:
        reranker_name: in reports.
        reranker: reads question and passage.
        environment: its limits count.
        depth: leading candidates that are read, ≥ 1.

    No doctest: it needs a pool; ``tests/systems/leadr/test_report.py`` shows it.
    """

    reranker_name: str
    reranker: Reranker
    environment: Environment
    depth: int = 20

    @property
    def name(self) -> str:
        """Its name in reports."""
        return f"top-k, {self.reranker_name} reranked"

    def select(self, pool: Pool, *, rng: np.random.Generator) -> Selection:
        """Return the best that fit.

        Args:
            pool: candidates of one question; not changed.
            rng: not used.
        """
        leading = min(self.depth, len(pool))
        texts = [f"{one.title}\n{one.text}" for one in pool.candidates[:leading]]
        if not texts:
            return Selection((), stopped="stop")
        scores = np.asarray(self.reranker.scores(pool.question.text, texts), np.float64)
        rest = np.arange(leading, len(pool), dtype=np.float64)
        whole = np.concatenate([scores, scores.min() - 1.0 - rest])
        return greedily(pool, self.environment, lambda _: (whole, self.reranker_name))


@dataclass(frozen=True, slots=True)
class _Trial:
    evaluation: Evaluation
    groups: Mapping[str, str] | None
    folds: int
    seed: int

    def tried(
        self,
        part: str,
        variant: str,
        contender: Contender,
        unchanged: str,
        pools: Sequence[Pool] | None = None,
    ) -> Ablated:
        if unchanged not in self.evaluation.rows:
            why = self.evaluation.absent.get(unchanged, "it did not take part")
            return Ablated(part, variant, None, why=f"{unchanged}: {why}")
        own = evaluate(
            self.evaluation.name, pools or self.evaluation.pools, [contender],
            groups=self.groups, folds=self.folds, seed=self.seed,
        )  # fmt: skip
        both = replace(
            self.evaluation,
            rows={"variant": own.rows[contender.name], unchanged: self.evaluation.rows[unchanged]},
        )
        ahead = both.difference("variant", unchanged, "all_gold")
        return Ablated(part, variant, both.mean("variant", "all_gold"), ahead)


def _of(evaluation: Evaluation, part: str, variant: str, policy: str) -> Ablated:
    if policy not in evaluation.rows:
        why = evaluation.absent.get(policy, "it did not take part")
        return Ablated(part, variant, None, why=why)
    ahead = (
        None if policy == BASELINE or BASELINE not in evaluation.rows
        else evaluation.difference(policy, BASELINE, "all_gold")
    )  # fmt: skip
    return Ablated(part, variant, evaluation.mean(policy, "all_gold"), ahead)
