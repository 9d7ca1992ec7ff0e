"""Scrubbing: removes personal data from texts before storage.

It is part of the store because it concerns stored data; it reads and writes nothing.
"""

from __future__ import annotations

from steersman.store.scrubbing.declared import (
    Scrubbing,
    check_scrubbers,
    scrubbing_of,
    scrubbing_of_events,
)
from steersman.store.scrubbing.installed import Scrubber
from steersman.store.scrubbing.texts import UNSCRUBBABLE, Finding, find, scrub, scrub_key

__all__ = [
    "UNSCRUBBABLE",
    "Finding",
    "Scrubber",
    "Scrubbing",
    "check_scrubbers",
    "find",
    "scrub",
    "scrub_key",
    "scrubbing_of",
    "scrubbing_of_events",
]
