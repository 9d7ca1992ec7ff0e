"""Header of a policy state, checked before the arrays are used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from steersman.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_HEADER = 8 * 1024 * 1024
MAX_CONTAINERS = 100_000  # a few bytes each in JSON, hundreds in memory


def state_header(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON header (``"meta"``) of an untrusted policy state.

    Length and number of containers are checked first, so that parsing cannot use a hundred times
    the memory of the input.

    Raises:
        VerificationError: it is missing, too large, too deeply nested, or not a JSON object.

    >>> from steersman.policies import LinUCB
    >>> state_header(LinUCB(["a", "b"], dim=2).state())["algorithm"]
    'lin_ucb'
    """
    raw = state.get("meta")
    if not isinstance(raw, np.ndarray) or raw.dtype != np.uint8 or raw.ndim != 1:
        message = "the state has no header: 'meta' must be a (n,) uint8 array; publish it again"
        raise VerificationError(message)
    text = raw.tobytes() if raw.size <= MAX_HEADER else b""
    if not text or text.count(b"[") + text.count(b"{") > MAX_CONTAINERS:
        message = (
            f"the state's header has {raw.size:,} bytes; allowed are 1 to {MAX_HEADER:,} with at "
            f"most {MAX_CONTAINERS:,} lists and objects; fewer keys or merged ids make it shorter"
        )
        raise VerificationError(message)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"the state's header is not JSON ({error}); use an older snapshot or relearn it"
        raise VerificationError(message) from None
    if not isinstance(header, dict) or not isinstance(header.get("config"), dict):
        message = "the state's header must be an object with a 'config'; use an older snapshot"
        raise VerificationError(message)
    return header
