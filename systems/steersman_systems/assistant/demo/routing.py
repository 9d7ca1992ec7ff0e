"""Demo command ``steersman demo assistant --data DIR``: learning on public routing data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from steersman_systems.assistant.routers import KNOWN, USD_PRICE, load_router
from steersman_systems.assistant.routing_trial import learn_routing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress

    from steersman_systems.assistant.routers import RouterWorld
    from steersman_systems.assistant.routing_trial import RoutingResult


def chosen_sets(data: Path, sets: str) -> list[str]:
    """Return the names of the sets to learn on.

    Args:
        sets: Folder names, separated by commas; empty: the known folders that exist.

    Raises:
        click.UsageError: The directory is missing or holds no known set.
    """
    if not data.is_dir():
        raise click.UsageError(
            f"--data {data} is not a directory; give the directory that holds the sets"
        )
    named = [name for part in sets.split(",") if (name := part.strip())]
    found = named or [name for name in KNOWN if (data / name).is_dir()]
    if not found:
        message = f"{data} holds none of {', '.join(KNOWN)}; give a folder in one of their formats"
        raise click.UsageError(f"{message}: --sets NAME")
    return found


def learn_on(
    data: Path,
    names: Sequence[str],
    orders: int,
    bar: Progress,
    show: Callable[[RoutingResult, str], None],
) -> list[dict[str, Any]]:
    """Learn on each set and report the rewards.

    Raises:
        InputError: Unknown set.
        DataError: A set is missing or has another format.
    """
    worlds = [load_router(name, data) for name in names]  # fail before the minutes of learning
    report = []
    for world in worlds:
        count = 1 if world.has_one_right else orders
        task = bar.add_task(f"learning on {world.name}", total=count)
        routed = learn_routing(world, orders=orders, done=partial(bar.advance, task))
        unit = _unit(world)
        show(routed, unit)
        report.append(_plain(routed) | {"unit": unit})
    return report


def _unit(world: RouterWorld) -> str:
    if world.has_one_right:
        return "share of right choices"
    return "score" if world.costs_usd is None else f"score - {USD_PRICE:g} x USD"


def _plain(routed: RoutingResult) -> dict[str, Any]:
    value, low, high = routed.gain
    return {
        "name": routed.name,
        "requests": routed.requests,
        "choices": routed.choices,
        "orders": routed.orders,
        "algorithm": routed.algorithm,
        "warm_requests": routed.warm,
        "policies": {
            "learned": {"reward": routed.learned, "last_fifth": routed.late},
            "best_fixed": {"reward": routed.best_fixed, "choice": routed.best_fixed_choice},
            "oracle": {"reward": routed.oracle},
        },
        "learned_minus_best_fixed": {"value": value, "low": low, "high": high},
    }


def print_routed(console: Console, routed: RoutingResult, unit: str) -> None:
    """Print the rewards on a set; ``unit`` is the unit of the reward."""
    orders = "one order" if routed.orders == 1 else f"mean of {routed.orders} orders"
    for line in (
        f"\n{routed.name}: {routed.requests:,} requests, {routed.choices} choices",
        f"policy: {routed.algorithm}; {orders} of arrival; reward: {unit}",
        _beforehand(routed),
    ):
        console.print(line, highlight=False, markup=False)
    table = Table("policy", "reward", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    table.add_row("learned, all requests", f"{routed.learned:.4f}")
    table.add_row("learned, last fifth", f"{routed.late:.4f}")
    table.add_row(f"best fixed choice: {routed.best_fixed_choice}", f"{routed.best_fixed:.4f}")
    table.add_row("oracle (upper bound)", f"{routed.oracle:.4f}")
    value, low, high = routed.gain
    table.add_row("learned minus best fixed choice", f"{value:+.4f}")
    console.print(table, highlight=False, markup=False)
    verdict = "The interval contains 0: no difference is shown." if low <= 0.0 <= high else ""
    interval = f"95 % confidence interval of the difference: {low:+.4f} to {high:+.4f}."
    console.print(f"{interval} {verdict}".rstrip(), highlight=False, markup=False)


def _beforehand(routed: RoutingResult) -> str:
    if not routed.warm:
        return "no warm start; the best fixed choice is chosen in hindsight on the same requests"
    return (
        f"warm start and best fixed choice: from {routed.warm:,} other requests with the scores of "
        "all choices"
    )
