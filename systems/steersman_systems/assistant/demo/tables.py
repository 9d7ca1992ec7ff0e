"""The printed report of ``steersman demo assistant``: tables, notes and the result in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

_LABELS = {
    "learned": "learned",
    "best_fixed": "best fixed choice",
    "rules": "rules",
    "oracle": "oracle (upper bound)",
}
_COLUMNS = (
    ("success", "success", ".3f"),
    ("tool\nright", "tool_precision", ".3f"),
    ("route\nright", "routing_precision", ".3f"),
    ("p50 ms", "p50_latency_ms", ",.0f"),
    ("p95 ms", "p95_latency_ms", ",.0f"),
    ("USD", "cost_usd", ".2f"),
    ("reward", "reward", ".4f"),
)
_USE = {
    "first_seen": "first use of the tool",
    "tail": "tool needed at most 3 times",
    "middle": "tool needed 4 to 19 times",
    "head": "tool needed 20 times or more",
}
_TARGETS = {
    "tool_precision": ("tool precision", ".3f"),
    "p95_latency_ms": ("p95 latency, ms", ",.0f"),
    "routing_precision": ("routing precision", ".3f"),
    "hit_rate": ("cache hit rate", ".3f"),
}
_POINTS = 1_000.0
"""Requests that a gain is stated for: people compare "43 in 1,000" more easily than ".0428"."""


def print_report(console: Console, report: dict[str, Any], chart: str) -> None:
    """Print the report of the assistant; the last section states the gain."""
    _heading(
        console,
        f"Data: {report['distinct_requests']:,} real requests, 729 tools; {report['orders']} "
        f"orders of {report['requests']:,} arrivals",
    )
    _policies(console, report)
    _heading(console, "Reward while learning")
    names = sorted(_LABELS, key=lambda name: -report["policies"][name]["reward"])
    _text(console, f"Curves, highest mean first: {', '.join(_LABELS[name] for name in names)}.")
    console.print(chart, markup=False, highlight=False)
    _use(console, report)
    _cache(console, report)
    _evidence(console, report)
    _targets(console, report)
    if "service" in report:
        _service(console, report)
    if "rollouts" in report:
        _rollouts(console, report)
    _sweep(console, report)
    _result(console, report)


def _heading(console: Console, title: str) -> None:
    console.print(f"\n[bold]{title}[/bold]", highlight=False)


def _text(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False)


def _notes(console: Console, *rows: tuple[str, str]) -> None:
    """Print terms and what they mean, with hanging indentation."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    console.print(grid, highlight=False, markup=False)


def _policies(console: Console, report: dict[str, Any]) -> None:
    table = Table("policy", box=None, pad_edge=False)
    for heading, _, _ in _COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    rows = {label: report["policies"][key] for key, label in _LABELS.items()}
    if "beta_tools" in report["rivals"]:
        rows["Beta Thompson"] = report["rivals"]["beta_tools"]
    for label, figures in rows.items():
        cells = [
            format(figures[key] * (_POINTS if key == "cost_usd" else 1.0), form)
            for _, key, form in _COLUMNS
        ]
        table.add_row(label, *cells, style="bold" if label == "learned" else "")
    console.print(table)
    lookup, route = report["policies"]["best_fixed"]["name"].split("/")
    _notes(
        console,
        (
            "best fixed choice",
            f"cache {lookup} and route {route} for every request; chosen in hindsight",
        ),
        ("rules", "the fallback rules of configs/assistant"),
        ("oracle", "knows the right answer to each request"),
        *(
            [("Beta Thompson", "one Beta model for each intent and tool; first order only")]
            if "Beta Thompson" in rows
            else []
        ),
        ("tool right", "share of right tools; without cache hits and escalations"),
        ("route right", "share of requests on the cheapest route that answers them"),
        ("USD", "cost of 1,000 requests"),
        ("reward", "0 to 1: rises with right answers, falls with latency and cost"),
    )


def _use(console: Console, report: dict[str, Any]) -> None:
    """Print success by how often a tool is needed, and where learning loses."""
    _heading(console, "Success by how often the needed tool is used")
    table = Table("", box=None, pad_edge=False)
    for heading in ("learned", "best fixed choice", "rules", "requests"):
        table.add_column(heading, justify="right")
    use = report["by_tool_use"]
    for bucket, label in _USE.items():
        cells = [f"{use[key][bucket]['success']:.3f}" for key in ("learned", "best_fixed", "rules")]
        table.add_row(label, *cells, f"{use['learned'][bucket]['requests']:,.0f}")
    console.print(table)
    worse = [
        f"{_USE[bucket]} ({use['learned'][bucket]['success']:.3f} against "
        f"{use['best_fixed'][bucket]['success']:.3f})"
        for bucket in _USE
        if use["learned"][bucket]["success"] < use["best_fixed"][bucket]["success"]
    ]
    if worse:
        _text(console, f"Learning does not help here: {', '.join(worse)}.")


def _cache(console: Console, report: dict[str, Any]) -> None:
    cache = report["cache"]
    _heading(console, "Cache")
    _text(
        console,
        f"The cache answers {cache['hit_rate']:.1%} of the requests; {cache['wrong_hit_rate']:.1%} "
        "of these answers are wrong.\n"
        "Assumption: feedback after each request says whether the default route was right. "
        "Only right answers are stored.",
    )


def _evidence(console: Console, report: dict[str, Any]) -> None:
    _heading(console, "Off-policy evaluation of the route, from one log with floor 0.3")
    table = Table("policy", box=None, pad_edge=False)
    for heading in ("estimate", "99 % interval", "true value", "effective sample size"):
        table.add_column(heading, justify="right")
    refused = {row["policy"]: row["reasons"] for row in report["ope"] if row["estimate"] is None}
    for row in report["ope"]:
        none = row["estimate"] is None
        table.add_row(
            row["policy"],
            "none" if none else f"{row['estimate']:.3f}",
            "" if none else f"{row['low']:.3f} to {row['high']:.3f}",
            f"{row['truth']:.3f}",
            f"{row['effective_sample_size']:,.0f}",
        )
    console.print(table)
    _text(console, "Only the demo knows the true value: it can replay every choice.")
    for policy, reasons in refused.items():
        _text(console, f"No estimate for {policy}: {'; '.join(reasons)}")
    thin = [row["policy"] for row in report["ope_declared_floor"] if row["reasons"]]
    if thin:
        _text(
            console,
            "The declared floor of 0.02 gives a log with too little data. "
            f"With it, these policies have no estimate: {', '.join(thin)}.",
        )


def _targets(console: Console, report: dict[str, Any]) -> None:
    _heading(console, "Targets of requirement 004 (assistant)")
    table = Table("target", box=None, pad_edge=False)
    for heading in ("goal", "measured", ""):
        table.add_column(heading, justify="right")
    for name, row in report["targets"].items():
        label, form = _TARGETS[name]
        verdict = "[green]reached[/green]" if row["holds"] else "[yellow]not reached[/yellow]"
        table.add_row(label, row["goal"], format(row["reached"], form), verdict)
    console.print(table)
    reasons = _reasons(report)
    missed = [name for name, row in report["targets"].items() if not row["holds"]]
    if missed:
        _text(
            console,
            "Requirement 004 sets these targets for its own traffic. Not reached on this data, "
            "because:",
        )
        _notes(console, *((_TARGETS[name][0], reasons[name]) for name in missed))


def _reasons(report: dict[str, Any]) -> dict[str, str]:
    """Return why this data does not allow each target."""
    learned, use = report["policies"]["learned"], report["by_tool_use"]["learned"]
    deep, requests = report["deep"], report["requests"]
    repeated = 1.0 - report["distinct_requests"] / requests
    return {
        "tool_precision": (
            "Each request chooses among 729 tools. A tool without history is chosen by its text "
            f"alone: success is {use['first_seen']['success']:.2f} at first use and "
            f"{use['head']['success']:.2f} for tools needed 20 times or more."
        ),
        "p95_latency_ms": (
            f"{learned['escalated']:.1%} of the requests escalate to a strong model, which is "
            f"assumed to take {deep['low_ms'] / 1000:g} to {deep['high_ms'] / 1000:g} s."
        ),
        "routing_precision": (
            "Routes micro and planner cost the same here. The reward does not separate them."
        ),
        "hit_rate": (
            f"Only {repeated:.0%} of the arrivals repeat an earlier request, and wrong answers "
            "are not stored."
        ),
    }


def _service(console: Console, report: dict[str, Any]) -> None:
    service, lag, took = report["service"], report["learn_lag_ms"], report["decide_ms"]
    _heading(
        console,
        f"First order over HTTP: {service['processes']} service processes, 1 learner, PostgreSQL",
    )
    table = Table("", box=None, pad_edge=False, show_header=False)
    table.add_column("", justify="right")
    table.add_column("")
    acknowledged = f"{service['decisions']:,} decisions and {service['events']:,} events"
    table.add_row("acknowledged", f"{report['acknowledged']:,}", acknowledged)
    equal = report["stored"] == report["acknowledged"]
    verdict = "nothing is lost" if equal else "NOT equal to acknowledged"
    table.add_row("stored", f"{report['stored']:,}", f"rows in the database; {verdict}")
    spread = f"{took['p50']:.1f} / {took['p99']:.1f} ms"
    table.add_row("decision latency", spread, "p50 / p99 at the client, with the commit")
    spread = f"{lag['p50']:.0f} / {lag['p99']:.0f} ms"
    table.add_row("learning lag", spread, "p50 / p99, outcome received to used by both")
    compared = f"{service['in_process_reward']:.4f} without a service"
    table.add_row("reward", f"{service['reward']:.4f}", compared)
    console.print(table, highlight=False)
    _text(
        console,
        f"The other {report['orders'] - 1} orders run at the same time without a service, with "
        "the same policies.",
    )


def print_explanation(console: Console, result: dict[str, Any]) -> None:
    """Print every decision about one request."""
    console.print(f"\n[bold]request {result['request']}[/bold]")
    console.print(result["text"], markup=False, highlight=False)
    console.print(f"right tool: {result['needs']}", highlight=False)
    for decision in result["decisions"]:
        console.print(f"\n[bold]{decision['point']}[/bold]")
        known = {k: v for k, v in decision["context"].items() if k != "text"}
        fields = ", ".join(f"{name} {_short(value)}" for name, value in known.items())
        console.print(f"context   {fields}", highlight=False)
        table = Table("", "action", box=None, pad_edge=False)
        table.add_column("score", justify="right")
        table.add_column("probability", justify="right")
        for row in decision["actions"]:
            mark = "→" if row["chosen"] else ""
            score = "–" if row["score"] is None else f"{row['score']:.4f}"
            table.add_row(mark, row["action"], score, f"{row['probability']:.4f}")
        console.print(table)
        if decision["more_actions"]:
            console.print(f"and {decision['more_actions']} more actions", highlight=False)
        console.print(
            f"chosen    {decision['chosen']}, propensity {decision['propensity']:.4f}, "
            f"random number {decision['u']:.4f}, reward {decision['reward']:.3f}",
            highlight=False,
        )
        if "decision_id" in decision:
            same = "equal" if decision["recomputed_the_same"] else "NOT equal"
            console.print(
                f"state     snapshot {decision['snapshot']}, {decision['update_seq']:,} updates; "
                f"distribution recomputed from the log: {same}",
                highlight=False,
            )
            console.print(f"decision  {decision['decision_id']}", highlight=False)
    outcomes = ", ".join(f"{name} {_short(value)}" for name, value in result["outcomes"].items())
    console.print(f"\noutcomes  {outcomes}\nreward    {result['reward']:.3f}", highlight=False)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _rollouts(console: Console, report: dict[str, Any]) -> None:
    bad = report["bad_candidate"]
    _heading(console, "Rollouts: the learned version, then a broken version")
    table = Table("version", "stage", box=None, pad_edge=False)
    for heading in ("share", "seconds", "candidate units", "result"):
        table.add_column(heading, justify="right")
    for rollout in (*report["rollouts"], bad["rollout"]):
        _stages(table, rollout)
    console.print(table, highlight=False)
    reasons = bad["rollout"]["verdicts"][-1]["reasons"]
    answered = f"{bad['requests_harmed']} requests in {bad['detected_after_seconds']:g} s"
    ended = bad["status"].replace("_", " ")
    _notes(
        console,
        *((one["snapshot"], "what the route learned") for one in report["rollouts"]),
        (
            bad["snapshot"],
            f"deliberately broken: sends every request to route micro; {ended} after {answered}",
        ),
        *(("" if place else "reason", reason) for place, reason in enumerate(reasons)),
        ("live policy", bad["serving_snapshot_after"]),
    )


def _stages(table: Table, rollout: dict[str, Any]) -> None:
    """Add a row for each stage that a rollout reached."""
    verdicts = rollout["verdicts"]
    units = [one["units"] for one in verdicts if one["acted"] == "next_stage"]
    units.append(verdicts[-1]["units"])
    last = len(rollout["stages"]) - 1
    for place, (stage, closed) in enumerate(zip(rollout["stages"], units, strict=True)):
        table.add_row(
            "" if place else rollout["snapshot"],
            stage["name"],
            f"{stage['share']:.0%}",
            f"{stage['seconds']:.1f}",
            f"{closed:,}" if stage["share"] else "–",
            rollout["status"].replace("_", " ") if place == last else "passed",
        )


def _sweep(console: Console, report: dict[str, Any]) -> None:
    _heading(console, "Gain per 1,000 requests over the best fixed choice, by assumption")
    _text(
        console,
        "Escalations are simulated, so the gain depends on the assumed share of right answers. "
        "All other figures of this report use the first row.",
    )
    table = Table("escalation to", box=None, pad_edge=False)
    for heading in ("right answers", "gain in reward", "95 % interval", "orders"):
        table.add_column(heading, justify="right")
    for row in report["sweep"]:
        gain = row["learned_minus_best_fixed"]
        table.add_row(
            "the user" if row["free_and_instant"] else "a strong model",
            f"{row['worth']:.0%}",
            f"{_POINTS * gain['value']:+.0f}",
            _interval(gain, "+"),
            str(row["orders"]),
        )
    console.print(table)


def _result(console: Console, report: dict[str, Any]) -> None:
    """Print the gain in words, with what it costs."""
    best, rules = report["learned_minus_best_fixed"], report["learned_minus_rules"]
    learned, fixed = (report["policies"][name] for name in ("learned", "best_fixed"))
    _heading(console, "Result")
    _text(
        console,
        f"Per 1,000 requests (at most 1,000 points of reward), the learned policies earn "
        f"{_gain(best)} than the best fixed choice (95 % confidence interval {_interval(best)}) "
        f"and {_gain(rules)} than the rules ({_interval(rules)}).",
    )
    if best["low"] <= 0.0 <= best["high"]:
        _text(
            console, "The interval contains 0: this run shows no gain over the best fixed choice."
        )
    counts = {name: _POINTS * report["policies"][name]["success"] for name in _LABELS}
    _text(
        console,
        f"They answer {counts['learned']:.0f} of 1,000 requests correctly (best fixed choice "
        f"{counts['best_fixed']:.0f}, rules {counts['rules']:.0f}, oracle (upper bound) "
        f"{counts['oracle']:.0f}). {_POINTS * learned['escalated']:.0f} of 1,000 requests escalate "
        "to a simulated strong model.",
    )
    _text(
        console,
        f"This costs {_POINTS * learned['cost_usd']:.2f} USD per 1,000 requests and a p95 latency "
        f"of {learned['p95_latency_ms']:,.0f} ms; best fixed choice "
        f"{_POINTS * fixed['cost_usd']:.2f} USD and {fixed['p95_latency_ms']:,.0f} ms.",
    )
    _text(
        console,
        "The intervals hold for other tools of this kind. For other requests of the same tools "
        f"they are {_interval(best['same_tools'])} and {_interval(rules['same_tools'])}.",
    )


def _gain(gain: dict[str, float]) -> str:
    return f"{abs(_POINTS * gain['value']):.0f} points {'more' if gain['value'] >= 0 else 'less'}"


def _interval(gain: dict[str, float], sign: str = "") -> str:
    return f"{_POINTS * gain['low']:{sign}.0f} to {_POINTS * gain['high']:{sign}.0f}"
