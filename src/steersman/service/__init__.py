"""The HTTP service: decides, takes events in, explains, and answers even when it cannot."""

from __future__ import annotations

__all__: list[str] = []
