"""Writer of ``docs/BENCHMARKS.md``, the summary, and of one page of all figures per benchmark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.report import Figure, show_number, show_verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = ["HEADLINES", "Headline", "Row", "page_of", "read_rows", "summary"]

_COLUMNS = "| figure | value | interval | unit | goal | holds | peers in the same run |"
_RULE = "|---|--:|---|---|---|---|---|"
_CELL = re.compile(r"(?<!\\)\|")


class Headline(NamedTuple):
    """Figure of the summary."""

    benchmark: str
    figure: str
    what: str


HEADLINES = (
    Headline("service", "decisions, 64 clients", "Committed decisions, one a request, 64 clients"),
    Headline("service", "p99", "p99 latency of these"),
    Headline("service", "decisions in batches of 10", "Committed decisions in batches of 10"),
    Headline("service", "events in batches of 100", "Committed events in batches of 100"),
    Headline(
        "service",
        "64 clients of 20 tenants beside one tenant",
        "Decisions of 20 tenants relative to one tenant",
    ),
    Headline(
        "service",
        "outcome to changed decision, first process, p99",
        "From an outcome to a changed decision, p99",
    ),
    Headline(
        "policies",
        "LinTS decide (64, 3): any peer",
        "`LinTS` decides, relative to the fastest peer",
    ),
    Headline(
        "policies",
        "LinUCB decide (64, 3): any peer",
        "`LinUCB` decides, relative to the fastest peer",
    ),
    Headline(
        "policies",
        "LinTS decide (256, 50): same algorithm",
        "`LinTS` decides, 50 arms, relative to the same algorithm elsewhere",
    ),
    Headline(
        "learning",
        "best single default: KernelUCB, mean over the sets",
        "Mean reward of the best default over the public sets",
    ),
    Headline(
        "learning",
        "routerbench_subset: BoundedLinUCB, gain over the best fixed model",
        "Routing among models: gain over the best fixed model",
    ),
    Headline(
        "ope",
        "dr wald coverage, adaptive: Thompson, near arms, last arm, n = 5,000, 2,000 runs",
        "Coverage of nominal 95 % intervals on logs of a learning policy (DR)",
    ),
    Headline(
        "ope",
        "evaluate, 1M rows, K = 10, 4 estimators, 10k resamples",
        "Off-policy evaluation of 1M rows with bootstrap",
    ),
    Headline(
        "rollout",
        "false promotions: 1 to 30 decisions a unit, correlation 0 to .2",
        "False promotions of candidates without effect",
    ),
    Headline(
        "rollout",
        "power: +0.03 (sd .25), 2000 units of each arm",
        "Power for a gain of 0.03 with 2,000 units an arm",
    ),
    Headline(
        "rollout",
        "fault injected → rolled back",
        "From an injected fault to the completed rollback",
    ),
    Headline(
        "client",
        "Client.decide, processor time a call (median and quartiles of rounds)",
        "Processor time of a decide call in the application",
    ),
    Headline(
        "registry",
        "verify and load, d=256 K=50, directory",
        "Verification and load of a signed snapshot",
    ),
    Headline(
        "registry",
        "hot reload, commit to first decision, d=64 K=50",
        "From a promotion to the first decision of the new snapshot",
    ),
    Headline(
        "retrieval",
        "scifact (test, 300 questions), convex: nDCG@10",
        "Hybrid search on SciFact, nDCG@10",
    ),
    Headline(
        "retrieval",
        "keyword query over 5,000 passages, p50 over bm25s' own",
        "Keyword query relative to bm25s, p50",
    ),
    Headline(
        "tuning",
        "hotpotqa, light weights: held-out reward over rrf k=10",
        "RAG tuner on HotpotQA: held-out reward over the default",
    ),
    Headline(
        "tuning",
        "scifact, light weights: regret of factored after 160 evaluations",
        "RAG tuner on SciFact: regret after 160 evaluations",
    ),
    Headline(
        "tuning_ppo",
        "hotpotqa, weights change: evaluations of sequential PPO until recovered, "
        "less those of TPE restarted",
        "Evaluations until recovered after a change, less those of TPE",
    ),
    Headline(
        "evidence",
        "hotpotqa (300 questions), five passages, clone of gold: all gold found",
        "Evidence selection on HotpotQA: all gold passages among five",
    ),
    Headline(
        "evidence_answers",
        "hotpotqa (300 questions), selected over top-k: f1",
        "Answers from selected passages, F1 over top-k",
    ),
    Headline(
        "interrogator",
        "synthetic: share of the oracle's gain, steps 1,750 to 2,000",
        "Interrogator: share of the best possible gain after 1,750 questions",
    ),
    Headline(
        "interrogator",
        "bfcl, 300 targets, warm: fewer embedder calls to the same similarity than the heuristic",
        "Interrogator: embedder calls saved compared with the heuristic",
    ),
    Headline(
        "quality",
        "scifact test claims (339 pairs: 152 SUPPORT, 74 CONTRADICT, 113 none): "
        "entailment_support, AUC of SUPPORT over the rest",
        "Support of an answer by its passages, AUC",
    ),
    Headline(
        "intents",
        "clinc150: accuracy on the validation split at the shipped power 6",
        "Intent classifier on clinc150, accuracy",
    ),
    Headline("cache", "stream, l1: wrong among hits", "Wrong answers among exact cache hits"),
)


@dataclass(frozen=True)
class Row:
    """Figure as text, for a page.

    Args:
        interval: "low to high", or empty.
        holds: ``yes``, ``NO`` or empty.
        peers: "name value, name value", or empty.
    """

    figure: str
    value: str
    interval: str
    unit: str
    goal: str
    holds: str
    peers: str

    @classmethod
    def of(cls, figure: Figure) -> Row:
        """Return the row of a figure."""
        interval = ""
        if figure.low is not None or figure.high is not None:
            interval = f"{show_number(figure.low)} to {show_number(figure.high)}"
        return cls(
            figure.name,
            show_number(figure.value),
            interval,
            figure.unit,
            "" if figure.goal is None else str(figure.goal),
            show_verdict(holds=figure.holds),
            ", ".join(f"{peer} {show_number(value)}" for peer, value in figure.peers.items()),
        )

    def line(self) -> str:
        """Return the row in Markdown."""
        fields = (self.figure, self.value, self.interval, self.unit)
        return _line((*fields, self.goal, self.holds, self.peers))


def page_of(name: str, machine: Mapping[str, object], figures: Iterable[Figure]) -> str:
    """Return the page of one benchmark.

    Args:
        name: As in ``python -m benchmarks.NAME``.
        machine: Facts about the machine.
        figures: Figures in order.

    Returns:
        Markdown, with a newline at its end.
    """
    lines = [f"# Benchmark: {name}", ""]
    lines += [f"Written by `python -m benchmarks --only {name}`; do not edit. `python -m"]
    lines[-1] += f" benchmarks.{name} --help` says what it measures."
    lines += ["[All benchmarks](../BENCHMARKS.md).", "", _COLUMNS, _RULE]
    lines += [Row.of(figure).line() for figure in figures]
    facts = ", ".join(f"{key} {value}" for key, value in machine.items())
    return "\n".join([*lines, "", f"Machine: {facts}", ""])


def read_rows(page: str) -> list[Row]:
    """Return the figures of a page from `page_of`.

    Args:
        page: Markdown.

    Returns:
        One row per figure, in the page's order.

    Example:
        >>> page = page_of("ope", {"cores": 2}, [Figure("a | b", 0.5, 0.4, goal="> 0", holds=True)])
        >>> [(row.figure, row.value, row.interval, row.holds) for row in read_rows(page)]
        [('a | b', '0.5', '0.4 to –', 'yes')]
    """
    rows = []
    for line in page.splitlines():
        if line.startswith("| ") and line != _COLUMNS:
            cells = [cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1]]
            rows.append(Row(*cells))
    return rows


def summary(folder: Path, names: Sequence[str]) -> str:
    """Return the summary page of all benchmarks.

    Args:
        folder: Folder with ``NAME.md`` for each measured benchmark.
        names: Names of all benchmarks, in order.

    Returns:
        Markdown, with a newline at its end.
    """
    found = {name: folder / f"{name}.md" for name in names}
    rows = {
        name: read_rows(file.read_text(encoding="utf-8"))
        for name, file in found.items()
        if file.is_file()
    }
    goals = [row for every in rows.values() for row in every if row.holds]
    held = sum(row.holds == "yes" for row in goals)
    lines = [
        "# Benchmarks",
        "",
        f"{held} of {len(goals)} goals hold. Written by `python -m benchmarks`; do not edit.",
        "Each benchmark is one run on one machine, named on its page, with the peers measured in",
        "the same run. `python -m benchmarks.NAME` measures one and prints its table.",
        "",
        "## Summary",
        "",
        "| what | figure | goal | peer | holds | all figures |",
        "|---|--:|---|---|---|---|",
    ]
    lines += [
        _line((one.what, _value(row), row.goal, _first(row.peers), row.holds, _link(one.benchmark)))
        for one in HEADLINES
        for row in rows.get(one.benchmark, ())
        if row.figure == one.figure
    ]
    lines += ["", "## Goals that do not hold", "", "| what | figure | goal | peer | all figures |"]
    lines += ["|---|--:|---|---|---|"]
    lines += [
        _line((row.figure, _value(row), row.goal, _first(row.peers), _link(name)))
        for name, every in rows.items()
        for row in every
        if row.holds == "NO"
    ]
    lines += ["", "## All benchmarks", "", "| benchmark | figures | goals | goals that hold |"]
    lines += ["|---|--:|--:|--:|"]
    lines += [
        f"| {_link(name)} | {len(every)} | {sum(bool(row.holds) for row in every)} "
        f"| {sum(row.holds == 'yes' for row in every)} |"
        for name, every in rows.items()
    ]
    return "\n".join([*lines, ""])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _value(row: Row) -> str:
    return f"{row.value} {row.unit}".rstrip()


def _first(peers: str) -> str:
    """Return the first peer; peers are separated by a comma and a space, unlike digits."""
    return re.split(r"(?<=\d), |(?<=–), ", peers)[0]


def _link(name: str) -> str:
    return f"[{name}](benchmarks/{name}.md)"
