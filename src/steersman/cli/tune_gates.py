"""The tuner's hard gates on a canary: who `steersman rollout run` asks before it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.rollout import Source

_OPTIONS = (
    click.option(
        "--gates",
        "gated",
        multiple=True,
        envvar="STEERSMAN_GATES",
        show_envvar=True,
        metavar="SKILL/POINT",
        help="Point whose rollouts go on only after hard gates held for some batches; may be "
        "repeated. Every controller must be given the same.",
    ),
    click.option(
        "--gate-policy",
        envvar="STEERSMAN_GATE_POLICY",
        show_envvar=True,
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        help="Whose gates they are.  [default: configs/rl/policy.defaults.yaml]",
    ),
    click.option(
        "--gate-queries",
        envvar="STEERSMAN_GATE_QUERIES",
        show_envvar=True,
        type=click.IntRange(10, 10_000),
        default=100,
        show_default=True,
        help="Decisions of a batch.",
    ),
    click.option(
        "--gate-batches",
        envvar="STEERSMAN_GATE_BATCHES",
        show_envvar=True,
        type=click.IntRange(1, 100),
        default=3,
        show_default=True,
        help="Batches that must hold every gate, one after the other.",
    ),
    click.option(
        "--gate-coverage",
        envvar="STEERSMAN_GATE_COVERAGE",
        show_envvar=True,
        type=click.FloatRange(0, 1, min_open=True),
        default=0.9,
        show_default=True,
        help="Least share of a batch's decisions that report each gated number; less where a model "
        "judges some of the answers alone.",
    ),
)


def gate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that `gate_sources` reads.

    Args:
        command: takes ``gated`` and the ``gate_…`` options.

    Returns:
        The same command.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def gate_sources(
    gated: tuple[str, ...],
    gate_policy: Path | None,
    gate_queries: int,
    gate_batches: int,
    gate_coverage: float,
) -> list[Source]:
    """Return what holds rollouts by the tuner's gates; nothing where no point is named.

    Args:
        gated: SKILL/POINT of each.
        gate_policy: a policy file; None: the shipped one.
        gate_queries: decisions of a batch.
        gate_batches: that must hold.
        gate_coverage: the least share that must be known.

    Raises:
        BadParameter: a point that is not written as SKILL/POINT.
        SpecError: the policy file is wrong.
    """
    points = [_point(one) for one in dict.fromkeys(gated)]
    if not points:
        return []
    # Imports the whole tuner, which few controllers need.
    from steersman.systems.rag_tuner import load_policy_config  # noqa: PLC0415
    from steersman.systems.rag_tuner.canary import Gates, GateSource  # noqa: PLC0415

    tuned = load_policy_config(gate_policy)
    each = [
        GateSource(
            tuned, *point, queries=gate_queries, batches=gate_batches, coverage=gate_coverage
        )
        for point in points
    ]
    return [Gates(each)]


def _point(named: str) -> tuple[str, str]:
    skill, slash, point = named.partition("/")
    if not (skill and slash and point) or "/" in point:
        message = f"{named!r} is no decision point; write SKILL/POINT, such as rag/retrieval"
        raise click.BadParameter(message, param_hint="--gates")
    return skill, point
