"""Entry point of ``python -m steersman.cli``."""

from __future__ import annotations

from steersman.cli import main

if __name__ == "__main__":
    main(prog_name="steersman")
