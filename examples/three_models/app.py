"""A support application that lets Steersman choose one of three simulated models.

usage: STEERSMAN_URL=... STEERSMAN_API_KEY=... python examples/three_models/app.py [QUESTIONS]
"""
# ruff: noqa: INP001 (a script, not a package)

from __future__ import annotations

import random
from collections import Counter

import click

from steersman.client import Client, ClientError

# Simulated: the share of questions each model solves, by topic. The service does not know these.
SOLVED = {
    "small": {"account": 0.9, "billing": 0.7, "code": 0.3},
    "medium": {"account": 0.9, "billing": 0.9, "code": 0.6},
    "large": {"account": 0.95, "billing": 0.9, "code": 0.95},
}
LATENCY_MS = {"small": 300, "medium": 900, "large": 2000}
COST_USD = {"small": 0.0005, "medium": 0.004, "large": 0.015}
TOPICS = ("account", "billing", "code")


@click.command
@click.argument("questions", type=click.IntRange(min=1), default=1500)
@click.option("--seed", default=7, help="Random seed.  [default: 7]")
def main(questions: int, seed: int) -> None:
    """Answer simulated questions; print how often each model was chosen, by topic."""
    try:
        _answer_all(questions, random.Random(seed))
    except ClientError as error:
        raise click.ClickException(str(error)) from error


def _answer_all(questions: int, rng: random.Random) -> None:
    chosen = {(half, topic): Counter() for half in ("first", "second") for topic in TOPICS}
    with Client() as client:
        for number in range(questions):
            topic, words = rng.choice(TOPICS), rng.randint(5, 120)
            # 1. Ask which model to use. 2. Call it. 3. Report what happened.
            decision = client.decide(
                "support",
                "model",
                {"topic": topic, "words": words},
                unit=f"user-{rng.randrange(500)}",
                default="medium",
            )
            model = decision.action
            solved = rng.random() < SOLVED[model][topic]  # instead of calling a real model
            outcomes = {
                "solved": float(solved),
                "latency_ms": LATENCY_MS[model] * rng.uniform(0.8, 1.2),
                "cost_usd": COST_USD[model],
            }
            client.submit_feedback(decision, outcomes=outcomes)
            half = "first" if number < questions / 2 else "second"
            chosen[half, topic][model] += 1
        waiting = client.flush(10)
    for (half, topic), counts in chosen.items():
        shares = "  ".join(f"{model} {counts[model]:>3}" for model in SOLVED)
        click.echo(f"{half:<6} half  {topic:<8} {shares}")
    click.echo(f"events waiting for delivery: {waiting}")


if __name__ == "__main__":
    main()
