"""Values of kinds that an argument is not of, each given in its place."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import SteersmanError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WRONG = [
    None, 0, -1, 1.5, float("nan"), float("inf"), True, 10**400, 10**5000, 5e-324, 1e300,
    np.timedelta64(1), "", "x", b"x", object(), {}, {"a": 1}, [], [None], ["a", 1], [[1], [1, 2]],
    np.zeros(0), np.zeros((3, 3, 3)), np.zeros((0, 2), bool), np.zeros((0, 4), object),
    np.array(["a"]), np.array([None]), np.array(1j), np.array([np.inf, 1]), np.array(5.0),
]  # fmt: skip


def refused(call: Callable[..., Any], right: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what a call says, by argument, when each is each of `WRONG`.

    What is right is taken, and anything but an error of ours ends the test.
    """
    call(**deepcopy(right))
    messages: dict[str, list[str]] = {argument: [] for argument in right}
    for argument, said in messages.items():
        for wrong in WRONG:
            try:
                call(**{**deepcopy(right), argument: wrong})
            except SteersmanError as error:
                said.append(str(error))
    return messages
