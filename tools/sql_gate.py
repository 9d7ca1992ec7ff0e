"""The SQL gate: SQL is allowed only under ``db/`` and ``platform/postgres``.

It checks the string constants of the product and of the shipped systems, without docstrings. The
client, a separate distribution with a queue file, is not checked. A string that is shown but never
run may have SQL with a comment on one of its lines, ``sql: shown - reason``.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "systems")
ALLOWED = {
    "src/steersman/db": "rows, by noun",
    "src/steersman/platform/postgres": "connections, sessions and locks",
    "src/steersman/testing/store.py": "contract checks that send what a store must refuse",
}
_STATEMENT = re.compile(
    r"\b(SELECT|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE|DELETE\s+FROM|WITH\s+\w+\s+AS|UNION\s+ALL"
    r"|(CREATE|ALTER|DROP)\s+(TABLE|INDEX|ROLE|SYSTEM|SCHEMA|FUNCTION|EXTENSION)|TRUNCATE|PRAGMA"
    r"|SET\s+(LOCAL|SESSION)|SET\s+\w+(?=\s*=)|SHOW|VACUUM|BEGIN(\s+IMMEDIATE)?$|COMMIT$|ROLLBACK$"
    r"|LISTEN|NOTIFY)\b"
    r"|\bFROM\s+[a-z_]+\s+(AS|JOIN|WHERE|ORDER|GROUP)\b|\bpg_\w+\(|\b(set_config|current_setting)\("
)
_KEPT = re.compile(r"# sql: shown - \S")


class Finding(NamedTuple):
    """SQL outside the allowed folders.

    Attributes:
        line: first line of the string.
        statement: first SQL words of the string.
    """

    line: int
    statement: str


def main() -> int:
    """Print every finding; return the exit status."""
    paths = _read_files()
    found = [(path, one) for path in paths for one in find((ROOT / path).read_text("utf-8"))]
    for path, one in found:
        print(f"SQL {path}:{one.line}: {one.statement}; make it a function of src/steersman/db")
    print(f"sql: {len(found)} strings with SQL in {len(paths)} files outside db/")
    return 1 if found else 0


def find(source: str) -> list[Finding]:
    r"""Return the strings of a file that hold SQL.

    Args:
        source: text of the file, valid Python.

    >>> find('"SELECT in a docstring"\nrun("SELECT 1")\nsay("please select one")\n')
    [Finding(line=2, statement='SELECT')]
    """
    nodes, lines = list(ast.walk(ast.parse(source))), source.splitlines()
    # Docstrings, and the parts of f-strings, which are checked as a whole.
    apart = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    apart |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    found = []
    for node in nodes:
        if id(node) in apart or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        statement = _STATEMENT.search(_text(node))
        shown = any(_KEPT.search(line) for line in lines[node.lineno - 1 : node.end_lineno])
        if statement and not shown:
            found.append(Finding(node.lineno, statement[0].strip()))
    return sorted(found)


def _text(node: ast.expr) -> str:
    """Return the text of a string, with ``x`` for each inserted value; empty for other nodes."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "x" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _read_files() -> list[Path]:
    found = [path.relative_to(ROOT) for name in FOLDERS for path in (ROOT / name).rglob("*.py")]
    return sorted(path for path in found if not any(path.is_relative_to(it) for it in ALLOWED))


if __name__ == "__main__":
    sys.exit(main())
