"""From outcomes to states: one learner per decision point, replicas that follow it, relearning."""

from __future__ import annotations

from steersman.learn.replica import Replica, catch_up, load, state_at

__all__ = ["Replica", "catch_up", "load", "state_at"]
