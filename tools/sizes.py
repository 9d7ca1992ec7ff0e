"""The size gate: prints the sizes with their aims, and fails on the stops.

Code lines are neither blank, comment nor docstring. Stops: a file of more than 600 code lines, a
function of more than 60 lines, an argument without a type, a README of more than 120 lines, a
decision record of more than 600 words.
"""

from __future__ import annotations

import ast
import io
import statistics
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

from tools import plain_language

FILE_STOP = 600
FUNCTION_STOP = 60
README_STOP = 120
RECORD_STOP = 600
ROOT = Path(__file__).parent.parent
SHIPPED = ("src", "systems", "sdk")
OTHERS = ("lab", "benchmarks", "tools", "tests", "examples")
_NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    | {tokenize.ENCODING, tokenize.ENDMARKER}
)


@dataclass(frozen=True)
class Function:
    """Size of one function and the number of its typed arguments."""

    place: str
    lines: int
    arguments: int
    typed: int


@dataclass(frozen=True)
class File:
    """Size of one source file and of its functions."""

    path: Path
    code: int
    docstrings: int
    exported: int
    functions: tuple[Function, ...]


@dataclass(frozen=True)
class Figure:
    """Row of the table: a measured number and its limit."""

    name: str
    value: float
    most: float | None = None
    least: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the value is within the limit."""
        least, most = self.least, self.most
        return (least is None or self.value >= least) and (most is None or self.value <= most)

    def row(self) -> str:
        """Return the row in Markdown."""
        wanted = f"≥ {self.least:,.0f}" if self.most is None else f"≤ {self.most:,.0f}"
        return f"| {self.name} | {self.value:,.0f} | {wanted} | {'yes' if self.holds else 'NO'} |"


def main() -> int:
    """Print the tables and every file or function beyond a stop; return the exit status."""
    shipped = {name: _measure(ROOT / name) for name in SHIPPED}
    others = [file for name in OTHERS for file in _measure(ROOT / name)]
    every = [file for files in shipped.values() for file in files]
    _print_figures(figures(shipped["src"], _counted_phrases()))
    _print_functions(every)
    stops = [stop for file in (*every, *others) for stop in _stops(file)]
    stops += [
        f"{function.place}: {function.arguments - function.typed} arguments have no type"
        for file in every
        for function in file.functions
        if function.typed < function.arguments
    ]
    stops += _readme_stops((ROOT / "README.md").read_text(encoding="utf-8"))
    for record in sorted((ROOT / "docs" / "adr").glob("0*.md")):
        stops += _record_stops(record.name, record.read_text(encoding="utf-8"))
    for stop in stops:
        print(f"STOP {stop}")
    return 1 if stops else 0


def figures(product: list[File], phrases: int) -> list[Figure]:
    """Return the figures of the product wheel with their limits.

    Args:
        product: Files of the product.
        phrases: Number of the counted banned phrases.
    """
    return [
        Figure("code lines in the product wheel", sum(file.code for file in product), 52_000),
        Figure("docstring lines in src", sum(file.docstrings for file in product), 20_000),
        Figure("files in src", len(product), 450),
        Figure("median code lines a file", _median([file.code for file in product]), least=110),
        Figure("modules ending in -ing", sum(_ends_in_ing(file.path) for file in product), 20),
        Figure(
            "names exported by the largest __init__",
            max((file.exported for file in product if file.path.stem == "__init__"), default=0),
            40,
        ),
        Figure(f"banned phrases ({', '.join(plain_language.COUNTED)})", phrases, 30),
    ]


def measure_file(path: Path, source: str) -> File:
    r"""Return the sizes of one file.

    Args:
        path: Path for messages.
        source: Valid Python source.

    Returns:
        Code lines of the file, and lines of each function without its docstring.

    Example:
        >>> file = measure_file(Path("a.py"), "# One\ndef f(x: int, y):\n    return x\n")
        >>> file.code, file.functions[0].arguments, file.functions[0].typed
        (2, 2, 1)
    """
    tree = ast.parse(source)
    documented = _docstring_lines(tree)
    functions = tuple(
        _measure_function(path, node)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    code = len(_code_lines(source) - documented)
    return File(path, code, len(documented), _exported(tree), functions)


def _measure(folder: Path) -> list[File]:
    return [
        measure_file(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.py"))
    ]


def _code_lines(source: str) -> set[int]:
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return found


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of all docstrings, also of attributes."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _exported(tree: ast.Module) -> int:
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id="__all__")], value=ast.List() | ast.Tuple() as names
            ):
                return len(names.elts)
    return 0


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


def _counted_phrases() -> int:
    """Return the number of counted banned phrases in src, systems, client, docs and help."""
    folders = tuple(f"{name}/" for name in (*SHIPPED, "docs"))
    return sum(
        finding.phrase in plain_language.COUNTED and finding.path.startswith(folders)
        for file in plain_language.files_to_read()
        for finding in plain_language.find(file)
    )


def _ends_in_ing(path: Path) -> bool:
    return path.stem.endswith("ing")


def _median(values: list[int]) -> float:
    return statistics.median(values or [0])


def _stops(file: File) -> list[str]:
    stops = []
    if file.code > FILE_STOP:
        stops.append(f"{file.path}: {file.code} code lines, at most {FILE_STOP}; divide by idea")
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
    return [f"README.md: {lines} lines, at most {README_STOP}; move text to a page of docs/"]


def _record_stops(name: str, text: str) -> list[str]:
    words = sum(any(letter.isalnum() for letter in word) for word in text.split())
    if words <= RECORD_STOP:
        return []
    return [f"docs/adr/{name}: {words} words, at most {RECORD_STOP}; move text to docs/explanation"]


def _print_figures(found: list[Figure]) -> None:
    print("| figure | today | wanted | holds |")
    print("|---|--:|--:|---|")
    for figure in found:
        print(figure.row())


def _print_functions(files: list[File]) -> None:
    functions = [function for file in files for function in file.functions]
    lengths = sorted(function.lines for function in functions) or [0]
    arguments = sum(function.arguments for function in functions)
    typed = sum(function.typed for function in functions)
    longest = max(files, key=lambda file: file.code)
    p90 = lengths[min(len(lengths) - 1, int(0.9 * len(lengths)))]
    share = 100 * typed / arguments if arguments else 100
    print()
    print("| body median / p90 / max (aim 9 / 30 / 60) | args typed | longest file, code lines |")
    print("|---|--:|---|")
    print(
        f"| {statistics.median(lengths):.0f} / {p90} / {lengths[-1]} | {share:.0f}% "
        f"| {longest.code} ({longest.path}) |"
    )


if __name__ == "__main__":
    sys.exit(main())
