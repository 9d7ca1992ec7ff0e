"""Embedder calls of the interrogator's learned policies, compared with its heuristic.

``--sets`` names ``synthetic`` (a world with known best questions), ``bfcl`` (requests to tools),
``clapnq``, ``scifact`` or ``metatool`` (texts of ``--data``), or any other folder of ``--data``
with questions or queries; default: the first two. All sets except ``synthetic`` need the extra
``rag`` and take about ten minutes of two cores each, less with cached embeddings. ``--json FILE``
also writes a page with plots, under the same name with the ending .html.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from benchmarks.interrogator_world import STEPS, visit
from benchmarks.report import Figure, command
from steersman.errors import DataError
from steersman_systems.interrogator.gate import load_switch
from steersman_systems.interrogator.page import write_page
from steersman_systems.interrogator.point import load_point
from steersman_systems.interrogator.questions import load_questions
from steersman_systems.interrogator.report import compile_report
from steersman_systems.interrogator.step_log import load_steps
from steersman_systems.interrogator.target_sets import SETS, is_set, load_targets, recorded_vectors
from steersman_systems.interrogator.trial import (
    BANDITS,
    CONTROL,
    Plan,
    cached_minilm,
    run_trial,
    work_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from benchmarks.report import Options
    from steersman_systems.interrogator.trial import Trial

TARGETS, SEARCHED = 300, 100
WORLDS = 30
LAST = 250
_DEFAULT = ("synthetic", "bfcl")
_CANDIDATE = "warm_online"
_SAME = "fewer_calls_to_same_similarity"
_HOLDS = {"passed": True, "failed": False, "unknown": None, "not_measured": None}


def run(options: Options) -> Iterator[Figure]:
    """Measure the chosen sets."""
    chosen = list(dict.fromkeys(options.sets or _DEFAULT))
    unknown = [name for name in chosen if name != "synthetic" and not is_set(name, options.data)]
    if unknown:
        known = ", ".join(("synthetic", *SETS))
        message = f"unknown set {', '.join(unknown)}; known are {known}, and folders of --data"
        raise DataError(message)
    if "synthetic" in chosen:
        yield from _synthetic(options)
    trials = {name: _targets(name, options) for name in chosen if name != "synthetic"}
    if trials:
        report = compile_report(trials, load_switch().gate, candidate=_CANDIDATE)
        for name, found in report["sets"].items():
            yield from _figures(name, found)
        _page(options, report, trials)


# -- synthetic worlds -----------------------------------------------------------------------------


def _synthetic(options: Options) -> Iterator[Figure]:
    """Yield figures of the shipped policy in worlds with one best question per region."""
    point = load_point(load_questions())
    # Not the worlds with which the prior was chosen (docs/adr/0018).
    worlds = [visit(point, 100 + seed) for seed in range(2 if options.quick else WORLDS)]
    quantile = float(stdtrit(len(worlds) - 1, 0.975))
    found = {
        name: np.array([world.last(name, LAST) for world in worlds])
        for name in ("LinTS", "greedy", "uniform")
    }
    about = f"synthetic: share of the oracle's gain, steps {STEPS - LAST:,} to {STEPS:,}"
    half = quantile * found["LinTS"].std(ddof=1) / np.sqrt(len(worlds))
    mean = float(found["LinTS"].mean())
    peers = {name: float(found[name].mean()) for name in ("greedy", "uniform")}
    yield Figure(about, mean, mean - half, mean + half, goal=">= .9", holds=mean - half >= 0.9,
                 peers=peers)  # fmt: skip
    for rival in peers:
        ahead = found["LinTS"] - found[rival]
        half = quantile * ahead.std(ddof=1) / np.sqrt(len(worlds))
        low = float(ahead.mean() - half)
        yield Figure(
            f"synthetic: LinTS over {rival}, share of the oracle's gain",
            float(ahead.mean()), low, float(ahead.mean() + half), goal="> 0", holds=low > 0,
        )  # fmt: skip


# -- targets --------------------------------------------------------------------------------------


def _targets(name: str, options: Options) -> Trial:
    """Return the A/B on held-out targets."""
    questions = load_questions()
    targets = load_targets(
        (name,),
        part="ab",
        most=12 if options.quick else TARGETS,
        data=options.data,
        embedder=cached_minilm(),
    )
    plan = Plan(
        targets=targets,
        questions=questions,
        point=load_point(questions),
        log=load_steps(questions),
        vectors=recorded_vectors(),
        seeds=(0,) if options.quick else (0, 1, 2),
        searched=min(len(targets), 2 if options.quick else SEARCHED),
        arms=(CONTROL, *BANDITS, "nearest"),
    )
    left = work_of(plan)

    def done(count: int) -> None:
        nonlocal left
        left -= count
        print(f"{name}: {left} investigations left", file=sys.stderr)

    return run_trial(plan, done=done)


def _page(options: Options, report: dict[str, Any], trials: dict[str, Trial]) -> None:
    if options.page is None:
        return
    try:
        write_page(options.page, report, trials, title="The interrogator")
    except DataError as missing:
        # A failed plot must not lose hours of figures.
        print(f"page not written: {missing}", file=sys.stderr)
    else:
        print(f"page: {options.page}", file=sys.stderr)


def _figures(name: str, found: dict[str, Any]) -> Iterator[Figure]:
    about = f"{name}, {found['targets']} targets"
    for arm, one in found["against_heuristic"].items():
        wanted = arm in {"warm", _CANDIDATE}
        for measure, says in (
            (_SAME, "fewer embedder calls to the same similarity than the heuristic"),
            ("cache_hit_rate", "cache hits above the heuristic's"),
            ("similarity", "similarity above the heuristic's"),
        ):
            goal = "> 0" if wanted and measure != "similarity" else None
            peers = {CONTROL: one["calls_of_heuristic"]} if measure == _SAME else {}
            yield Figure(
                f"{about}, {arm}: {says}",
                one[measure]["value"], one[measure]["low"], one[measure]["high"], goal=goal,
                holds=None if goal is None else one[measure]["low"] > 0, peers=peers,
            )  # fmt: skip
    for arm, one in found["arms"].items():
        for measure in ("similarity", "embedder_calls", "cache_hit_rate"):
            value = one[measure]
            yield Figure(f"{about}, {arm}: {measure.replace('_', ' ')}", value["value"],
                         value["low"], value["high"])  # fmt: skip
        for measure, says in (
            ("steps_to_090", "median questions to .90"),
            (
                "steps_to_share",
                f"median questions to 90 % of a search ({found['searched']} targets)",
            ),
        ):
            timed = one[measure]
            yield Figure(
                f"{about}, {arm}: {says}",
                float("nan") if timed["median"] is None else timed["median"],
                timed["low"], timed["high"], peers={"solved": timed["solved"]},
            )  # fmt: skip
    gate = found["gate"]
    for one in gate["measures"]:
        yield Figure(
            f"{about}, gate of {_CANDIDATE}: worse at most on {one['measure'].replace('_', ' ')}",
            float("nan") if one["worse_by"] is None else one["worse_by"],
            goal=f"<= {gate['tolerance']:g}", holds=_HOLDS[one["state"]],
        )  # fmt: skip


if __name__ == "__main__":
    command("interrogator", run, doc=__doc__)
