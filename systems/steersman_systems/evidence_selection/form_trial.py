"""Trial of learned query forms: search with every form, then evaluation on held-out turns.

The policy learns as in service: one form per turn, drawn with its propensity, and the reward of
that form only. Then it is frozen and measured on held-out conversations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import InputError
from steersman.features import FeatureMap
from steersman.points.policy_factory import build, warm_start
from steersman.spec.loader import load
from steersman.training.parallel_map import spread
from steersman_systems.configs import shipped
from steersman_systems.evidence_selection.evaluate import folds_of
from steersman_systems.evidence_selection.paired import mean_of
from steersman_systems.evidence_selection.turn_features import turn_features
from steersman_systems.rag_tuner.ranking_metrics import recall_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman.policies import ChoicePolicy
    from steersman.spec.point import DecisionPoint
    from steersman_systems.evidence_selection.collection import Collection
    from steersman_systems.evidence_selection.paired import Estimate
    from steersman_systems.evidence_selection.query_forms import QueryForm
    from steersman_systems.evidence_selection.question import Question

    Floats = NDArray[np.float64]

_EXPECTED, _TRUST = 0.7, 3.0


@dataclass(frozen=True)
class FormTable:
    """Search results of every form on every turn.

    Attributes:
        names: form names.
        found: (turns, forms) recall among the first passages.
        contexts: features of each turn for the decision point.
        groups: conversation of each turn.
    """

    names: tuple[str, ...]
    found: Floats
    contexts: tuple[Mapping[str, Any], ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class FormComparison:
    """Learned form compared with each single form, on held-out turns.

    Attributes:
        forms: name -> mean.
        learned: mean of the learned form.
        best: name of the best single form on all turns, in hindsight.
        ahead: paired difference, learned minus best.
        history_costs: loss of the whole history against the last turn only.
        hindsight: mean with the best form of each turn.
        shares: form -> share of turns with it in the learned policy.
    """

    forms: Mapping[str, Estimate]
    learned: Estimate
    best: str
    ahead: Estimate
    history_costs: Estimate
    hindsight: float
    shares: Mapping[str, float]


def load_form_point(path: Path | None = None) -> DecisionPoint:
    """Return the decision point of query forms.

    Args:
        path: YAML file; None for the shipped one.

    Raises:
        SpecError: the declaration is invalid.

    >>> load_form_point().actions.names
    ('last', 'last_two', 'history', 'keywords', 'rewrite')
    """
    return load(path or shipped("evidence/query_form.yaml"))


def tabulate(
    questions: Sequence[Question],
    collection: Collection,
    forms: Mapping[str, QueryForm],
    *,
    groups: Mapping[str, str],
    first: int = 5,
    done: Callable[[int], None] | None = None,
) -> FormTable:
    """Search with every form for every turn.

    Args:
        first: number of passages that count for recall, ≥ 1.
        done: called with 1 after each turn.

    Raises:
        InputError: a question has no gold, or the form ``last`` is missing.
    """
    if "last" not in forms:
        raise InputError(f"the forms are {', '.join(forms)}; `last` is required")
    found = np.zeros((len(questions), len(forms)))
    contexts = []
    for place, question in enumerate(questions):
        gains = dict.fromkeys(question.gold, 1.0)
        pools = {
            name: collection.pool(question, query=form(question)) for name, form in forms.items()
        }
        for column, pool in enumerate(pools.values()):
            ranked = [one.id for one in pool.candidates]
            found[place, column] = recall_at(ranked, gains, first) if ranked else 0.0
        contexts.append(turn_features(question, pools["last"]))
        if done is not None:
            done(1)
    of = tuple(groups.get(one.id, one.id) for one in questions)
    return FormTable(tuple(forms), found, tuple(contexts), of)


def compare_forms(
    table: FormTable,
    point: DecisionPoint | None = None,
    *,
    folds: int = 5,
    orders: int = 20,
    seed: int = 0,
    address: str | None = None,
) -> FormComparison:
    """Train on some conversations and measure on the held-out ones.

    Args:
        point: declares policy and features; None for the shipped one.
        orders: number of random orders of the training turns, ≥ 1; the report averages them.
        address: Ray cluster, one order per task; None: this machine.

    Raises:
        InputError: too few conversations for the folds, or no order.
        ClusterError: as `steersman.training.parallel_map.spread`.
    """
    if orders < 1:
        raise InputError(f"orders is {orders!r}; allowed: 1 or more; use 20 for a stable mean")
    point = point or load_form_point()
    encoder = FeatureMap(point.context)
    vectors = np.stack([encoder.encode(context) for context in table.contexts])
    fold_of = folds_of(table.groups, folds, seed)
    work = partial(_taken, point, table, vectors, fold_of, seed)
    taken = np.zeros(table.found.shape)
    for columns in spread(work, range(orders), address=address):
        taken[np.arange(len(columns)), columns] += 1 / orders
    return _compared(table, taken, seed)


def _taken(
    point: DecisionPoint,
    table: FormTable,
    vectors: Floats,
    fold_of: NDArray[np.intp],
    seed: int,
    order: int,
) -> NDArray[np.intp]:
    """Return (turns,) forms, each trained on the other folds in one order."""
    taken = np.zeros(len(fold_of), np.intp)
    for fold in np.unique(fold_of).tolist():
        rng = np.random.default_rng([seed, 18, order, fold])
        turns = rng.permutation(np.flatnonzero(fold_of != fold))
        policy = _learned(point, table, vectors, turns, rng)
        for place in np.flatnonzero(fold_of == fold).tolist():
            taken[place] = _greedy(policy, vectors[place], table.names)
    return taken


def _learned(
    point: DecisionPoint,
    table: FormTable,
    vectors: Floats,
    turns: NDArray[np.intp],
    rng: np.random.Generator,
) -> ChoicePolicy:
    """Return the policy after one pass over turns, trained on its own draws only."""
    names = tuple(getattr(point.actions, "names", ()))
    floor = point.floor if point.explore == "floor" else 0.0
    policy = build(point.policy, names, dim=vectors.shape[1], floor=floor)
    # Untried forms at zero would make a form look best after one trial.
    start = np.zeros((len(names), vectors.shape[1]))
    start[:, 0] = 1.0
    for _ in range(int(_TRUST)):
        warm_start(policy, start, names, np.full(len(names), _EXPECTED), trust=1.0)
    for turn in turns:
        choice = policy.decide(vectors[turn], rng=rng, eligible=table.names)
        reward = float(table.found[turn, table.names.index(choice.action)])
        policy.learn(vectors[turn], choice.action, reward)
    return policy


def _greedy(policy: ChoicePolicy, x: Floats, names: tuple[str, ...]) -> int:
    choice = policy.decide(x, rng=np.random.default_rng(0), eligible=names)
    scores = [choice.scores[policy.actions.index(name)] for name in names]
    return int(np.argmax(scores))


def _compared(table: FormTable, taken: Floats, seed: int) -> FormComparison:
    found, groups = table.found, table.groups
    learned = (taken * found).sum(axis=1)
    means = {
        name: mean_of(found[:, column], groups, within=(0.0, 1.0), seed=seed)
        for column, name in enumerate(table.names)
    }
    best = max(means, key=lambda name: means[name].value)
    places = {name: column for column, name in enumerate(table.names)}
    whole = found[:, places.get("history", 0)] - found[:, places["last"]]
    return FormComparison(
        forms=means,
        learned=mean_of(learned, groups, within=(0.0, 1.0), seed=seed),
        best=best,
        ahead=mean_of(learned - found[:, places[best]], groups, within=(-1.0, 1.0), seed=seed),
        history_costs=mean_of(-whole, groups, within=(-1.0, 1.0), seed=seed),
        hindsight=float(found.max(axis=1).mean()),
        shares=dict(zip(table.names, taken.mean(axis=0).tolist(), strict=True)),
    )
