"""Personal data taken out of texts before they are kept: what is found, and what takes its place.

It lives with the store, since the promise is about what is stored; nothing here reads or writes.
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
