"""Whatever is given in place of an argument, the error is ours: it says what is allowed."""

from __future__ import annotations

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.ope import (
    LoggedData,
    LoggedSequences,
    drawn_or_another,
    evaluate,
    evaluate_sequences,
    never_drawn,
    requests_needed,
    suited_estimator,
)
from steersman.ope.paired import off_policy_delta
from tests.wrong_values import WRONG, refused

LOG = LoggedData([0, 1] * 200, [1.0, 0.0] * 200, [0.5] * 400, [[0.5, 0.5]] * 400)
HALF, WHOLE = np.full((200, 2), 0.5), np.ones((200, 2))
SEQUENCES = LoggedSequences(HALF, HALF, WHOLE, np.full(200, 2))
CALLS = {
    "log": (
        LoggedData,
        {
            "actions": [0, 1], "rewards": [1.0, 0.0], "propensities": [0.5, 0.5],
            "target": [[0.5, 0.5]] * 2, "q_hat": None, "contexts": None, "clusters": None,
            "reward_range": None, "missing": None, "names": None,
        },
    ),
    "sequences": (
        LoggedSequences,
        {
            "propensities": HALF, "target": HALF, "rewards": WHOLE, "lengths": np.full(200, 2),
            "q_hat": None, "v_hat": None, "clusters": None,
        },
    ),
    "evaluate": (
        evaluate,
        {
            "data": LOG, "estimators": ("ips", "dr"), "interval": "wald", "level": 0.95,
            "resamples": 100, "adaptive": False, "seed": 0,
        },
    ),
    "evaluate_sequences": (
        evaluate_sequences,
        {"data": SEQUENCES, "estimators": ("pdis",), "level": 0.95, "adaptive": False},
    ),
    "needed": (
        requests_needed,
        {
            "pilot": LOG, "effect": 0.1, "estimator": "dr", "power": 0.8, "level": 0.95,
            "adaptive": False, "seed": 0,
        },
    ),
    "delta": (
        off_policy_delta,
        {
            "first": LOG, "second": LOG, "estimator": "dr", "adaptive": True, "level": 0.95,
            "seed": 0,
        },
    ),
    "suited": (suited_estimator, {"data": LOG}),
    "drawn": (drawn_or_another, {"masses": [0.5]}),
    "never": (never_drawn, {"actions": [0, 1], "target": [[0.5, 0.5]] * 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_error_says_what_is_allowed(name):
    for argument, messages in refused(*CALLS[name]).items():
        assert len(messages) >= len(WRONG) // 2, argument
        assert max(map(len, messages)) < 600


def test_sequences_want_their_three_tables():
    for name in ("propensities", "target", "rewards"):
        tables = {"propensities": HALF, "target": HALF, "rewards": WHOLE, name: None}
        with pytest.raises(InputError, match=f"{name} has type object; allowed: real numbers"):
            LoggedSequences(**tables, lengths=np.full(200, 2))
