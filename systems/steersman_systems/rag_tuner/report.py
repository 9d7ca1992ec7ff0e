"""Report of a run: verdict, configurations and episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman_systems.rag_tuner.ablation import ablations
from steersman_systems.rag_tuner.answerable import LEAST
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.frontier import places
from steersman_systems.rag_tuner.hygiene import leakage_said
from steersman_systems.rag_tuner.latencies import of_run
from steersman_systems.rag_tuner.logged import EvaluationLog
from steersman_systems.rag_tuner.recorded import Recorded
from steersman_systems.rag_tuner.sweep import sweep
from steersman_systems.rag_tuner.verdict import judged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from steersman_systems.rag_tuner.ablation import Ablation
    from steersman_systems.rag_tuner.frontier import FrontierPoint
    from steersman_systems.rag_tuner.latencies import Latencies
    from steersman_systems.rag_tuner.logged import World
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.reward import Batch
    from steersman_systems.rag_tuner.sweep import SweepResult
    from steersman_systems.rag_tuner.verdict import Verdict

_WEIGHTS = (0.0, 0.05, 0.2)


@dataclass(frozen=True)
class Report:
    """Report of a run.

    Args:
        collection: Name of the collection.
        about: Summary of the run in a sentence.
        verdict: Verdict of the held-out queries.
        places: Places of all configurations on these queries.
        marked: Label -> configuration.
        lines: Episodes of the run's folder.
        gate_ms: Gate on the 95th percentile of latency, in milliseconds.
        swept: Best configurations under other weights, on all queries.
        ablated: Effect of each part, on all queries.
        latencies: Latencies of every evaluation, and of the baseline on the same queries.
        canary: Latencies of a rollout's candidate, and of its control at the same time; None: no
            rollout.
        leakage: Sentence on questions that may be on both sides.
    """

    collection: str
    about: str
    verdict: Verdict
    places: tuple[FrontierPoint, ...]
    marked: Mapping[str, Configuration]
    lines: tuple[Mapping[str, Any], ...]
    gate_ms: float
    swept: tuple[SweepResult, ...]
    ablated: tuple[Ablation, ...]
    latencies: Latencies
    canary: Latencies | None
    leakage: str


def manual_baselines() -> dict[str, Configuration]:
    """Return common untuned configurations, by label."""
    return {
        "words, k=10": Configuration("bm25", k=10),
        "meaning, k=10": Configuration("dense", k=10),
        "ranks fused, k=10": Configuration("rrf", k=10),
    }


def compile_report(
    recorded: World,
    tuned: PolicyConfig,
    *,
    held_out: NDArray[np.intp],
    candidate: Configuration,
    baseline: Configuration,
    lines: Sequence[Mapping[str, Any]],
    canary: Latencies | None = None,
) -> Report:
    """Return the report of a run on a recording.

    Args:
        held_out: (n,) held-out queries, n ≥ 2.

    Raises:
        InputError: An evaluation is not recorded.
    """
    # With narrow bounds some manual baselines are not recorded.
    by_hand = {label: one for label, one in manual_baselines().items() if recorded.holds(one)}
    marked = {"tuned": candidate, "serves today": baseline, **by_hand}
    marked = {label: one.canonical() for label, one in marked.items()}
    every = dict.fromkeys((*tuned.space.all, *marked.values()))
    known = {one: recorded.seen(one, held_out) for one in every}
    least = LEAST if isinstance(recorded, EvaluationLog) else 1
    batches = {one: recorded.evaluate(one, of) for one, of in known.items() if len(of) >= least}
    everything = np.arange(len(recorded))
    swept = sweep(recorded, tuned, everything, baseline, gammas=_WEIGHTS, deltas=_WEIGHTS)
    return Report(
        collection=recorded.collection,
        about=(
            f"{len(lines)} evaluations chosen among {len(tuned.space.all):,} configurations; "
            f"{len(held_out)} of {len(recorded)} queries were held out and judge. "
            f"{_measured(recorded, batches)}"
        ),
        verdict=judged(recorded, tuned, held_out, candidate, baseline),
        places=tuple(places(list(batches.values()), tuned)),
        marked={label: one for label, one in marked.items() if one in batches},
        lines=tuple(lines),
        gate_ms=tuned.thresholds.p95_latency_ms,
        swept=tuple(swept),
        # They need all configurations on the same queries.
        ablated=()
        if isinstance(recorded, EvaluationLog)
        else tuple(ablations(recorded, tuned, everything)),
        latencies=of_run(lines, recorded, baseline),
        canary=canary,
        leakage=leakage_said(recorded.about),
    )


def _measured(world: World, batches: Mapping[Configuration, Batch]) -> str:
    if isinstance(world, Recorded):
        return "Quality is the mean of recall@k and nDCG@min(k, 10), by judgements; cost is k/16."
    return (
        f"All is replayed from a log of {len(world.cells):,} evaluations: quality is the mean of "
        f"{' and '.join(world.measures)} as it was logged, and {len(batches):,} configurations are "
        f"known on {LEAST} of these queries or more, each on its own; of the others it tells "
        "nothing."
    )
