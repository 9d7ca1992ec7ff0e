"""Check of a stored verdict against its stored inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import InputError
from steersman.rollouts.verdicts import rejudge

if TYPE_CHECKING:
    from steersman.db.verdicts import VerdictRow


def recompute(row: VerdictRow) -> bool:
    """Return whether a verdict and its reasons follow from its inputs."""
    try:
        again = rejudge(row.inputs)
    except InputError:
        return False
    return (again.verdict, list(again.reasons), again.step) == (row.verdict, row.reasons, row.step)
