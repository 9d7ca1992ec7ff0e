"""Mutation sample: seeded faults in the pure packages, and whether their tests notice them.

`python -m tools.mutants 300` changes one place of `policies`, `ope` or `stats` at a time, in a copy
of the tree. It runs the tests of that package until the first failure. It prints the number of
killed mutants by package, and the survivors. A mutant's rank depends on its function and expression
only, so a rename of files leaves the sample almost as it was.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parent.parent
PACKAGES = ("policies", "ope", "stats")
_COPIED = (
    *(
        "src",
        "systems",
        "sdk",
        "tests",
        "tools",
        "docs",
        "benchmarks",
        "lab",
        "configs",
        "examples",
    ),
    *("conftest.py", "pyproject.toml", "README.md"),
)
_MEMORY = 8 << 30
_WALL = 10
"""Timeout in seconds per second of processor time, to end a mutant that sleeps."""

_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One change of one expression or statement."""

    package: str
    path: str
    place: str
    line: int
    kind: str
    old: str
    new: str
    start: int
    end: int

    def rank(self, seed: int) -> str:
        """Return the sort key of the sample."""
        key = f"{seed}|{self.package}|{self.place}|{self.kind}|{self.old}|{self.new}"
        return hashlib.sha256(key.encode()).hexdigest()

    def apply(self, source: bytes) -> bytes:
        """Return the source with this change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants(package: str, path: str, source: str) -> list[Mutant]:
    r"""Return all mutants of one file.

    >>> [(m.kind, m.old, m.new) for m in mutants("p", "a.py", "def f(x):\n    return x < 3\n")]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('return', 'return x < 3', 'return None'), ('comparison', 'x < 3', 'x >= 3'),
     ('boundary', 'x < 3', 'x <= 3'), ('constant', '3', '4')]
    """
    tree = ast.parse(source)
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for place, node in _places(tree, ""):
        for kind, new in _changes(node):
            old = ast.unparse(node)
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
            found.append(Mutant(package, path, place, node.lineno, kind, old, new, start, end))
    return found


def _places(node: ast.AST, place: str) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Yield the nodes to change, without types, message texts and declarations."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        place = f"{place}.{node.name}".lstrip(".")
    if isinstance(node, ast.JoinedStr | ast.Raise):  # Python 3.11 misplaces the parts of f-strings
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.expr | ast.stmt):
        yield place, node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _places(child, place)


def _changes(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield the kind and the new source of each change of this node itself."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for kind, table in (("comparison", _NEGATED), ("boundary", _BOUNDARY)):
                if type(op) in table:
                    other = table[type(op)]()
                    yield kind, ast.unparse(ast.Compare(left, [other], [right]))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            yield "arithmetic", ast.unparse(ast.BinOp(left, _ARITHMETIC[type(op)](), right))
        case ast.BoolOp(op=op, values=values):
            other_op: ast.boolop = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "boolean", f"({ast.unparse(ast.BoolOp(other_op, values))})"
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "boolean" if isinstance(node.op, ast.Not) else "arithmetic", ast.unparse(operand)
        case ast.Constant(value=bool(value)):
            yield "constant", str(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", repr(value + 1)
        case ast.Return(value=ast.expr()) if ast.unparse(node) != "return None":
            yield "return", "return None"


def sample(tree: Path, count: int, seed: int, packages: Sequence[str] = PACKAGES) -> list[Mutant]:
    """Return a seeded sample of the mutants of a tree."""
    found = [
        mutant
        for package in packages
        for path in sorted((tree / "src/steersman" / package).rglob("*.py"))
        for mutant in mutants(package, str(path.relative_to(tree)), path.read_text("utf-8"))
    ]
    return sorted(found, key=lambda mutant: mutant.rank(seed))[:count]


class Copy:
    """Copy of a tree, in which one mutant at a time is tested."""

    def __init__(self, tree: Path, where: Path) -> None:
        self.root = where
        for name in _COPIED:
            source = tree / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(source, where / name, ignore=ignored)
            elif source.exists():
                shutil.copy(source, where / name)
        self._tests = {package: self._ordered(package) for package in PACKAGES}

    def _ordered(self, package: str) -> list[tuple[str, str]]:
        files = [
            *(self.root / "tests" / package).glob("test_*.py"),
            *(self.root / "src/steersman" / package).glob("*.py"),
        ]
        return [(str(path.relative_to(self.root)), path.read_text("utf-8")) for path in files]

    def tests(self, package: str, path: str = "") -> list[str]:
        """Return the test files of a package, those that name the mutant's module first."""
        module = Path(path).stem
        own = self._tests[package]
        chosen = [one for one in own if one[0].startswith("tests") or ">>>" in one[1]]
        # Doctests last: a module that pytest is the first to import exists twice.
        chosen.sort(key=lambda one: (not one[0].startswith("tests"), module not in one[1], one[0]))
        return [name for name, _ in chosen]

    def passes(self, package: str, path: str, limit_s: float) -> bool:
        """Return whether all tests pass within a limit of processor time."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        folders = [self.root / "src", self.root / "systems", self.root / "sdk/python", self.root]
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CI": "true",  # hypothesis draws the same examples each time
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

        with (
            tempfile.TemporaryFile() as output,
            subprocess.Popen(
                [*command, *self.tests(package, path)],
                cwd=self.root,
                env=env,
                stdout=output,
                stderr=output,
            ) as process,
        ):
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 5))
            resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            try:
                passed = process.wait(limit_s * _WALL) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                passed = False
            if not path and not passed:
                output.seek(0)
                print(output.read().decode(errors="replace")[-2000:], file=sys.stderr)
            return passed

    def kills(self, mutant: Mutant, limit_s: float) -> bool:
        """Return whether the tests notice the mutant."""
        file = self.root / mutant.path
        original = file.read_bytes()
        try:
            file.write_bytes(mutant.apply(original))
            return not self.passes(mutant.package, mutant.path, limit_s)
        finally:
            file.write_bytes(original)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print killed and surviving mutants; return 1 if the tests fail without a mutant."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=300, help="mutants, at least 1")
    parser.add_argument("--packages", nargs="+", choices=PACKAGES, default=PACKAGES)
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tested at a time")
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout to test; default: this")
    asked = parser.parse_args(arguments)
    chosen = sample(asked.tree, max(1, asked.count), asked.seed, asked.packages)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for job in range(asked.jobs):
            copies.put(Copy(asked.tree, Path(folder) / str(job)))
        limits = _limits(copies, {mutant.package for mutant in chosen})
        if limits is None:
            return 1
        killed = _run(chosen, copies, limits, asked.jobs)
    _print(chosen, killed)
    return 0


def _limits(copies: SimpleQueue[Copy], packages: set[str]) -> dict[str, float] | None:
    """Return the limit of processor seconds per package: three times that without a mutant."""
    copy, limits = copies.get(), {}
    for package in sorted(packages):
        before = _children_s()
        if not copy.passes(package, "", 3600):
            print(f"the tests of {package} fail without a mutant; mend them first")
            return None
        limits[package] = 20 + 3 * (_children_s() - before)
    copies.put(copy)
    return limits


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(
    chosen: list[Mutant], copies: SimpleQueue[Copy], limits: dict[str, float], jobs: int
) -> list[bool]:
    began = time.monotonic()

    def test(mutant: Mutant) -> bool:
        copy = copies.get()
        try:
            killed = copy.kills(mutant, limits[mutant.package])
        finally:
            copies.put(copy)
        word = "killed" if killed else "SURVIVED"
        minutes = (time.monotonic() - began) / 60
        print(f"{minutes:6.1f} min  {word:8}  {_shown(mutant)}", file=sys.stderr, flush=True)
        return killed

    with ThreadPoolExecutor(jobs) as threads:
        return list(threads.map(test, chosen))


def _shown(mutant: Mutant) -> str:
    change = f"{mutant.old}  ->  {mutant.new}".replace("\n", " ")
    return f"{mutant.path}:{mutant.line} {mutant.kind}: {change}"[:200]


def _print(chosen: list[Mutant], killed: list[bool]) -> None:
    all_of = Counter(mutant.package for mutant in chosen)
    dead = Counter(mutant.package for mutant, one in zip(chosen, killed, strict=True) if one)
    print(f"{'package':10} {'mutants':>8} {'killed':>8} {'survived':>9} {'killed %':>9}")
    for package in [*sorted(all_of), "all"]:
        total = all_of[package] if package != "all" else len(chosen)
        gone = dead[package] if package != "all" else sum(killed)
        print(f"{package:10} {total:8} {gone:8} {total - gone:9} {100 * gone / total:8.1f}%")
    for mutant, one in zip(chosen, killed, strict=True):
        if not one:
            print(_shown(mutant))


if __name__ == "__main__":
    sys.exit(main())
