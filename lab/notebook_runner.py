"""Runs notebooks in a fresh process and stores their outputs, or compares with the stored ones.

Cells run from top to bottom. They are plain Python without magics, and warnings are errors. Outputs
contain no path, date or version. A Jupyter kernel would add 86 MB and open ports.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat

CELLS = Path(__file__).with_name("notebook_cells.py").resolve()
TOLERANCE = 2e-3
"""Tolerance of a shown number, relative above 1: rounding may differ by a unit between machines."""

_NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d[\d,]*\.?\d*|\.\d+)")


class CellError(Exception):
    """A cell raised an error, or its process ended."""


def main(arguments: list[str] | None = None) -> int:
    """Run notebooks; return 1 if one fails or, with ``--check``, differs from its stored outputs.

    Args:
        arguments: command-line arguments.
    """
    parser = argparse.ArgumentParser(prog="python -m lab.notebook_runner", description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare the outputs with the stored ones; write nothing",
    )
    parser.add_argument("notebooks", metavar="NOTEBOOK", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    status = 0
    for path in options.notebooks:
        stored = read(path)
        try:
            outputs = run(stored, path.parent)
        except CellError as failed:
            print(f"{path}: {failed}")
            status = 1
            continue
        if not options.check:
            write(path, stored, outputs)
            continue
        for difference in differences(stored, outputs):
            print(f"{path}: {difference}")
            status = 1
    return status


def read(path: Path) -> Any:
    """Return a notebook of format 4, checked against its schema.

    Args:
        path: path of the notebook.

    Raises:
        nbformat.ValidationError: the file is not a valid notebook.
    """
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def run(notebook: Any, folder: Path) -> list[list[dict[str, Any]]]:
    """Return the outputs of each code cell, run in order in a fresh process.

    Args:
        notebook: result of `read`; unchanged.
        folder: working directory of the cells.

    Raises:
        CellError: a cell failed; the message has its traceback.
    """
    sources = [cell.source for cell in _code(notebook)]
    ran = subprocess.run(
        [sys.executable, "-P", "-W", "error", CELLS],
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "MPLBACKEND": "agg"},
        check=False,
    )
    if ran.returncode != 0:
        raise CellError(ran.stderr.strip())
    outputs: list[list[dict[str, Any]]] = json.loads(ran.stdout)
    return outputs


def write(path: Path, notebook: Any, outputs: list[list[dict[str, Any]]]) -> None:
    """Write a notebook with outputs, without metadata of the machine.

    Args:
        path: path of the notebook.
        notebook: its cells; changed in place.
        outputs: outputs of each code cell.
    """
    for number, (cell, made) in enumerate(zip(_code(notebook), outputs, strict=True), 1):
        cell.execution_count, cell.metadata = number, {}
        cell.outputs = [nbformat.from_dict(output) for output in made]
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def differences(notebook: Any, outputs: list[list[dict[str, Any]]]) -> list[str]:
    """Return the differences between stored and computed outputs; of pictures only missing ones.

    Args:
        notebook: with stored outputs.
        outputs: computed outputs of each code cell.
    """
    found = []
    for number, (cell, made) in enumerate(zip(_code(notebook), outputs, strict=True), 1):
        stored = [_kinds(output) for output in cell.outputs]
        computed = [_kinds(output) for output in made]
        # Order does not matter: Jupyter writes the text before the picture.
        if list(map(set, stored)) != list(map(set, computed)):
            found.append(f"cell {number} has outputs {stored}, computed are {computed}")
            continue
        for before, now in zip(stored, computed, strict=True):
            found += [
                f"cell {number} shows\n{text}\nand computes\n{now[kind]}"
                for kind, text in before.items()
                if kind != "image/png" and not alike(text, now[kind])
            ]
    return found


def alike(stored: str, computed: str) -> bool:
    """Return whether two texts have equal words, and numbers within the tolerance.

    Args:
        stored: stored output.
        computed: computed output.

    >>> alike("mean .150, 12 rows", "mean .151,  12 rows"), alike("mean .150", "mean .160")
    (True, False)
    """
    words, others = (" ".join(_NUMBER.sub("#", text).split()) for text in (stored, computed))
    pairs = zip(_numbers(stored), _numbers(computed), strict=False)
    return words == others and all(
        abs(a - b) <= TOLERANCE * max(1.0, abs(a)) + 1e-12 for a, b in pairs
    )


def _numbers(text: str) -> list[float]:
    return [float(n.replace(",", "").replace("−", "-")) for n in _NUMBER.findall(text)]


def _kinds(output: Any) -> dict[str, str]:
    """Return an output by media type; printed text as plain text."""
    if output["output_type"] == "stream":
        return {"stream": output["text"]}
    return dict(output["data"])


def _code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


if __name__ == "__main__":
    sys.exit(main())
