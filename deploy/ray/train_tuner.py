"""Train the tuning policy that moves what runs, by RLlib, as a job of a Ray cluster.

Started again with the same --out, it goes on after the last update that is in its checkpoint.
"""  # noqa: INP001 (a program, in no package)

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np

from lab.made_up_collections import made_up
from steersman.errors import SteersmanError
from steersman_systems.rag_tuner.environment import TuningEnvironment
from steersman_systems.rag_tuner.policy_config import load_policy_config
from steersman_systems.rag_tuner.recorded import load_recorded
from steersman_systems.rag_tuner.strategies.ppo_on_ray import train_on_ray

_SHARE = 5
"""Of so many episodes one is of a recorded collection: with fewer made-up ones the policy learns
those by heart."""

_file = click.Path(path_type=Path, dir_okay=False)


@click.command(help=__doc__)
@click.argument("recordings", nargs=-1, type=_file)
@click.option("--out", type=_file, required=True, help="The policy to write.")
@click.option("--updates", type=click.IntRange(1), default=150, show_default=True)
@click.option("--episodes", type=click.IntRange(1), default=24, show_default=True,
              help="Of an update.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1, 500), default=100, show_default=True,
              help="Queries of a step.")  # fmt: skip
@click.option("--horizon", type=click.IntRange(2), default=32, show_default=True,
              help="Steps of an episode.")  # fmt: skip
@click.option("--runners", type=click.IntRange(1), default=2, show_default=True,
              help="That play, a processor each.")  # fmt: skip
@click.option("--made-up", "made", type=click.IntRange(0), default=40, show_default=True,
              help="Collections that there are not, to train on beside RECORDINGS.")  # fmt: skip
@click.option("--policy", type=_file, default=None, help="Bounds, gates and weights.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--ray", "address", default="auto", show_default=True, help="Of the cluster.")
def main(
    recordings: tuple[Path, ...], out: Path, updates: int, episodes: int, batch: int, horizon: int,
    runners: int, made: int, policy: Path | None, seed: int, address: str,
) -> None:  # fmt: skip
    """Train, and say after each update how it went."""
    tuned, rng = load_policy_config(policy), np.random.default_rng([seed, 3])
    known = [load_recorded(file) for file in recordings]
    unknown = [made_up(tuned.space, rng, queries=max(batch, 80)) for _ in range(made)]
    often = max(made // (_SHARE - 1) // max(len(known), 1), 1)
    environment = TuningEnvironment([*known * often, *unknown], tuned, batch=batch, horizon=horizon)
    trained = train_on_ray(
        environment, address=address, updates=updates, episodes=episodes, runners=runners,
        seed=seed, checkpoint=out.with_suffix(".checkpoint"),
        done=lambda one: click.echo(json.dumps(asdict(one))),
    )  # fmt: skip
    trained.save(out)
    click.echo(json.dumps({"saved": str(out)}))


if __name__ == "__main__":
    try:
        main()
    except SteersmanError as error:
        raise SystemExit(str(error)) from None
