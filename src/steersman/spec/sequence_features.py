"""Built-in columns of sequence actions, in addition to the declared features."""

from __future__ import annotations

STANDING = (
    *("hop", "linked", "linked_last", "novelty", "picked", "is_pick", "is_stop", "stop_after"),
)
"""Columns that describe the state of the selection, in order.

hop: number of links followed to the candidate; 0 for an initial candidate. linked: number of picked
candidates that link to it. linked_last: whether the last pick links to it. novelty: 1 minus the
largest cosine similarity of its vector to a picked vector; 1 without vectors. picked: number of
picks so far. is_pick, is_stop: type of the action. stop_after: number of picks so far, for stop
only. All other columns are 0 for stop.
"""
