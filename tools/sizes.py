"""The size gate: prints what the house aims at, and fails on the stops.

Aims (STYLE): median file at most 150 lines, function median at most 9, p90 at most 30. Stops: a
file of more than 500 lines, a function of more than 60, an argument of ``src`` without a type, a
README of more than 120 lines.
"""

from __future__ import annotations

import ast
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

FILE_STOP = 500
FUNCTION_STOP = 60
README_STOP = 120
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Function:
    """One function's size and how many of its arguments carry a type."""

    place: str
    lines: int
    arguments: int
    typed: int


@dataclass(frozen=True)
class File:
    """One source file's size and its functions."""

    path: Path
    lines: int
    functions: tuple[Function, ...]


def main() -> int:
    """Print the table for ``src`` and every stop that was run over; return the exit status."""
    shipped = _measure(ROOT / "src")
    others = [file for name in ("benchmarks", "tools", "tests") for file in _measure(ROOT / name)]
    _print_table(shipped)
    stops = [stop for file in (*shipped, *others) for stop in _stops(file)]
    stops += [
        f"{function.place}: {function.arguments - function.typed} arguments have no type"
        for file in shipped
        for function in file.functions
        if function.typed < function.arguments
    ]
    stops += _readme_stops((ROOT / "README.md").read_text(encoding="utf-8"))
    for stop in stops:
        print(f"STOP {stop}")
    return 1 if stops else 0


def measure_file(path: Path, source: str) -> File:
    r"""Return the sizes of one file.

    Args:
        path: Shown in messages.
        source: Its text, valid Python.

    Returns:
        Lines of the file and of each function without its docstring.

    Example:
        >>> file = measure_file(Path("a.py"), "def f(x: int, y):\n    return x\n")
        >>> file.functions[0].lines, file.functions[0].arguments, file.functions[0].typed
        (2, 2, 1)
    """
    functions = tuple(
        _measure_function(path, node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return File(path, len(source.splitlines()), functions)


def _measure(folder: Path) -> list[File]:
    return [
        measure_file(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.py"))
    ]


def _measure_function(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    named += [rest for rest in (node.args.vararg, node.args.kwarg) if rest is not None]
    counted = [argument for argument in named if argument.arg not in {"self", "cls"}]
    typed = sum(argument.annotation is not None for argument in counted)
    return Function(f"{path}:{node.lineno}: {node.name}", lines, len(counted), typed)


def _stops(file: File) -> list[str]:
    stops = []
    if file.lines > FILE_STOP:
        stops.append(f"{file.path}: {file.lines} lines, at most {FILE_STOP}; divide it by idea")
    stops += [
        f"{function.place}: {function.lines} lines, at most {FUNCTION_STOP}; divide it by step"
        for function in file.functions
        if function.lines > FUNCTION_STOP
    ]
    return stops


def _readme_stops(text: str) -> list[str]:
    lines = len(text.splitlines())
    if lines <= README_STOP:
        return []
    return [f"README.md: {lines} lines, at most {README_STOP}; let a page of docs/ say it"]


def _print_table(files: list[File]) -> None:
    functions = [function for file in files for function in file.functions]
    lengths = sorted(function.lines for function in functions) or [0]
    arguments = sum(function.arguments for function in functions)
    typed = sum(function.typed for function in functions)
    longest = max(files, key=lambda file: file.lines)
    p90 = lengths[min(len(lengths) - 1, int(0.9 * len(lengths)))]
    share = 100 * typed / arguments if arguments else 100
    print("| files | median lines/file | longest file | body median / p90 / max | args typed |")
    print("|--:|--:|--:|---|--:|")
    print(
        f"| {len(files)} | {statistics.median(file.lines for file in files):.0f} "
        f"| {longest.lines} ({longest.path}) "
        f"| {statistics.median(lengths):.0f} / {p90} / {lengths[-1]} | {share:.0f}% |"
    )


if __name__ == "__main__":
    sys.exit(main())
