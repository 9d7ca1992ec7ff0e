"""``python -m steersman.cli``: the command, by the interpreter that runs it."""

from __future__ import annotations

from steersman.cli import main

if __name__ == "__main__":
    main(prog_name="steersman")
