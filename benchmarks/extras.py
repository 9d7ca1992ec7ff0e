"""Optional libraries of the benchmarks: the command that installs a missing one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["advice", "show_advice"]

_LOCKS = {
    "bench": "contextualbandits mabwiser optuna pandas pyarrow river sklearn vowpalwabbit",
    "dev": "obstore redis",
    "evidence": "gymnasium lightgbm",
    "mlflow": "mlflow",
    "rag": "Stemmer bm25s charset_normalizer markdown_it onnxruntime pypdf selectolax tokenizers",
    "demo": "matplotlib plotille",
    "data": "duckdb",
    "local": "xllamacpp",
    "ray": "ray",
}
_COMMANDS = {"torch": "tools/torch"} | {
    library: f"tools/install core {lock}"
    for lock, libraries in _LOCKS.items()
    for library in libraries.split()
}


def advice(error: BaseException) -> str | None:
    """Return which library is missing and the command that installs it.

    Args:
        error: An import that failed, or an error raised from one.

    Returns:
        One line, or None if no optional library is missing.

    Example:
        >>> advice(ModuleNotFoundError("No module named 'river.bandit'", name="river.bandit"))
        'river is not installed; install it with: tools/install core bench'
        >>> advice(ValueError()) is None
        True
    """
    cause: BaseException | None = error
    while cause is not None:
        library = (getattr(cause, "name", None) or "").partition(".")[0]
        if isinstance(cause, ImportError) and library in _COMMANDS:
            return f"{library} is not installed; install it with: {_COMMANDS[library]}"
        cause = cause.__cause__
    return None


def show_advice(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print one line for a missing library, otherwise the traceback; for `sys.excepthook`.

    Imports at the top of a benchmark fail before its command can catch them.
    """
    message = advice(error)
    if message is None:
        sys.__excepthook__(kind, error, trace)
    else:
        print(f"Error: {message}", file=sys.stderr)
