"""Snapshots: publish, guard, promote, reproduce, retract and compare versions."""
