"""The Open Bandit Dataset (small version): rows of the random and the Thompson-sampling logs."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["CAMPAIGNS", "ORIGIN", "BanditLog", "load_log"]

CAMPAIGNS = {"all": 80, "men": 34}
ORIGIN = "https://github.com/st-tech/zr-obp (obd folder of the obp wheel on PyPI, Apache-2.0)"


@dataclass(frozen=True, eq=False)
class BanditLog:
    """One policy's log of one campaign.

    Args:
        items: Item shown, in [0, K), shape (n,).
        clicks: 1 where it was clicked, shape (n,).
        propensities: Logged probability of the item at its position, shape (n,).
        actions: K, the number of items.
    """

    items: NDArray[np.int64]
    clicks: Floats
    propensities: Floats
    actions: int


def load_log(folder: Path, policy: str, campaign: str) -> BanditLog:
    """Return one log in the published CSV format.

    Args:
        folder: Directory that holds ``random/`` and ``bts/``.
        policy: ``"random"`` or ``"bts"``.
        campaign: ``"all"`` (80 items) or ``"men"`` (34).

    Returns:
        The rows in their order.

    Raises:
        DataError: The file is missing or has other columns.
    """
    file = folder / policy / campaign / f"{campaign}.csv"
    if not file.is_file():
        message = f"{file} is missing; the original is at {ORIGIN}"
        raise DataError(message)
    columns = ("item_id", "click", "propensity_score")
    with file.open(newline="", encoding="utf-8") as lines:
        reader = csv.reader(lines)
        header = next(reader)
        if missing := [name for name in columns if name not in header]:
            message = f"{file} has no column {', '.join(missing)}; the original is at {ORIGIN}"
            raise DataError(message)
        at = [header.index(name) for name in columns]
        rows = np.array([[float(row[i]) for i in at] for row in reader])
    return BanditLog(rows[:, 0].astype(np.int64), rows[:, 1], rows[:, 2], CAMPAIGNS[campaign])
