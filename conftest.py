"""What all tests share: how examples are drawn, and the documentation as tests.

Every ``python`` block of the documentation is run, and the output it shows is compared. A block
that prints must be followed by a ``text`` block with exactly that output; a block written with
``>>>`` is a doctest. Blocks of one page share their names, from top to bottom.
"""

from pathlib import Path

from hypothesis import HealthCheck, settings

from tools.snippets import collect

# A busy machine is no failure: hypothesis otherwise fails an example that took more than 200 ms, or
# one that was slow to draw. All else is as hypothesis has it: fixed examples under CI.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

pytest_collect_file = collect(
    root=str(Path(__file__).parent), patterns=("README.md", "docs/*.md", "docs/**/*.md")
)
