"""Printed tables of ``steersman demo interrogator``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console

    from steersman_systems.interrogator.investigation import Investigation, Step

_WIDTH = 10
_MEASURES = {"similarity": "similarity", "embedder_calls": "calls", "cache_hit_rate": "cache hits"}
_LEVELS = {"steps_to_090": ".90", "steps_to_share": "90 %"}
_DIFFERENCES = {
    "fewer_calls_to_same_similarity": ("calls saved (same)", 1),
    "similarity": ("similarity", 2),
    "embedder_calls": ("all calls", 1),
    "cache_hit_rate": ("cache hits", 2),
    "steps_to_090": ("questions to .90", 1),
    "steps_to_share": ("questions to 90 %", 1),
}
_STATES = {
    "failed": "failed",
    "not_measured": "not measured",
    "unknown": "cannot be known, too few sessions reached it",
}


def bar(similarity: float, width: int = _WIDTH) -> str:
    """Return a similarity as a bar of ``width`` characters; below 0 is drawn as 0.

    >>> bar(0.5, width=4)
    '██··'
    """
    filled = round(width * min(max(similarity, 0.0), 1.0))
    return "█" * filled + "·" * (width - filled)


def as_json(done: Investigation) -> dict[str, Any]:
    """Return an investigation as JSON values."""
    return {
        "target": done.target.name,
        "text": done.target.text,
        "opening": {"text": done.opening.hypothesis, "similarity": done.opening.similarity},
        "steps": [_step(step) for step in done.steps],
        "hypothesis": done.hypothesis,
        "similarity": done.similarity,
        "solved": done.solved,
        "stop_at": done.stop_at,
        "cache_hits": done.cache_hits,
        "embedder_calls": done.embedder_calls,
    }


def print_investigation(console: Console, done: Investigation) -> None:
    """Print an investigation with one row per question."""
    target = done.target.text or done.target.name or "unknown embedding"
    console.print(f"target  {target}", highlight=False, markup=False)
    table = Table(box=None, pad_edge=False)
    for head in ("question", "answer", "similarity", "", "gain", "cache", "texts", "p", "by"):
        table.add_column(head)
    opening = done.opening
    table.add_row(
        "", opening.hypothesis, bar(opening.similarity), f"{opening.similarity:.3f}", "", "", "",
        "", "",
    )  # fmt: skip
    for step in done.steps:
        answer, drawn = step.answer, step.drawn
        table.add_row(
            drawn.action,
            answer.text or "–",
            bar(answer.similarity),
            f"{answer.similarity:.3f}",
            f"{step.gain:+.3f}",
            "hit" if answer.cache_hit else "miss",
            str(answer.embedder_calls),
            f"{drawn.propensity:.3f}",
            drawn.by,
        )
    console.print(table)
    console.print(f"hypothesis  {done.hypothesis}", highlight=False, markup=False)
    verdict = "found" if done.solved else f"not found (needs {done.stop_at:g})"
    console.print(
        f"similarity {done.similarity:.3f}, {verdict}; {len(done.steps)} questions, "
        f"{done.cache_hits} cache hits, {done.embedder_calls} texts embedded",
        highlight=False,
    )


def print_report(console: Console, report: Mapping[str, Any]) -> None:
    """Print the comparison and the verdict of the regression gate."""
    from steersman_systems.interrogator.report import counted  # noqa: PLC0415 (slow)

    for name, found in report["sets"].items():
        size = f"{counted(found['targets'], 'target')}, {counted(found['seeds'], 'seed')}"
        console.print()
        console.print(_arms_table(found, f"{name}: {size}"))
        console.print()
        console.print(_against_table(found))
        console.print()
        note = "same: until both are equally close; 90 %: of the similarity of an exhaustive search"
        console.print(note, highlight=False, soft_wrap=True)
        for line in gate_lines(found["gate"], report["candidate"]):
            console.print(line, highlight=False, soft_wrap=True)


def gate_lines(gate: Mapping[str, Any], candidate: str) -> list[str]:
    """Return the verdict of the regression gate as lines, with the reasons.

    >>> failed = {"measure": "cache_hit_rate", "state": "failed"}
    >>> gate_lines({"passed": False, "measures": [failed]}, "warm")
    ['regression gate of warm: not passed, --rl stays off by default', '  failed: cache hits']
    """
    from steersman_systems.interrogator.report import SAYS  # noqa: PLC0415 (slow)

    verdict = "passed" if gate["passed"] else "not passed, --rl stays off by default"
    lines = [f"regression gate of {candidate.replace('_', ' ')}: {verdict}"]
    for state, says in _STATES.items():
        names = [SAYS[one["measure"]] for one in gate["measures"] if one["state"] == state]
        if names:
            lines.append(f"  {says}: {', '.join(names)}")
    return lines


def _arms_table(found: Mapping[str, Any], title: str) -> Table:
    timed = [key for key in _LEVELS if key in next(iter(found["arms"].values()))]
    solved = (f"reached {_LEVELS[key]}" for key in timed)
    table = _table(title, ("policy", *_MEASURES.values(), *solved))
    for arm, figures in found["arms"].items():
        values = (f"{figures[measure]['value']:.3g}" for measure in _MEASURES)
        table.add_row(
            arm.replace("_", " "), *values, *(f"{figures[key]['solved']:.0%}" for key in timed)
        )
    return table


def _against_table(found: Mapping[str, Any]) -> Table:
    arms = found["against_heuristic"]
    title = "difference to the heuristic, paired by target, 95 % confidence intervals"
    table = _table(title, ("", *(arm.replace("_", " ") for arm in arms)))
    # Five arms side by side in 80 columns.
    table.padding = (0, 1, 0, 0)
    for key, (says, digits) in _DIFFERENCES.items():
        if all(key in one for one in arms.values()):
            shown = (
                _difference(one[key], digits) if _is_told(found["arms"], arm, key) else "–"
                for arm, one in arms.items()
            )
            table.add_row(says, *shown)
    return table


def _is_told(arms: Mapping[str, Any], arm: str, key: str) -> bool:
    """Return False if neither policy reached the level at which the difference is measured."""
    return key not in _LEVELS or any(arms[one][key]["solved"] for one in (arm, "heuristic"))


def _table(title: str, heads: Iterable[str]) -> Table:
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    for place, head in enumerate(heads):
        table.add_column(head, no_wrap=place == 0)
    return table


def _step(step: Step) -> dict[str, Any]:
    answer, drawn, names = step.answer, step.drawn, step.situation.questions.names
    return {
        "question": drawn.action,
        "asked": step.situation.questions[drawn.action].question,
        "answer": answer.text,
        "hypothesis": answer.hypothesis,
        "similarity": answer.similarity,
        "answer_similarity": answer.answer_similarity,
        "gain": step.gain,
        "cache_hit": answer.cache_hit,
        "embedder_calls": answer.embedder_calls,
        "reward": step.reward,
        "propensity": drawn.propensity,
        "distribution": {
            name: float(p) for name, p in zip(names, drawn.distribution, strict=True) if p > 0
        },
        "by": drawn.by,
    }


def _difference(one: Mapping[str, float], digits: int) -> str:
    half = (one["high"] - one["low"]) / 2
    return f"{one['value']:+.{digits}f} ±{half:.{digits}f}"
