"""What ``steersman demo interrogator`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from steersman.systems.interrogator import Investigation, Step

_WIDTH = 10


def bar(similarity: float, width: int = _WIDTH) -> str:
    """Return a similarity as a bar.

    Args:
        similarity: a cosine; below 0 is drawn as 0.
        width: of 1.

    >>> bar(0.5, width=4)
    '██··'
    """
    filled = round(width * min(max(similarity, 0.0), 1.0))
    return "█" * filled + "·" * (width - filled)


def as_json(done: Investigation) -> dict[str, Any]:
    """Return an investigation for JSON.

    Args:
        done: the investigation.

    No doctest: it needs one; ``tests/cli/test_demo_interrogator.py`` shows it.
    """
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
    """Print an investigation, a row a question.

    Args:
        console: where to.
        done: the investigation.
    """
    target = done.target.text or done.target.name or "an unknown embedding"
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
    verdict = "found" if done.solved else f"not found (it counts from {done.stop_at:g} on)"
    console.print(
        f"similarity {done.similarity:.3f}, {verdict}; {len(done.steps)} questions, "
        f"{done.cache_hits} cache hits, {done.embedder_calls} texts embedded",
        highlight=False,
    )


def print_report(console: Console, report: Mapping[str, Any]) -> None:
    """Print the comparison's figures, a row an arm.

    Args:
        console: where to.
        report: as `compile_report` returns it.
    """
    for name, found in report["sets"].items():
        title = f"{name}: {found['targets']} targets, {found['seeds']} seeds, 95 % intervals"
        table = Table(title=title, box=None, pad_edge=False, title_justify="left")
        arms = found["arms"]
        measures = [key for key, value in next(iter(arms.values())).items() if _plotted(value)]
        for head in ("arm", *measures):
            table.add_column(head.replace("_", " "))
        for arm, figures in arms.items():
            table.add_row(arm, *(_estimate(figures[measure]) for measure in measures))
        console.print()
        console.print(table)
        passed = "passed" if found["gate"]["passed"] else "not passed: --rl stays off by default"
        console.print(f"regression gate of {report['candidate']}: {passed}", highlight=False)


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


def _plotted(value: object) -> bool:
    return isinstance(value, dict) and {"value", "low", "high"} <= set(value)


def _estimate(value: Mapping[str, float | None]) -> str:
    shown = ["–" if value[k] is None else f"{value[k]:.3g}" for k in ("value", "low", "high")]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"
