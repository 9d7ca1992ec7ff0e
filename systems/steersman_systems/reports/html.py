"""Figures as SVG and PNG, and self-contained HTML pages."""

from __future__ import annotations

import io
from html import escape
from typing import TYPE_CHECKING, Any

from steersman.errors import DataError
from steersman.errors.install_hint import how_to_install

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.4rem; }
h3 { font-size: 1.05rem; margin-top: 1.6rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto;
  font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.5rem 0; background: #fff; border-radius: .4rem; padding: .5rem; }
figure svg { width: 100%; height: auto; }
figcaption { color: #444; font-size: .9rem; padding: 0 .5rem; }
"""


def new_axes(across: str, up: str, *, height: float = 3.6) -> tuple[Any, Any]:
    """Return an empty figure and its axes in the report style.

    Args:
        height: height in inches; the width is 8.

    Raises:
        DataError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 -- an extra, and heavy
    except ImportError as error:
        message = "matplotlib is not installed; the page needs: "
        raise DataError(message + how_to_install("demo")) from error
    figure = Figure(figsize=(8.0, height), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def as_svg(figure: Any) -> str:
    """Return a figure as an SVG element; equal figures give equal bytes."""
    from matplotlib import rc_context  # noqa: PLC0415 -- an extra, and heavy

    written = io.StringIO()
    # Without a date and random ids, equal reports give equal pages.
    with rc_context({"svg.hashsalt": "steersman"}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    svg = written.getvalue()
    return str(svg[svg.index("<svg") :])


def captioned(svg: str, caption: str) -> str:
    """Return a figure element with a plain caption."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of plain text."""
    return html_table(heads, (map(escape, row) for row in rows))


def html_table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table with plain headings and HTML cells.

    >>> html_table(["a & b"], [["<b>1</b>"]]).replace(chr(10), "")
    '<table><tr><th>a &amp; b</th></tr><tr><td><b>1</b></td></tr></table>'
    """
    lines = [_row("th", map(escape, heads)), *(_row("td", row) for row in rows)]
    return "\n".join(["<table>", *lines, "</table>"])


def _row(kind: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{kind}>{cell}</{kind}>' for cell in cells)}</tr>"


def write_html(file: Path, title: str, body: Iterable[str], *, style: str = "") -> None:
    """Write a page.

    Args:
        style: CSS rules after the common ones.

    Raises:
        DataError: the file cannot be written.
    """
    page = (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style>\n<body>\n"
    )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page + "\n".join(body) + "\n</body>\n</html>\n", encoding="utf-8")
    except OSError as error:
        message = f"{file} cannot be written: {error}; name a file in a folder that can be"
        raise DataError(message) from error
