"""Recall of query forms, quality of answers by a local model, and agreement of judges with people.

``--sets`` names hotpotqa (answers and retrieval), musique (retrieval), mtrag (query forms) or
judge_human (judges and the distilled reward model); all by default. It needs the extras ``rag`` and
``evidence``; answers also need ``local``. The answer model has 270 million parameters, runs on one
thread and is under the Gemma Terms of Use. 300 questions take about 40 minutes on an idle core.
Answers are cached, so a stopped run resumes where it stopped.

Answers from the five passages that a clone picks are compared with answers from the top five by
rank, with the same model, prompt and two sentences per passage. The selector was not trained on
these questions (5 folds). Model, prompt, number of sentences, and five picks without early stopping
were chosen on musique: by the answers from gold passages, and by how often the picked passages hold
an answer. Nothing was chosen on hotpotqa. Intervals are bootstrap intervals of paired differences,
with conversations as units.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.report import Figure, command
from steersman.db.judge_cache import JudgeCache
from steersman.platform.wheel_files import state_directory
from steersman.providers.judges.agreement import agreement
from steersman.providers.judges.judge import Judge
from steersman.providers.small_models import reading_model
from steersman_systems.evidence_selection.answer_model import Answerer
from steersman_systems.evidence_selection.contenders import BASELINE, CLONE, contenders
from steersman_systems.evidence_selection.evaluate import evaluate
from steersman_systems.evidence_selection.form_trial import compare_forms, tabulate
from steersman_systems.evidence_selection.judged_pairs import HumanPair, load_human_pairs, recorded
from steersman_systems.evidence_selection.prepared_set import prepare
from steersman_systems.evidence_selection.report import PUBLISHED
from steersman_systems.evidence_selection.reward_model import Preferred, distilled_report
from steersman_systems.interrogator.trial import cached_minilm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.report import Options
    from steersman.retrieval.dense import Embedder
    from steersman_systems.evidence_selection.evaluation import Evaluation
    from steersman_systems.evidence_selection.prepared_set import Prepared

_SETS = ("mtrag", "judge_human", "musique", "hotpotqa")
_JUDGES = ("GPT-4/Vanilla", "GPT-4/Swap", "ChatGPT/Vanilla", "LLaMA2/Vanilla", "Falcon/Vanilla")
_DISTILLED = ("gpt-3.5-turbo", "GPT-4/Vanilla")
_KEYWORDS_GOAL = 0.717
_ORIGIN = "the place that its README names"
_QUICK = 30


def run(options: Options) -> Iterator[Figure]:
    """Measure the chosen sets."""
    with ExitStack() as stack:
        embedder: Embedder | None = None
        for name in options.sets or _SETS:
            folder = options.folder(name, _ORIGIN)
            if name == "judge_human":
                yield from _judges(load_human_pairs(folder))
                continue
            embedder = embedder or stack.enter_context(cached_minilm())
            most = _QUICK if options.quick else None
            prepared = prepare(folder.name, folder.parent, embedder=embedder, most=most)
            yield from _retrieval(name, prepared)
            if prepared.conversational:
                yield from _forms(name, prepared, options)
            elif name == "hotpotqa":
                yield from _answers(name, prepared)


def _forms(name: str, prepared: Prepared, options: Options) -> Iterator[Figure]:
    table = tabulate(
        prepared.questions, prepared.collection, prepared.forms, groups=prepared.groups
    )
    found = compare_forms(table, orders=3 if options.quick else 20)
    about = f"{name} ({len(prepared.questions)} turns)"
    keywords = found.forms["keywords"]
    yield Figure(
        f"{about}, keyword rewrite: recall@5", keywords.value, keywords.low, keywords.high,
        goal=f">= {_KEYWORDS_GOAL:g}", holds=keywords.value >= _KEYWORDS_GOAL,
        peers={form: one.value for form, one in found.forms.items() if form != "keywords"},
    )  # fmt: skip
    yield Figure(
        f"{about}, learned form, held out: recall@5", found.learned.value, found.learned.low,
        found.learned.high, peers={"best of each turn, in hindsight": found.hindsight},
    )  # fmt: skip
    yield Figure(
        f"{about}, learned form over {found.best}: recall@5", found.ahead.value, found.ahead.low,
        found.ahead.high, goal=">= 0", holds=found.ahead.value >= 0,
    )  # fmt: skip
    costs = found.history_costs
    yield Figure(
        f"{about}, whole history costs beside the last turn: recall@5", costs.value, costs.low,
        costs.high, goal=".10 to .28", holds=0.10 <= costs.value <= 0.28,
    )  # fmt: skip


def _retrieval(name: str, prepared: Prepared) -> Iterator[Figure]:
    published = PUBLISHED.get(name, {})
    for place, count in enumerate((2, 5)):
        shares = [
            len({one.id for one in pool.candidates[:count]} & {*pool.question.gold})
            / len(pool.question.gold)
            for pool in prepared.pools
        ]
        peers = {f"{system}, published": values[place] / 100
                 for system, values in published.items()}  # fmt: skip
        yield Figure(f"{name}, retrieved: recall@{count}", float(np.mean(shares)), peers=peers)


# -- answers --------------------------------------------------------------------------------------


def _answers(name: str, prepared: Prepared) -> Iterator[Figure]:
    print(f"{name}: {2 * len(prepared.questions)} answers by a local model", file=sys.stderr)
    taking_part = contenders([BASELINE, CLONE])
    with reading_model() as backend:
        cache = JudgeCache(state_directory() / "answers.sqlite")
        judge = Judge(backend, cache=cache, timeout_s=600.0)
        evaluation = evaluate(
            name, prepared.pools, taking_part, groups=prepared.groups,
            answerer=Answerer(judge, continued=True),
        )  # fmt: skip
    about = f"{name} ({len(prepared.questions)} questions), selected over top-k"
    for measure, goal in (
        ("f1", "> 0"), ("em", None), ("answer_contained", None), ("attributed", "> 0"),
        ("citation_accuracy", "> 0"), ("faithful", None), ("redundancy", "< 0"),
        ("repetition", "< 0"), ("tokens", None), ("all_gold", None), ("holds_answer", None),
    ):  # fmt: skip
        yield _difference(about, evaluation, measure, goal)
    unanswered = sum(
        bool(row.answered and row.answered.failed) for rows in evaluation.rows.values()
        for row in rows
    )  # fmt: skip
    yield Figure(f"{name}: questions that were not answered", float(unanswered))


def _difference(about: str, evaluation: Evaluation, measure: str, goal: str | None) -> Figure:
    found = evaluation.difference(CLONE, BASELINE, measure)
    holds = None
    if goal is not None:
        holds = found.low > 0 if goal == "> 0" else found.high < 0
    own = {one: evaluation.mean(one, measure).value for one in (CLONE, BASELINE)}
    return Figure(
        f"{about}: {measure}", found.value, found.low, found.high, goal=goal, holds=holds,
        peers=own,
    )  # fmt: skip


# -- judges ---------------------------------------------------------------------------------------


def _judges(pairs: list[HumanPair]) -> Iterator[Figure]:
    for name in _JUDGES:
        verdicts = recorded(pairs, name)
        if not verdicts:
            continue
        found = agreement(verdicts)
        yield Figure(
            f"{name}, both orders agree: agreement with people", found.agree,
            found.agree_interval.low, found.agree_interval.high,
            peers={"kappa": found.kappa, "abstains": 1 - found.judged / found.pairs},
        )  # fmt: skip
        yield Figure(
            f"{name}: first shown beyond one half", found.first_shown - 0.5,
            found.position_bias.low, found.position_bias.high,
        )  # fmt: skip
        yield Figure(
            f"{name}: longer answer taken, beyond people", found.longer_judge - found.longer_human,
            found.length_bias.low, found.length_bias.high,
        )  # fmt: skip
    for name in _DISTILLED:
        yield from _distilled(name, [one for one in pairs if name in one.judges and one.human])


def _distilled(name: str, pairs: list[HumanPair]) -> Iterator[Figure]:
    if not pairs:
        return
    found = distilled_report(
        [_preferred(one, name) for one in pairs], [Preferred(one.pair, one.human) for one in pairs]
    )
    peers = {"length baseline": found.length.value}
    if found.judge is not None:
        peers["the judge itself"] = found.judge.value
    about = f"reward model out of {name} ({len(pairs)} pairs)"
    yield Figure(
        f"{about}: right by people", found.model.value, found.model.low, found.model.high,
        peers=peers,
    )  # fmt: skip
    yield Figure(f"{about}, over the length baseline", found.ahead.value, found.ahead.low,
                 found.ahead.high)  # fmt: skip


def _preferred(one: HumanPair, judge: str) -> Preferred | None:
    first, second = one.judges[judge]
    agreed = first if second is None or first == second else None
    return Preferred(one.pair, agreed) if agreed in {1, 2} else None


if __name__ == "__main__":
    command("evidence_answers", run, doc=__doc__)
