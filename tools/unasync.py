"""Generates the sync half of the client from its async half: ``python -m tools.unasync``.

It removes ``await`` and ``async`` and renames the names in `NAMES`. Comments and strings stay.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "sdk" / "python" / "steersman_client"
SOURCES = {"async_client.py": "sync_client.py", "async_http.py": "sync_http.py"}
NAMES = {
    "AsyncClient": "Client",
    "AsyncTransport": "SyncTransport",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "async_http": "sync_http",
    "async_io": "sync_io",
}


def main() -> int:
    """Write the generated files; return the exit status."""
    for source, target in SOURCES.items():
        (PACKAGE / target).write_text(generated(source), encoding="utf-8")
        print(f"wrote {(PACKAGE / target).relative_to(PACKAGE.parents[2])}")
    return 0


def generated(source: str) -> str:
    """Return the sync form of a file of the package.

    Args:
        source: name of the async file.
    """
    text = sync_form((PACKAGE / source).read_text(encoding="utf-8"))
    text = f"# Generated from {source} by `python -m tools.unasync`; edit that file.\n{text}"
    for command in ("check --fix-only --select=I", "format"):
        name = str(PACKAGE / SOURCES[source])
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command.split(), "-q", "--stdin-filename", name, "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def sync_form(text: str) -> str:
    r"""Return Python source without ``async`` and ``await``.

    >>> sync_form("async def run() -> None:\n    await stop(AsyncClient)\n")
    'def run() -> None:\n    stop(Client)\n'
    """
    lines = text.splitlines(keepends=True)
    tokens = [*tokenize.generate_tokens(io.StringIO(text).readline)]
    # From the end, so that earlier positions in a line stay valid.
    for token, after in zip(reversed(tokens[:-1]), reversed(tokens[1:]), strict=True):
        if token.type != tokenize.NAME and token.type not in _KEYWORDS:
            continue
        (row, begin), (_, end) = token.start, token.end
        line = lines[row - 1]
        if token.string in {"async", "await"}:
            lines[row - 1] = line[:begin] + line[after.start[1] :]
        elif token.string in NAMES:
            lines[row - 1] = line[:begin] + NAMES[token.string] + line[end:]
    return "".join(lines)


_KEYWORDS = {getattr(tokenize, name) for name in ("ASYNC", "AWAIT") if hasattr(tokenize, name)}


if __name__ == "__main__":
    raise SystemExit(main())
