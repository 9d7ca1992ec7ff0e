"""JSON log lines, one per event, with secrets masked."""

from __future__ import annotations

import logging
import os
import re
from datetime import UTC, datetime

import msgspec

from steersman.errors import InputError

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_SECRETS = (
    (re.compile(r"sk_[A-Za-z0-9]{8,}"), "sk_***"),
    (re.compile(r"(?i)(bearer\s+)[^\s'\"\\]+"), r"\1***"),
    (re.compile(r"(?<=://)([^:@/\s]*):[^@/\s]+(?=@)"), r"\1:***"),
)


class JsonFormatter(logging.Formatter):
    """Log formatter for JSON that masks API keys, bearer tokens and passwords in URLs.

    >>> record = logging.makeLogRecord({"name": "a", "levelname": "INFO", "msg": "Bearer x"})
    >>> JsonFormatter().format(record)
    '{"at":"...","level":"INFO","logger":"a","message":"Bearer ***"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return one JSON line."""
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": mask(record.getMessage()),
        }
        if record.exc_info:
            line["error"] = mask(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


def mask(text: str) -> str:
    """Return a text with keys, tokens and passwords replaced by ``***``.

    >>> mask("postgresql://me:pw@host/db asked with sk_abcdefghijkl")
    'postgresql://me:***@host/db asked with sk_***'
    """
    for pattern, masked in _SECRETS:
        text = pattern.sub(masked, text)
    return text


def configure_logging() -> None:
    """Log to standard error as JSON, from level `STEERSMAN_LOG_LEVEL` (default INFO).

    Raises:
        InputError: the level is unknown; logging stays unchanged.
    """
    level = (os.environ.get("STEERSMAN_LOG_LEVEL") or "INFO").upper()
    if level not in _LEVELS:
        raise InputError(
            f"invalid STEERSMAN_LOG_LEVEL {level[:40]!r}: allowed are {', '.join(_LEVELS)}; "
            "default INFO"
        )
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    # Invalid HTTP is answered but not logged: anybody can send it in any amount.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.basicConfig(handlers=[handler], level=level, force=True)
