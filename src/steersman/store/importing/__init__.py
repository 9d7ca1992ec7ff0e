"""Logs from elsewhere as decisions: evidence where propensities are known, else a warm start."""

from __future__ import annotations

from steersman.store.importing.loading import ImportReport, Refusal, import_log
from steersman.store.importing.mapping import LogMapping, load_mapping

__all__ = ["ImportReport", "LogMapping", "Refusal", "import_log", "load_mapping"]
