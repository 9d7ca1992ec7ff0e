"""Evidence selection: share of questions with all gold passages among five, and its cost.

``--sets`` names folders of ``--data`` or ``made-up``; default: hotpotqa, musique and made-up. It
needs the extras ``rag`` and ``evidence``. PPO needs ``rl`` and takes as long as the rest together;
``+ppo`` after a name adds it: ``--sets musique+ppo``. ``made-up`` is a synthetic world with a known
optimum; it tests learning from feedback alone. `benchmarks.evidence_answers` measures the answers
of a model from the selected passages.

All learners are judged on questions outside their training data: five folds by question, or by
conversation if there are any. Differences are paired. The 95 % bootstrap intervals are over
questions, given these logs, folds and trained selectors. Goals apply to the estimate and, where
they say so, to its interval.

Learning without gold uses logged selections of two passages by an exploring policy. The log has
their propensities and whether they contain an answer; it has no other label. Learning, tuning and
stopping never read gold labels. The log is simulated: 96 selections per question. A live service
has few selections of one question, or one; a separate row uses the first 4 of each.

The gold of two of the five folds chose the method. The questions of the other three folds have
separate rows ("less looked at"). A third of them was inspected once to find errors, and all gold
chose the number of leading candidates.

RAFT is the main row. It assigns credit along chains within RAFT's rounds (docs/adr/0027). Each
question's value is the mean over three seeds of log and learning. A separate row has RAFT as
published, which ranks whole selections and keeps the best. ``start`` is a clone of the best ranking
by a search along links, before any feedback.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.report import Figure, command
from lab.evidence_worlds import BEST, COLUMNS, made_up
from steersman.errors import DataError
from steersman.platform.wheel_files import state_directory
from steersman.policies.network_scorer import NetworkScorer
from steersman.policies.sequence import StepRule
from steersman.retrieval.dense import MiniLM
from steersman.retrieval.embedding_cache import CachedEmbedder
from steersman_systems.evidence_selection.baselines import (
    LAMBDAS,
    Mmr,
    Oracle,
    Pointwise,
    TopK,
    ceiling,
)
from steersman_systems.evidence_selection.chains import Chains
from steersman_systems.evidence_selection.environment import Environment, Limits
from steersman_systems.evidence_selection.experts import GoldExpert, RankExpert
from steersman_systems.evidence_selection.paired import mean_of
from steersman_systems.evidence_selection.prepared_set import prepare
from steersman_systems.evidence_selection.raft_training import REWARD, feedback, improved
from steersman_systems.evidence_selection.selectors import ScoredSelector
from steersman_systems.evidence_selection.tasks import EvidenceTask
from steersman_systems.evidence_selection.training.behaviour_cloning import CloneSettings, clone
from steersman_systems.evidence_selection.training.raft import (
    RaftSettings,
    TreesOnTop,
    by_task,
    causes,
    raft,
)
from steersman_systems.evidence_selection.training.task import walks
from steersman_systems.evidence_selection.training.tree_growth import TreeSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from benchmarks.report import Options
    from steersman.policies.scorers import Scorer
    from steersman_systems.evidence_selection.environment import Selection, Selector
    from steersman_systems.evidence_selection.paired import Estimate
    from steersman_systems.evidence_selection.pool import Pool
    from steersman_systems.evidence_selection.training.task import Walk

    Floats = NDArray[np.float64]

DEFAULT = ("hotpotqa", "musique")
MADE_UP = "made-up"
FOLDS = 5
QUICK = 60
FIVE = Environment(Limits(picks=5, may_stop=False, expanding="always"))
ONCE = Environment(Limits(picks=5, may_stop=False, expanding="never"))
GOALS = {"hotpotqa": 0.90, "musique": 0.31}
START_SHARE = 0.6
"""Share of a passage's score added to its links: the default of search."""
CLONE = CloneSettings(rounds=3, trees=TreeSettings(trees=100, learning_rate=0.1))
START = CloneSettings(rounds=2, trees=TreeSettings(trees=60, learning_rate=0.1))
LOOKED_AT = (0, 1)
"""Folds whose gold was used to choose the method of learning without gold."""
CREDITED = 0.25
"""Minimum probability that a credited passage is needed."""
SEEDS = (0, 1, 2)
"""Random seeds of logs and learning; RAFT is their mean per question."""
FEW = 4
"""Selections per question in a log that is closer to a service's log."""
RAFT, PPO = "RAFT, no gold", "RAFT + PPO, no gold"
RAFT_FEW = f"RAFT, no gold, {FEW} logged selections of each question (seed 0)"
RAFT_RANKED = "RAFT as published, whole selections ranked and kept, no gold (seed 0)"
MARGIN = 0.02
"""Margin of RAFT against the clone of gold."""
SHARE, APART = (0.0, 1.0), (-1.0, 1.0)
PEERS = {
    "hotpotqa": {"HippoRAG 2, published": 0.963, "NV-Embed-v2, published": 0.945},
    "musique": {"HippoRAG 2, published": 0.747, "NV-Embed-v2, published": 0.697},
}
"""Recall@5 of Gutiérrez et al., From RAG to Memory (2025): 1,000 questions of each set over 9,811
and 11,656 passages, against 300 over 7,415 and 7,288 here, so not comparable."""


@dataclass
class SetResults:
    """Results of all selectors on one set: name -> (questions,) all gold, recall.

    `groups` has the conversation of each question; () without conversations.
    """

    name: str
    pools: Sequence[Pool]
    groups: Sequence[str] = ()
    with_ppo: bool = False
    whole: dict[str, Floats] = field(default_factory=dict)
    recall: dict[str, Floats] = field(default_factory=dict)
    by_seed: dict[int, Floats] = field(default_factory=dict)
    credit: tuple[float, float] = (0.0, 0.0)

    @property
    def fold(self) -> NDArray[np.int64]:
        """Fold of each question; the turns of a conversation share a fold."""
        groups = self.groups or [str(place) for place in range(len(self.pools))]
        places = {one: place for place, one in enumerate(dict.fromkeys(groups))}
        of_group = np.random.default_rng(0).permutation(len(places)) % FOLDS
        return of_group[[places[one] for one in groups]]

    def mean(
        self, values: Floats, within: tuple[float, float], *, among: NDArray[np.bool_] | None = None
    ) -> Estimate:
        """Return a mean over questions with its interval; conversations are the units.

        Args:
            values: (n,) values of all or some questions.
            within: range of a value.
            among: (questions,) mask of the questions, if not all.
        """
        alone = len(set(self.groups)) == len(self.groups)
        groups = None if alone else np.asarray(self.groups)[slice(None) if among is None else among]
        return mean_of(values, None if groups is None else groups.tolist(), within=within)

    def add(self, selector: Selector, places: Sequence[int], *, name: str = "") -> None:
        """Run a selector on some questions and record its results."""
        self._note(name or selector.name, places, self._shares(selector, places)[None])

    def add_seeds(self, scorers: Sequence[Scorer], places: Sequence[int]) -> None:
        """Record the mean of RAFT over seeds, per question."""
        found = [self._shares(ScoredSelector(RAFT, one, FIVE), places) for one in scorers]
        self._note(RAFT, places, np.array(found))
        for seed, shares in zip(SEEDS, found, strict=True):
            own = self.by_seed.setdefault(seed, np.full(len(self.pools), np.nan))
            own[list(places)] = shares == 1.0

    def _shares(self, selector: Selector, places: Sequence[int]) -> Floats:
        picked = [selector.select(self.pools[one], rng=np.random.default_rng(0)) for one in places]
        return np.array(
            [_share(self.pools[one], own) for one, own in zip(places, picked, strict=True)]
        )

    def _note(self, name: str, places: Sequence[int], shares: Floats) -> None:
        for store, values in ((self.recall, shares), (self.whole, shares == 1.0)):
            own = store.setdefault(name, np.full(len(self.pools), np.nan))
            own[list(places)] = values.mean(axis=0)


def run(options: Options) -> Iterator[Figure]:
    """Measure the chosen sets, then the made-up world."""
    for name in options.sets or ((DEFAULT[0], MADE_UP) if options.quick else (*DEFAULT, MADE_UP)):
        yield from _made_up(options) if name == MADE_UP else _set(name, options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    yield Figure("peak memory of this benchmark", peak, unit="GB")


def _set(named: str, options: Options) -> Iterator[Figure]:
    name = named.removesuffix("+ppo")
    folder = options.folder(name, "its publisher")
    embedder = CachedEmbedder(MiniLM(), state_directory() / "embeddings.sqlite")
    most = QUICK if options.quick else None
    ready = prepare(folder.name, folder.parent, embedder=embedder, most=most)
    if ready.note:
        print(f"{name}: {ready.note}", file=sys.stderr)
    groups = [ready.groups[one.id] for one in ready.questions]
    judged = SetResults(name, ready.pools, groups, with_ppo=named != name)
    every = range(len(ready.pools))
    rankings: list[Selector] = [TopK("fused"), TopK("lexical"), TopK("dense")]
    for selector in [*rankings, *(Mmr(weight) for weight in LAMBDAS)]:
        judged.add(selector, every)
    judged.add(Oracle(FIVE), every)
    took = _folds(judged, options)
    yield from _quality(judged)
    earned, right = judged.credit
    yield Figure(f"{name}: gold passages that earned credit from feedback", earned,
                 peers={"of what earned credit, gold": right})  # fmt: skip
    yield from _ceiling(judged)
    yield from _cost(judged, took)


# -- five folds -----------------------------------------------------------------------------------


def _folds(judged: SetResults, options: Options) -> list[float]:
    """Train on four folds and evaluate on the fifth, in turn; return the seconds for clones."""
    tasks = [EvidenceTask(pool, FIVE, REWARD) for pool in judged.pools]
    logs = [feedback(tasks, seed=seed) for seed in SEEDS]
    judged.credit = _credited_gold(tasks, logs[0])
    few = _first(logs[0], FEW)
    fold, took = judged.fold, []
    for held_out in range(1 if options.quick else FOLDS):
        learned = [task for task, own in zip(tasks, fold, strict=True) if own != held_out]
        places = np.flatnonzero(fold == held_out).tolist()
        start = time.perf_counter()
        gold = clone(learned, GoldExpert(), CLONE)
        took.append(time.perf_counter() - start)
        judged.add(ScoredSelector("clone of gold", gold, FIVE), places)
        judged.add(Pointwise(_pointwise(learned), ONCE), places)
        begun = clone(learned, RankExpert(START_SHARE), START)
        judged.add(ScoredSelector("start, no gold", begun, FIVE), places)
        tuned = [improved(learned, begun, log=logs[seed], seed=seed).scorer for seed in SEEDS]
        judged.add_seeds(tuned, places)
        scarce = improved(learned, begun, log=few).scorer
        judged.add(ScoredSelector(RAFT_FEW, scarce, FIVE), places)
        ranked = raft(learned, begun, RaftSettings(), log=logs[0]).scorer
        judged.add(ScoredSelector(RAFT_RANKED, ranked, FIVE), places)
        if judged.with_ppo:
            judged.add(ScoredSelector(PPO, _ppo(learned, tuned[0]), FIVE), places)
        done = {one: f"{np.nanmean(found):.3f}" for one, found in judged.whole.items()}
        print(f"{judged.name}, fold {held_out + 1}: {done}", file=sys.stderr)
    return took


def _first(log: Sequence[Walk], most: int) -> list[Walk]:
    """Return the first selections of each question."""
    seen: Counter[str] = Counter()
    found = []
    for one in log:
        seen[one.task] += 1
        if seen[one.task] <= most:
            found.append(one)
    return found


def _credited_gold(tasks: Sequence[EvidenceTask], log: Sequence[Walk]) -> tuple[float, float]:
    """Return recall and precision of the credited passages against the gold ones."""
    gold, credited, both = 0, 0, 0
    alone = {name: causes(of_one) for name, of_one in by_task(log).items()}
    needed = Chains()(tasks, alone)
    for task in tasks:
        right = {one for one, sure in needed.get(task.id, {}).items() if sure >= CREDITED}
        own = set(task.pool.question.gold)
        gold, credited, both = gold + len(own), credited + len(right), both + len(right & own)
    return both / gold, both / max(credited, 1)


def _ppo(learned: Sequence[EvidenceTask], start: Scorer) -> Scorer:
    from steersman_systems.evidence_selection.training.ppo import PpoSettings, ppo  # noqa: PLC0415 - the extra rl

    return ppo(learned, start, PpoSettings(rounds=3, each=4, rule=StepRule(10, 1.0, 0.05))).scorer


def _pointwise(learned: Sequence[EvidenceTask]) -> Scorer:
    """Return trees trained on first states only."""
    first = [EvidenceTask(task.pool, Environment(Limits(picks=1, may_stop=False,
                                                        expanding="never")))
             for task in learned]  # fmt: skip
    return clone(first, GoldExpert(), CloneSettings(rounds=1, others=60, trees=CLONE.trees))


def _share(pool: Pool, picked: Selection) -> float:
    gold = set(pool.question.gold)
    return len(gold & set(picked.picked)) / len(gold)


# -- figures --------------------------------------------------------------------------------------


def _quality(judged: SetResults) -> Iterator[Figure]:
    about = f"{judged.name} ({len(judged.pools)} questions), five passages"
    goal = GOALS.get(judged.name)
    for name, values in judged.whole.items():
        found, recall = judged.mean(values, SHARE), judged.mean(judged.recall[name], SHARE)
        aimed = goal if name == "clone of gold" else None
        yield Figure(
            f"{about}, {name}: all gold found", found.value, found.low, found.high,
            goal=None if aimed is None else f">= {aimed:g}",
            holds=None if aimed is None else round(found.value, 3) >= aimed,
            peers={"recall": recall.value} | (_seeds(judged) if name == RAFT else {}),
        )  # fmt: skip
    best = judged.mean(judged.recall["clone of gold"], SHARE)
    yield Figure(f"{about}, clone of gold: recall@5", best.value, best.low, best.high,
                 peers=PEERS.get(judged.name, {}))  # fmt: skip
    yield from _differences(judged, about)


def _differences(judged: SetResults, about: str) -> Iterator[Figure]:
    whole = judged.whole

    def over(one: str, other: str) -> tuple[str, Floats]:
        return f"{about}, {one} over {other}: all gold found", whole[one] - whole[other]

    yield _difference(judged, *over("clone of gold", "top-k, fused"))
    yield _difference(judged, *over("clone of gold", "pointwise"))
    yield _difference(judged, *over("MMR, λ 0.8", "top-k, fused"))
    less_seen = ~np.isin(judged.fold, LOOKED_AT)
    for one in [name for name in (RAFT, RAFT_FEW, RAFT_RANKED, PPO) if name in whole]:
        near = _difference(judged, *over(one, "clone of gold"))
        far = _difference(judged, *over(one, "start, no gold"))
        if one == RAFT:
            near, far = _aimed(judged, near, far)
        yield near
        yield far
        if one == RAFT:
            yield _shown(near)
        if (there := less_seen & ~np.isnan(whole[one])).any():
            yield from _apart(judged, one, there)


def _aimed(judged: SetResults, near: Figure, far: Figure) -> tuple[Figure, Figure]:
    """Return RAFT's differences with the goals of their set, and the results of single seeds."""
    whole = judged.whole
    near = replace(near, peers=_seeds(judged, whole["clone of gold"]))
    far = replace(far, peers=_seeds(judged, whole["start, no gold"]))
    if judged.name == "hotpotqa":
        goal = f">= -{MARGIN:g}, by the estimate"
        near = replace(near, goal=goal, holds=round(near.value, 6) >= -MARGIN)
    if judged.name == "musique":
        holds = round(far.value, 6) >= 0.03 and (far.low or 0.0) > 0
        far = replace(far, goal=">= 0.03, interval above 0", holds=holds)
    return near, far


def _shown(near: Figure) -> Figure:
    """Return the figure that shows whether RAFT is behind by at most a margin."""
    low = near.low if near.low is not None else float("nan")
    return Figure(
        f"{near.name}: lower end, from -{MARGIN:g} on it is shown that it is not behind by more",
        low, peers={"shown (1) or not (0)": float(low >= -MARGIN)},
    )  # fmt: skip


def _seeds(judged: SetResults, less: Floats | float = 0.0) -> dict[str, float]:
    return {f"seed {seed}": float(np.nanmean(own - less)) for seed, own in judged.by_seed.items()}


def _apart(judged: SetResults, one: str, unseen: NDArray[np.bool_]) -> Iterator[Figure]:
    """Yield the differences on the questions of the other three folds, see the module."""
    about = f"{judged.name}, the {unseen.sum()} questions less looked at"
    for other in ("clone of gold", "start, no gold"):
        own, others = judged.whole[one][unseen], judged.whole[other][unseen]
        found = judged.mean(own - others, APART, among=unseen)
        yield Figure(
            f"{about}, {one} over {other}: all gold found", found.value, found.low, found.high,
            peers={one: float(np.nanmean(own)), other: float(np.nanmean(others))},
        )  # fmt: skip


def _difference(judged: SetResults, name: str, differences: Floats) -> Figure:
    found = judged.mean(differences, APART)
    return Figure(name, found.value, found.low, found.high)


def _ceiling(judged: SetResults) -> Iterator[Figure]:
    found = [ceiling(pool, FIVE) for pool in judged.pools]
    about = f"{judged.name}: all gold among the candidates"
    retrieved = np.array([one.retrieved == 1.0 for one in found], np.float64)
    reachable = np.array([one.reachable == 1.0 for one in found], np.float64)
    yield Figure(about, float(retrieved.mean()), peers={"along links": float(reachable.mean())})


def _cost(judged: SetResults, took: Sequence[float]) -> Iterator[Figure]:
    most = max(took)
    share = (FOLDS - 1) / FOLDS * len(judged.pools)
    yield Figure(
        f"{judged.name}: training the clone on {share:.0f} questions, the slowest", most,
        unit="s", goal="<= 180 for 300 questions", holds=most <= 180 * share / 300,
    )  # fmt: skip
    tasks = [EvidenceTask(pool, FIVE) for pool in judged.pools[:60]]
    scorer = clone(tasks, GoldExpert(), CloneSettings(rounds=1, trees=CLONE.trees))
    selector = ScoredSelector("clone", scorer, FIVE)
    plain = ScoredSelector("clone", scorer, FIVE, explain=False)
    times: dict[str, list[float]] = {"explained": [], "plain": [], "by the clock": []}
    for pool in judged.pools:
        for name, one in (("explained", selector), ("plain", plain)):
            start, clock = time.process_time(), time.perf_counter()
            one.select(pool, rng=np.random.default_rng(0))
            times[name].append(1e3 * (time.process_time() - start))
            if name == "explained":
                times["by the clock"].append(1e3 * (time.perf_counter() - clock))
    p50 = {name: float(np.median(found)) for name, found in times.items()}
    yield Figure(
        f"{judged.name}: selecting five from {len(judged.pools[0])} candidates, p50 on one core",
        p50["explained"], unit="ms", goal="<= 10", holds=p50["explained"] <= 10,
        peers={"without saying why": p50["plain"], "by the clock": p50["by the clock"]},
    )  # fmt: skip


# -- the made-up world ----------------------------------------------------------------------------


def _made_up(options: Options) -> Iterator[Figure]:
    count = 40 if options.quick else 200
    learned, fresh = made_up(count, seed=1), made_up(count, seed=2)
    start = NetworkScorer.linear(np.zeros(len(COLUMNS)))
    learners: dict[str, Callable[[], object]] = {
        "RAFT": partial(
            raft, learned, start, RaftSettings(rounds=6, each=32, rule=StepRule(20, 1.0, 0.1)),
            tune=TreesOnTop(TreeSettings(trees=60, learning_rate=0.15, ridge=1.0)),
        ),
        "PPO": partial(_made_up_ppo, learned, start, quick=options.quick),
    }  # fmt: skip
    begun = _worth(fresh, start)
    for name, learn in learners.items():
        found = _learned(learn)
        if found is None:
            continue
        worth = _worth(fresh, found)
        yield Figure(
            f"made-up world, {name} from feedback alone, of the optimum", worth / BEST,
            goal=">= .95", holds=worth >= 0.95 * BEST, peers={"start": begun / BEST},
        )  # fmt: skip


def _learned(learn: Callable[[], object]) -> Scorer | None:
    try:
        scorer: Scorer = learn().scorer  # type: ignore[attr-defined]
    except DataError as missing:
        print(f"left out: {missing}", file=sys.stderr)
        return None
    return scorer


def _made_up_ppo(learned: Sequence[object], start: Scorer, *, quick: bool) -> object:
    from steersman_systems.evidence_selection.training.ppo import PpoSettings, ppo  # noqa: PLC0415 - an extra

    how = PpoSettings(
        rounds=12 if quick else 30, each=8, rule=StepRule(20, 1.0, 0.05), learning_rate=3e-3,
        kl_clone=0.0, kl_limit=50.0, kl_step=0.1, patience=10,
    )  # fmt: skip
    return ppo(learned, start, how)  # type: ignore[arg-type]


def _worth(tasks: Sequence[object], scorer: Scorer) -> float:
    found = walks(tasks, scorer, StepRule(20, 0.0, 0.0), each=1, seed=0)  # type: ignore[arg-type]
    return float(np.mean([one.reward for one in found]))


if __name__ == "__main__":
    command("evidence", run, doc=__doc__)
