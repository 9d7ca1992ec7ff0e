"""``steersman demo assistant --data DIR``: the same policies on other people's routing data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from steersman.systems.assistant.routers import KNOWN, USD_PRICE, load_router
from steersman.systems.assistant.routing import learn_routing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress

    from steersman.systems.assistant.routers import RouterWorld
    from steersman.systems.assistant.routing import Routed


def chosen_sets(data: Path, sets: str) -> list[str]:
    """Return the names of the sets to learn on.

    Args:
        data: directory of folders.
        sets: their names, divided by commas; empty: the known ones that are there.

    Raises:
        click.UsageError: no such directory; or none is named, and no known one is there.
    """
    if not data.is_dir():
        raise click.UsageError(f"--data {data} is no directory; name the one that holds the sets")
    named = [name for part in sets.split(",") if (name := part.strip())]
    found = named or [name for name in KNOWN if (data / name).is_dir()]
    if not found:
        message = f"{data} holds none of {', '.join(KNOWN)}; name a folder in the format of one"
        raise click.UsageError(f"{message} of them: --sets NAME")
    return found


def learn_on(
    data: Path,
    names: Sequence[str],
    orders: int,
    bar: Progress,
    show: Callable[[Routed, str], None],
) -> list[dict[str, Any]]:
    """Learn on sets, one after the other.

    Args:
        data: directory of their folders.
        names: of the folders.
        orders: of arrival.
        bar: where progress is shown.
        show: called with what was earned on each set, and the reward's unit.

    Returns:
        The same as plain values.

    Raises:
        InputError: an unknown name.
        DataError: a set is missing or of another format.
    """
    worlds = [load_router(name, data) for name in names]  # a wrong one is told before any minute
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


def _plain(routed: Routed) -> dict[str, Any]:
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


def print_routed(console: Console, routed: Routed, unit: str) -> None:
    """Print what was earned on a set.

    Args:
        console: where to.
        routed: what was earned.
        unit: of the reward.
    """
    orders = "one order" if routed.orders == 1 else f"mean of {routed.orders} orders"
    for line in (
        f"\n{routed.name}: {routed.requests:,} requests, {routed.choices} choices",
        f"{routed.algorithm}, {orders} of arrival; reward: {unit}",
        _beforehand(routed),
    ):
        console.print(line, highlight=False, markup=False)
    table = Table("policy set", "reward", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    table.add_row("learned, while learning", f"{routed.learned:.4f}")
    table.add_row("  its last fifth", f"{routed.late:.4f}")
    table.add_row(f"best fixed: {routed.best_fixed_choice}", f"{routed.best_fixed:.4f}")
    table.add_row("oracle", f"{routed.oracle:.4f}")
    value, low, high = routed.gain
    table.add_row("learned - best fixed", f"{value:+.4f} [{low:+.4f}, {high:+.4f}]")
    console.print(table, highlight=False, markup=False)


def _beforehand(routed: Routed) -> str:
    if not routed.warm:
        return "nothing was learned beforehand; best fixed: in hindsight, on these same requests"
    return (
        f"learned beforehand, and best fixed found: on {routed.warm:,} other requests, from the "
        "scores of all choices"
    )
