"""Asks a running service which engine shall answer, and reports what a made-up world says of it.

In this world `planner` is right about the weather in nine of ten cases and `micro` in six; about
anything else `micro` is right in nine of ten as well. `deep` is always right, slow and dear. The
service knows none of this: it learns it from what is reported.

usage: STEERSMAN_URL=... STEERSMAN_API_KEY=... python examples/simulate_requests.py [REQUESTS]
"""
# ruff: noqa: INP001 (a script, no package)

from __future__ import annotations

import random
from collections import Counter

import click

from steersman.client import Client, ClientError

RIGHT = {
    "weather": {"micro": 0.6, "planner": 0.9, "deep": 1.0},
    "timer": {"micro": 0.9, "planner": 0.9, "deep": 1.0},
}
LATENCY_MS = {"micro": 20, "planner": 250, "deep": 1900}
COST_USD = {"micro": 0.0, "planner": 0.0005, "deep": 0.01}


@click.command
@click.argument("requests", type=click.IntRange(min=1), default=400)
def main(requests: int) -> None:
    """Ask and report, one request after the other; print which engines were chosen."""
    try:
        _ask_and_report(requests)
    except ClientError as refused:
        raise click.ClickException(str(refused)) from refused


def _ask_and_report(requests: int) -> None:
    rng = random.Random(7)
    chosen: dict[tuple[str, str], Counter[str]] = {}
    with Client() as client:
        for number in range(requests):
            intent = rng.choice(list(RIGHT))
            decision = client.decide(
                "assistant", "route", {"intent": intent, "text_len": 40}, default="micro"
            )
            right = float(rng.random() < RIGHT[intent][decision.action])
            client.task_result(
                decision,
                outcomes={
                    "success": right,
                    "tool_ok": right,
                    "latency_ms": LATENCY_MS[decision.action],
                    "cost_usd": COST_USD[decision.action],
                },
            )
            half = "first half" if number < requests / 2 else "second half"
            chosen.setdefault((intent, half), Counter())[decision.action] += 1
        left = client.flush(10)
    for (intent, half), counts in sorted(chosen.items()):
        told = ", ".join(f"{name} {counts[name]:>3}" for name in LATENCY_MS)
        click.echo(f"{intent:<8} {half:<12} {told}")
    click.echo(f"events that wait for the service: {left}")


if __name__ == "__main__":
    main()
