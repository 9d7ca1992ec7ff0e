"""Runs the Python blocks of Markdown pages as tests, through Sybil."""

from __future__ import annotations

import contextlib
import io
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE
from typing import TYPE_CHECKING, Any

from sybil import Sybil
from sybil.evaluators.doctest import DocTestEvaluator
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sybil import Example

_PRINTED = "__printed__"
_UNSHOWN = "a python block printed {text!r} and no text block shows it; add one right after it"


def collect(*, root: str, patterns: Sequence[str]) -> Callable[..., Any]:
    """Return the ``pytest_collect_file`` hook for matching pages.

    Args:
        root: Root folder of the pages.
        patterns: Paths below ``root``, with ``*`` and ``**``.

    Returns:
        The hook; each block is one test.
    """
    sybil = Sybil(
        parsers=[
            SkipParser(),
            CodeBlockParser(language="python", evaluator=_run),
            CodeBlockParser(language="text", evaluator=_compare),
        ],
        path=root,
        patterns=patterns,
        teardown=_nothing_unshown,
    )
    hook: Callable[..., Any] = sybil.pytest()
    return hook


def _run(example: Example) -> str | None:
    """Run one block; a doctest compares its output, other output waits for its text block."""
    _nothing_unshown(example.namespace)
    if ">>>" in example.parsed:
        return _run_doctest(example)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        PythonEvaluator()(example)
    example.namespace[_PRINTED] = printed.getvalue().rstrip()
    return None


def _run_doctest(example: Example) -> str | None:
    from doctest import DocTestParser  # noqa: PLC0415 - the name is Sybil's too

    evaluate = DocTestEvaluator(optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)
    for piece in DocTestParser().get_examples(example.parsed):
        example.parsed = piece
        failure = evaluate(example)
        if failure:
            return str(failure)
    return None


def _compare(example: Example) -> str | None:
    """Compare a text block with the output of the python block before it, if any."""
    printed = example.namespace.pop(_PRINTED, "")
    if printed and printed != example.parsed.rstrip():
        return f"the page shows\n{example.parsed.rstrip()}\nand the code printed\n{printed}"
    return None


def _nothing_unshown(namespace: dict[str, Any]) -> None:
    text = namespace.pop(_PRINTED, "")
    if text:
        raise AssertionError(_UNSHOWN.format(text=text))
