"""The demo's prior over the store is that of the replay in one process."""

import numpy as np
import pytest

from steersman.rewards import evaluate
from steersman_systems.assistant.choosers import PRIOR_REWARD
from steersman_systems.assistant.demo.http_choosers import ServiceAnswer
from steersman_systems.assistant.demo.prior import worth
from steersman_systems.assistant.demo.service import learning_lags
from steersman_systems.assistant.points import load_points


@pytest.mark.parametrize("name", ["cache", "route"])
def test_imagined_outcomes_earn_the_imagined_reward(name):
    spec = getattr(load_points(), name)
    assert evaluate(spec.reward, worth(spec, PRIOR_REWARD)).value == pytest.approx(0.8, abs=1e-12)


def test_lag_is_until_the_slower_process_decided_from_the_update():
    answers = [
        ServiceAnswer("p", n % 2, 100.0 + n, 1.0, seq, None, True)
        for n, seq in enumerate([0, 1, 3])
    ]
    answers += [
        ServiceAnswer("q", 1, 103.0, 1.0, 9, None, True),
        ServiceAnswer("p", 1, 104.0, 1.0, 3, None, True),
    ]
    lags = learning_lags(answers, [("p", 1, 99.0), ("p", 3, 100.0), ("p", 4, 100.0)], 2)
    assert np.allclose(sorted(lags), [3000.0, 4000.0])
    assert learning_lags(answers, [("q", 9, 100.0)], 2) == []
