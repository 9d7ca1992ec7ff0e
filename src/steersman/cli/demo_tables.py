"""The tables of ``steersman demo``: what is printed, and in which words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

_POLICY_LABELS = {
    "learned": "learned",
    "rules": "rules",
    "best_fixed": "best fixed",
    "oracle": "oracle",
}
_COLUMNS = (
    ("success", "success", ".3f"),
    ("tool right", "tool_precision", ".3f"),
    ("route right", "routing_precision", ".3f"),
    ("p50 ms", "p50_latency_ms", ",.0f"),
    ("p95 ms", "p95_latency_ms", ",.0f"),
    ("USD", "cost_usd", ".2f"),
    ("reward", "reward", ".4f"),
)


def print_report(console: Console, report: dict[str, Any], chart: str) -> None:
    """Print a report of the assistant, the learning curve in its middle."""
    console.print(
        f"\n[bold]{report['distinct_requests']:,} real requests, one catalogue of 729 tools, "
        f"{report['requests']:,} arrivals, {report['orders']} orders[/bold]"
    )
    _policies(console, report)
    _gains(console, report)
    console.print(
        "\nReward while learning: [green]learned[/green], [yellow]best fixed[/yellow], "
        "[blue]rules[/blue]; at the top the oracle"
    )
    console.print(chart, markup=False, highlight=False)
    _use(console, report)
    _shortfalls(console, report)
    _cache(console, report)
    _evidence(console, report)
    _targets(console, report)
    if "service" in report:
        _service(console, report)
    if "rollouts" in report:
        _rollouts(console, report)


def _policies(console: Console, report: dict[str, Any]) -> None:
    table = Table("policy set", box=None, pad_edge=False)
    for heading, _, _ in _COLUMNS:
        table.add_column(heading, justify="right")
    rows = {label: report["policies"][key] for key, label in _POLICY_LABELS.items()}
    if "beta_tools" in report["rivals"]:
        rows["Beta"] = report["rivals"]["beta_tools"]
    for label, figures in rows.items():
        cells = [
            format(figures[key] * (1000.0 if key == "cost_usd" else 1.0), form)
            for _, key, form in _COLUMNS
        ]
        table.add_row(label, *cells, style="bold" if label == "learned" else "")
    console.print(table)
    console.print(
        f"best fixed: lookup/route {report['policies']['best_fixed']['name']}, in hindsight; "
        "USD per 1,000 requests\n"
        "tool right: of the tools it picked itself, neither served from the cache nor escalated",
        highlight=False,
        soft_wrap=True,
    )
    if "Beta" in rows:
        console.print(
            "Beta: one belief for each intent and tool, on the first order of arrival alone",
            highlight=False,
        )


def _gains(console: Console, report: dict[str, Any]) -> None:
    console.print()
    for name, label in (("best_fixed", "the best fixed choice"), ("rules", "the rules")):
        gain = report[f"learned_minus_{name}"]
        console.print(f"learned over {label}: {_interval(gain)} reward (95 %)", highlight=False)
        same = gain["same_tools"]
        console.print(
            f"  tools drawn anew; for the same tools {same['low']:+.4f} .. {same['high']:+.4f}",
            highlight=False,
        )
    console.print(
        "An escalation is assumed, not measured. Learned over best fixed, if one is worth"
    )
    for row in report["sweep"]:
        kind = "asking the user" if row["free_and_instant"] else "a strong model"
        console.print(
            f"  {row['worth']:.1f}, {kind:<15} {_interval(row['learned_minus_best_fixed'])}"
            f"  {row['orders']} orders",
            highlight=False,
        )


def _use(console: Console, report: dict[str, Any]) -> None:
    table = Table("success where the tool is", box=None, pad_edge=False)
    for heading in ("learned", "best fixed", "rules", "requests"):
        table.add_column(heading, justify="right")
    labels = {
        "first_seen": "needed for the first time",
        "tail": "tail: needed at most 3 times",
        "middle": "middle",
        "head": "head: needed 20 times or more",
    }
    use = report["by_tool_use"]
    for bucket, label in labels.items():
        cells = [f"{use[key][bucket]['success']:.3f}" for key in ("learned", "best_fixed", "rules")]
        table.add_row(label, *cells, f"{use['learned'][bucket]['requests']:,.0f}")
    console.print(table)


def _shortfalls(console: Console, report: dict[str, Any]) -> None:
    """Say where learning lost, from the same numbers."""
    learned, fixed = (report["policies"][name] for name in ("learned", "best_fixed"))
    use = report["by_tool_use"]
    told = [
        f"{label}: {use['learned'][bucket]['success']:.3f}, "
        f"best fixed {use['best_fixed'][bucket]['success']:.3f}"
        for bucket, label in (
            ("first_seen", "tools needed for the first time"),
            ("tail", "tools of the tail"),
        )
        if use["learned"][bucket]["success"] < use["best_fixed"][bucket]["success"]
    ]
    if learned["p95_latency_ms"] > fixed["p95_latency_ms"]:
        told.append(
            f"p95 latency: {learned['p95_latency_ms']:,.0f} ms against "
            f"{fixed['p95_latency_ms']:,.0f}, as {learned['escalated']:.1%} of requests escalate"
        )
    if told:
        console.print("\nWhere learning does not help")
        for line in told:
            console.print(f"  {line}", highlight=False)


def _cache(console: Console, report: dict[str, Any]) -> None:
    cache = report["cache"]
    console.print(
        f"\ncache: {cache['hit_rate']:.1%} of requests served from it, "
        f"{cache['wrong_hit_rate']:.1%} of those wrongly\n"
        "  assumed: after each request it is known whether the default route was right, and right "
        "answers alone are stored",
        highlight=False,
        soft_wrap=True,
    )


def _evidence(console: Console, report: dict[str, Any]) -> None:
    console.print(
        "\nOff-policy evidence on routes, one log with floor .3, beside the truth it cannot see"
    )
    table = Table("policy", box=None, pad_edge=False)
    for heading in ("estimate", "99 % interval", "truth", "worth rows"):
        table.add_column(heading, justify="right")
    for row in report["ope"]:
        if row["estimate"] is None:
            table.add_row(row["policy"], "refused", "", f"{row['truth']:.3f}", row["reasons"][0])
            continue
        table.add_row(
            row["policy"],
            f"{row['estimate']:.3f}",
            f"{row['low']:.3f} .. {row['high']:.3f}",
            f"{row['truth']:.3f}",
            f"{row['effective_sample_size']:,.0f}",
        )
    console.print(table)
    refused = [row["policy"] for row in report["ope_declared_floor"] if row["reasons"]]
    if refused:
        console.print(
            f"A log under the declared floor of .02 is too thin: refused for {', '.join(refused)}",
            highlight=False,
        )


def _targets(console: Console, report: dict[str, Any]) -> None:
    table = Table("target of the requirements", box=None, pad_edge=False)
    for heading in ("goal", "reached", ""):
        table.add_column(heading, justify="right")
    for name, row in report["targets"].items():
        verdict = "[green]reached[/green]" if row["holds"] else "[yellow]not reached[/yellow]"
        table.add_row(name.replace("_", " "), row["goal"], f"{row['reached']:.4g}", verdict)
    console.print()
    console.print(table)


def _service(console: Console, report: dict[str, Any]) -> None:
    told, lag, took = report["service"], report["learn_lag_ms"], report["decide_ms"]
    console.print(
        f"\nThe first order over HTTP: {told['processes']} service processes asked in turn, one "
        f"learner, PostgreSQL; reward {told['reward']:.4f}, in one process "
        f"{told['in_process_reward']:.4f}",
        highlight=False,
    )
    table = Table("", box=None, pad_edge=False, show_header=False)
    table.add_column("", justify="right")
    table.add_column("")
    acknowledged = f"{told['decisions']:,} decisions and {told['events']:,} events"
    table.add_row("acknowledged", f"{report['acknowledged']:,}", acknowledged)
    verdict = "all of them" if report["stored"] == report["acknowledged"] else "NOT the same"
    table.add_row("stored", f"{report['stored']:,}", f"{verdict}, counted in the database")
    spread = f"{took['p50']:.1f} / {took['p99']:.1f} ms"
    table.add_row("a decision", spread, "p50 / p99, durable, as the client saw it")
    spread = f"{lag['p50']:.0f} / {lag['p99']:.0f} ms"
    told_of_lag = "p50 / p99, outcome received to both processes deciding from it"
    table.add_row("learning lag", spread, told_of_lag)
    console.print(table, highlight=False)
    console.print(
        f"The other {report['orders'] - 1} orders were replayed meanwhile by the same policies, "
        "without a service, on what it left of the processors.",
        highlight=False,
    )


def print_explanation(console: Console, result: dict[str, Any]) -> None:
    """Print every decision about one request."""
    console.print(f"\n[bold]request {result['request']}[/bold]")
    console.print(result["text"], markup=False, highlight=False)
    console.print(f"needs the tool {result['needs']}", highlight=False)
    for decision in result["decisions"]:
        console.print(f"\n[bold]{decision['point']}[/bold]")
        known = {k: v for k, v in decision["context"].items() if k != "text"}
        told = ", ".join(f"{name} {_short(value)}" for name, value in known.items())
        console.print(f"knew    {told}", highlight=False)
        table = Table("", "action", box=None, pad_edge=False)
        table.add_column("score", justify="right")
        table.add_column("probability", justify="right")
        for row in decision["actions"]:
            mark = "→" if row["chosen"] else ""
            score = "–" if row["score"] is None else f"{row['score']:.4f}"
            table.add_row(mark, row["action"], score, f"{row['probability']:.4f}")
        console.print(table)
        if decision["more_actions"]:
            console.print(f"and {decision['more_actions']} more", highlight=False)
        console.print(
            f"chose   {decision['chosen']} with propensity {decision['propensity']:.4f} "
            f"(uniform {decision['u']:.4f}); reward {decision['reward']:.3f}",
            highlight=False,
        )
        if "decision_id" in decision:
            same = "the same" if decision["recomputed_the_same"] else "NOT the same"
            console.print(
                f"state   {decision['snapshot']} and {decision['update_seq']:,} updates; "
                f"computed again from the log: {same} distribution",
                highlight=False,
            )
            console.print(f"row     {decision['decision_id']}", highlight=False)
    outcomes = ", ".join(f"{name} {_short(value)}" for name, value in result["outcomes"].items())
    console.print(f"\noutcome {outcomes}\nreward  {result['reward']:.3f}", highlight=False)


def _interval(gain: dict[str, float]) -> str:
    return f"{gain['value']:+.4f} ({gain['low']:+.4f} .. {gain['high']:+.4f})"


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _rollouts(console: Console, report: dict[str, Any]) -> None:
    bad = report["bad_candidate"]
    table = Table("rollout", "stages, seconds", "units", "ended", box=None, pad_edge=False)
    for rollout in (*report["rollouts"], bad["rollout"]):
        stages = ", ".join(
            f"{one['name']} {one['share']:.0%} {one['seconds']:g}" for one in rollout["stages"]
        )
        last = rollout["verdicts"][-1]
        ended = rollout["status"].replace("_", " ")
        table.add_row(rollout["snapshot"], stages, str(last["units"]), ended)
    console.print("\n[bold]Shipped: what the route learned, then something broken[/bold]")
    console.print(table, highlight=False)
    console.print(
        f"The broken version answered {bad['requests_harmed']} requests in "
        f"{bad['detected_after_seconds']:g} s; {bad['serving_snapshot_after']} serves.",
        highlight=False,
    )
