"""Ablations: repeats of an evaluation with one part changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from steersman_systems.evidence_selection.baselines import LAMBDAS, greedily
from steersman_systems.evidence_selection.contenders import (
    BASELINE,
    CLONE,
    PPO,
    RAFT,
    STOPPING,
    Cloned,
)
from steersman_systems.evidence_selection.environment import Environment, Limits, Selection
from steersman_systems.evidence_selection.evaluate import (
    Fixed,
    Trial,
    folds_of,
    groups_of,
    select_held_out,
)
from steersman_systems.evidence_selection.raft_training import REWARD, raft_then_ppo
from steersman_systems.evidence_selection.selection_values import SelectionMeasures
from steersman_systems.evidence_selection.shared_models import SharedTraining

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from steersman.retrieval.rerank import Reranker
    from steersman_systems.evidence_selection.collection import Collection
    from steersman_systems.evidence_selection.evaluate import Contender, Selected
    from steersman_systems.evidence_selection.evaluation import Evaluation
    from steersman_systems.evidence_selection.paired import Estimate
    from steersman_systems.evidence_selection.pool import Pool
    from steersman_systems.evidence_selection.question import Question
    from steersman_systems.evidence_selection.reward import RewardTerms

SIZES = (20, 50)
"""Pool sizes, besides the evaluation's hundred candidates."""
_RERANKER = "reranker of the baseline"
SHAPINGS = {
    f"information {gained:g}, redundancy {repeated:g}": replace(
        REWARD, information=gained, redundancy=repeated
    )
    for gained, repeated in ((0.2, 0.0), (0.0, 0.1), (0.2, 0.1), (0.6, 0.3))
}
"""REWARD with shaping weights. Only PPO uses them: RAFT sees whole selections, for which the sum
of shaping is constant."""


@dataclass(frozen=True, slots=True)
class AblationResult:
    """Result of one variant against the unchanged policy.

    Attributes:
        part: part that was changed.
        variant: its new value.
        over: policy that it is compared with.
        figure: share of questions with all gold; None if it could not run.
        ahead: paired difference to that policy; None for the policy itself. The learning steps that
            start from one clone are a family with simultaneous 95 % intervals.
        why: why it could not run; "" if it did.
    """

    part: str
    variant: str
    over: str
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
    rerankers: Mapping[str, Reranker | str] | None = None,
    folds: int = 5,
    seed: int = 0,
    address: str | None = None,
    shared: SharedTraining | None = None,
    done: Callable[[int], None] | None = None,
) -> list[AblationResult]:
    """Return ablations of K, λ, reranker, expansion, stopping, shaping and learning steps.

    Args:
        query: query form; None for the question text.
        done: called with 1 after each question of each variant.
    """
    rules = limits or Limits()
    by_size = {
        size: [collection.pool(one, query=None if query is None else query(one), size=size)
               for one in questions]
        for size in SIZES
    }  # fmt: skip
    wanted = _variants(rules, seed, by_size, evaluation.pools, shared or SharedTraining())
    reranked = [
        _Variant(_RERANKER, name, BASELINE,
                 Fixed(RerankedTopK(name, reranker, Environment(rules))), evaluation.pools)
        for name, reranker in (rerankers or {}).items() if not isinstance(reranker, str)
    ]  # fmt: skip
    fold_of = folds_of(groups_of(evaluation.pools, groups), folds, seed)
    run = partial(_tried, evaluation, fold_of, seed, done)
    found = [_of(evaluation, "λ of MMR", f"λ {one:g}", f"MMR, λ {one:g}", BASELINE)
             for one in LAMBDAS]  # fmt: skip
    found.append(_of(evaluation, "candidates", f"K {_largest(evaluation)}", CLONE, CLONE))
    found += run(wanted, address)
    found += run(reranked, None)
    found += [AblationResult(_RERANKER, name, BASELINE, None, why=why)
              for name, why in (rerankers or {}).items() if isinstance(why, str)]  # fmt: skip
    found.append(_of(evaluation, "stopping", "may stop", STOPPING, CLONE))
    return found + list(_steps(evaluation))


def _largest(evaluation: Evaluation) -> int:
    return max(len(pool) for pool in evaluation.pools)


@dataclass(frozen=True, slots=True)
class _Variant:
    """A changed part, its value, and the policy it is compared with."""

    part: str
    name: str
    unchanged: str
    contender: Contender
    pools: Sequence[Pool]


def _variants(
    rules: Limits,
    seed: int,
    by_size: Mapping[int, Sequence[Pool]],
    pools: Sequence[Pool],
    shared: SharedTraining,
) -> list[_Variant]:
    full = replace(rules, expanding="always", may_stop=False)
    clone = Cloned(CLONE, full, seed=seed)

    def shaped(terms: RewardTerms) -> Cloned:
        improve = partial(raft_then_ppo, terms=terms, begin=shared.raft)
        return Cloned(PPO, full, seed=seed, improve=improve, shared=shared)

    return [
        *(_Variant("candidates", f"K {size}", CLONE, clone, of_size)
          for size, of_size in by_size.items()),
        *(
            _Variant("expanding", name, CLONE, replace(clone, limits=changed), pools)
            for name, changed in (
                ("never", replace(full, expanding="never")),
                ("as an action", replace(full, expanding="action")),
            )
        ),
        *(
            _Variant("shaping of PPO", name, PPO, shaped(terms), pools)
            for name, terms in SHAPINGS.items()
        ),
    ]  # fmt: skip


def _tried(
    evaluation: Evaluation,
    fold_of: NDArray[np.intp],
    seed: int,
    done: Callable[[int], None] | None,
    wanted: Sequence[_Variant],
    address: str | None,
) -> list[AblationResult]:
    """Return the results of variants in their order; all run in parallel."""
    can = [one for one in wanted if one.unchanged in evaluation.rows]
    trials = [Trial(one.contender, one.pools) for one in can]
    told = select_held_out(trials, fold_of, seed=seed, address=address, done=done)
    found = {(one.part, one.name): _beside(evaluation, one, selected)
             for one, selected in zip(can, told, strict=True)}  # fmt: skip
    for one in wanted:
        if one.unchanged not in evaluation.rows:
            why = evaluation.absent.get(one.unchanged, "it did not take part")
            gone = AblationResult(
                one.part, one.name, one.unchanged, None, why=f"{one.unchanged}: {why}"
            )
            found[one.part, one.name] = gone
    return [found[one.part, one.name] for one in wanted]


def _beside(evaluation: Evaluation, one: _Variant, selected: Selected | str) -> AblationResult:
    if isinstance(selected, str):
        return AblationResult(one.part, one.name, one.unchanged, None, why=selected)
    valuing, unchanged = SelectionMeasures(None, None), evaluation.rows[one.unchanged]
    rows = tuple(
        valuing.row(one.name, pool, selection, took_ms, before.group, before.fold)
        for pool, (selection, took_ms), before in zip(one.pools, selected, unchanged, strict=True)
    )
    both = replace(evaluation, rows={"variant": rows, one.unchanged: unchanged})
    ahead = both.difference("variant", one.unchanged, "all_gold")
    return AblationResult(
        one.part, one.name, one.unchanged, both.mean("variant", "all_gold"), ahead
    )


def _of(
    evaluation: Evaluation, part: str, variant: str, policy: str, over: str, family: int = 1
) -> AblationResult:
    if policy not in evaluation.rows:
        why = evaluation.absent.get(policy, "it did not take part")
        return AblationResult(part, variant, over, None, why=why)
    ahead = (
        None if policy == over or over not in evaluation.rows
        else evaluation.difference(policy, over, "all_gold", family=family)
    )  # fmt: skip
    return AblationResult(part, variant, over, evaluation.mean(policy, "all_gold"), ahead)


def _steps(evaluation: Evaluation) -> Iterator[AblationResult]:
    """Yield the gain of each learning step over its start; steps on the clone are one family."""
    yield _of(evaluation, "learning", BASELINE, BASELINE, BASELINE)
    yield _of(evaluation, "learning", CLONE, CLONE, BASELINE)
    family = max(sum(one in evaluation.rows for one in (RAFT, PPO)), 1)
    for one in (RAFT, PPO):
        yield _of(evaluation, "learning", one, one, CLONE, family)


@dataclass(frozen=True, slots=True)
class RerankedTopK:
    """Top of the fused ranking, with its first candidates reordered by a reranker.

    Args:
        reranker_name: name in reports.
        reranker: scores a question and passage.
        environment: gives the limits.
        depth: number of candidates to rerank, ≥ 1.
    """

    reranker_name: str
    reranker: Reranker
    environment: Environment
    depth: int = 20

    @property
    def name(self) -> str:
        """Name in reports."""
        return f"top-k, {self.reranker_name} reranked"

    def select(self, pool: Pool, *, rng: np.random.Generator) -> Selection:
        """Return the highest-ranked passages within the limits."""
        leading = min(self.depth, len(pool))
        texts = [f"{one.title}\n{one.text}" for one in pool.candidates[:leading]]
        if not texts:
            return Selection((), stopped="stop")
        scores = np.asarray(self.reranker.scores(pool.asked, texts), np.float64)
        rest = np.arange(leading, len(pool), dtype=np.float64)
        whole = np.concatenate([scores, scores.min() - 1.0 - rest])
        return greedily(pool, self.environment, lambda _: (whole, self.reranker_name))
