"""Every ``python`` block of the documentation is run, and the output it shows is compared.

A block that prints must be followed by a ``text`` block with exactly that output; a block written
with ``>>>`` is a doctest. Blocks of one page share their names, from top to bottom.
"""

from pathlib import Path

from tools.snippets import collect

pytest_collect_file = collect(
    root=str(Path(__file__).parent), patterns=("README.md", "docs/*.md", "docs/**/*.md")
)
