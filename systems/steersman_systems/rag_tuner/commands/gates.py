"""Hard gates of the tuner on a canary, as options of `steersman rollout run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from steersman.rollouts.error_sources import Source

_OPTIONS = (
    click.option(
        "--gates",
        "gated",
        multiple=True,
        envvar="STEERSMAN_GATES",
        show_envvar=True,
        metavar="SKILL/POINT",
        help="Decision point whose rollouts continue only after the hard gates pass for "
        "--gate-batches batches; repeatable. Use the same value on every controller.",
    ),
    click.option(
        "--gate-policy",
        envvar="STEERSMAN_GATE_POLICY",
        show_envvar=True,
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        help="Policy file of the gates.  [default: configs/rl/policy.defaults.yaml]",
    ),
    click.option(
        "--gate-queries",
        envvar="STEERSMAN_GATE_QUERIES",
        show_envvar=True,
        type=click.IntRange(10, 10_000),
        default=100,
        show_default=True,
        help="Decisions per batch.",
    ),
    click.option(
        "--gate-batches",
        envvar="STEERSMAN_GATE_BATCHES",
        show_envvar=True,
        type=click.IntRange(1, 100),
        default=3,
        show_default=True,
        help="Number of consecutive batches that must pass every gate.",
    ),
    click.option(
        "--gate-coverage",
        envvar="STEERSMAN_GATE_COVERAGE",
        show_envvar=True,
        type=click.FloatRange(0, 1, min_open=True),
        default=0.9,
        show_default=True,
        help="Minimum share of the decisions of a batch that report each gated number; lower it "
        "if a model judges only some answers.",
    ),
)


def gate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `gate_sources` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def gate_sources(options: Mapping[str, Any]) -> list[Source]:
    """Return the sources that hold rollouts until the gates pass; empty without `--gates`.

    Raises:
        BadParameter: a point is not written as SKILL/POINT.
        SpecError: the policy file is invalid.
    """
    points = [_point(one) for one in dict.fromkeys(options["gated"])]
    if not points:
        return []
    # Slow import of the tuner; few controllers need it.
    from steersman_systems.rag_tuner.canary import Gates, GateSource  # noqa: PLC0415
    from steersman_systems.rag_tuner.policy_config import load_policy_config  # noqa: PLC0415

    tuned = load_policy_config(options["gate_policy"])
    each = [
        GateSource(
            tuned,
            *point,
            queries=options["gate_queries"],
            batches=options["gate_batches"],
            coverage=options["gate_coverage"],
        )
        for point in points
    ]
    return [Gates(each)]


def _point(named: str) -> tuple[str, str]:
    skill, slash, point = named.partition("/")
    if not (skill and slash and point) or "/" in point:
        message = f"invalid decision point {named!r}: expected SKILL/POINT, such as rag/retrieval"
        raise click.BadParameter(message, param_hint="--gates")
    return skill, point
