"""What every point of kind sequence knows of an action beside the features that it declares."""

from __future__ import annotations

STANDING = (
    *("hop", "linked", "linked_last", "novelty", "picked", "is_pick", "is_stop", "stop_after"),
)
"""Columns that tell where the selection stands, in their order.

hop: links followed to the candidate; 0: it was there from the start. linked: picked candidates
that lead to it. linked_last: whether the one picked last does. novelty: 1 less the largest cosine
of its vector with that of a picked one; 1 without vectors. picked: picked so far. is_pick, is_stop:
what the action is. stop_after: of stop alone, picked so far. All others are 0 for stop.
"""
