"""Configurations that a log can evaluate well enough for tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from steersman.errors import InputError
from steersman_systems.rag_tuner.recorded import Recorded

if TYPE_CHECKING:
    from steersman_systems.rag_tuner.configuration import Configuration
    from steersman_systems.rag_tuner.logged import EvaluationLog, World
    from steersman_systems.rag_tuner.policy_config import PolicyConfig
    from steersman_systems.rag_tuner.slices import Split

LEAST = 10
"""Minimum number of evaluated questions of a configuration on each side of the split."""


@dataclass(frozen=True)
class LogCoverage:
    """Configurations that a log can evaluate.

    Args:
        tuned: Policy configuration with a space of these only.
        asked: Number of configurations in the policy's space.
        share: Probability that a uniform draw is one of these configurations.
        evaluations: Number in the log; None: every configuration was recorded on every question.
    """

    tuned: PolicyConfig
    asked: int
    share: float
    evaluations: int | None = None

    def __str__(self) -> str:
        count = len(self.tuned.space.all)
        if self.evaluations is None:
            return f"Every one of {count:,} configurations was recorded."
        return (
            f"A log of {self.evaluations:,} evaluations answers for {count:,} of {self.asked:,} "
            f"configurations, {self.share:.1%} of what an even draw asks for; it cannot tell of "
            "the others, one of which may be better."
        )


def answerable(
    world: World, tuned: PolicyConfig, split: Split, baseline: Configuration
) -> LogCoverage:
    """Return the configurations with enough evaluated questions on both sides of a split.

    Raises:
        InputError: An evaluation is not recorded; or the log has the baseline, or all but one
            configuration, on too few questions.
    """
    space = tuned.space
    if isinstance(world, Recorded):
        for one in (baseline, *space.all):
            world.check(one)
        return LogCoverage(tuned, len(space.all), 1.0)
    if _known(world, split, baseline, baseline) < LEAST:
        raise InputError(_unknown(world, split, baseline))
    held = [one for one in space.all if _known(world, split, baseline, one) >= LEAST]
    mass = float(sum(space.draw_probabilities[space.index[one]] for one in held))
    if len(held) < 2:
        raise InputError(
            f"the log covers {len(held)} of {len(space.all):,} configurations ({mass:.1%} of a "
            f"uniform draw); each needs {LEAST} tuning questions, and {LEAST} held-out questions "
            "shared with the baseline; log more evaluations, or fewer configurations on more "
            "questions each"
        )
    return LogCoverage(tuned.among(held), len(space.all), mass, len(world.cells))


def _known(world: EvaluationLog, split: Split, baseline: Configuration, one: Configuration) -> int:
    """Return the number of evaluated questions, on the side with fewer."""
    if not world.holds(one):
        return 0
    judged = world.seen(one, world.seen(baseline, split.held_out))
    return min(len(world.seen(one, split.tuning)), len(judged))


def _unknown(world: EvaluationLog, split: Split, baseline: Configuration) -> str:
    most = max(world.configurations, key=lambda one: _known(world, split, one, one))
    tuning, judges = (len(world.seen(baseline, side)) for side in (split.tuning, split.held_out))
    return (
        f"the log holds the baseline, {baseline}, on {tuning} questions that are tuned on and "
        f"{judges} that judge; {LEAST} of each are needed: name another as --baseline; the log "
        f"knows most of {most}"
    )
