"""Runs the cells of a notebook in this process, which must be a fresh one.

Reads a JSON list of sources from standard input and writes a JSON list with each cell's outputs.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from typing import Any

Output = dict[str, Any]


def main() -> int:
    """Run all cells; a failing cell exits with its traceback as status 1."""
    # Output that bypasses sys.stdout must not mix with the JSON.
    answers = sys.stdout
    namespace: dict[str, Any] = {"__name__": "__main__"}
    sources = json.load(sys.stdin)
    outputs = [run_cell(source, number, namespace) for number, source in enumerate(sources, 1)]
    json.dump(outputs, answers)
    return 0


def run_cell(source: str, number: int, namespace: dict[str, Any]) -> list[Output]:
    """Run one cell and return its outputs: printed text and the value of its last expression.

    Args:
        source: Python without magics.
        number: from 1; the execution count, shown in tracebacks.
        namespace: variables shared by the cells.
    """
    place = f"<cell {number}>"
    body = ast.parse(source, place).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body, []), place, "exec"), namespace)  # noqa: S102 - our own cells
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), place, "eval"), namespace)  # noqa: S307
    outputs: list[Output] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        outputs.append(
            {
                "output_type": "execute_result",
                "execution_count": number,
                "data": shown(value),
                "metadata": {},
            }
        )
    return outputs


def shown(value: object) -> dict[str, str]:
    """Return a value by media type, as in a notebook; matplotlib figures as PNG.

    Args:
        value: any value but ``None``.
    """
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        # Without date and version, equal figures give equal files.
        value.savefig(picture, format="png", dpi=80, metadata={"Software": None})
        encoded = base64.b64encode(picture.getvalue()).decode()
        return {"image/png": encoded, "text/plain": f"<{type(value).__name__}>"}
    return {"text/plain": repr(value)}


if __name__ == "__main__":
    sys.exit(main())
