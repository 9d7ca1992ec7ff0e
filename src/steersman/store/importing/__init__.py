"""Import of external logs as decisions: evidence with propensities, warm start without."""

from __future__ import annotations

from steersman.store.importing.loading import ImportReport, Refusal, import_log
from steersman.store.importing.mapping import LogMapping, load_mapping

__all__ = ["ImportReport", "LogMapping", "Refusal", "import_log", "load_mapping"]
