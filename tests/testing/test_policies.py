"""The contract of policies catches classes that are wrong in one thing alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from steersman.errors import InputError
from steersman.policies import ChoicePolicy, LinUCB
from steersman.testing import check_policy

NAMES = ["small", "medium", "large", "huge"]


class Boltzmann(ChoicePolicy):
    """Right in everything: that of `docs/how-to/add-a-policy.md`, with limits left out."""

    algorithm = "boltzmann"
    reads = "nothing"

    def __init__(self, actions, *, temperature=1.0, floor=0.0):
        super().__init__(actions, floor=floor)
        self.temperature = temperature
        self._counts, self._totals = np.zeros((2, len(self.actions)))

    def _score(self, x, mask, features):
        means = self._totals / np.maximum(self._counts, 1.0)
        power = np.exp(means / self.temperature)
        if mask is not None:
            power = np.where(mask, power, 0.0)
        return means, power / power.sum()

    def _learn(self, x, index, reward, weight, bucket):
        self._learn_batch(None, np.array([index]), [reward], np.array([weight]), None)

    def _learn_batch(self, rows, indexes, rewards, weights, buckets):
        values = np.array([self._checked(reward) for reward in rewards])
        np.add.at(self._counts, indexes, weights)
        np.add.at(self._totals, indexes, weights * values)

    def _revise(self, x, index, change, weight, bucket):
        self._totals[index] += weight * change

    def _withdraw(self, x, index, reward, weight, bucket):
        self._counts[index] -= weight
        self._totals[index] -= weight * reward

    def _checked(self, reward):
        if not abs(reward) <= 1e6:
            raise InputError(f"reward is {reward!r}; allowed: -1e6 to 1e6; scale it")
        return float(reward)

    def _config(self):
        return {"temperature": self.temperature}

    def _sums(self):
        return {"count": self._counts.copy(), "total": self._totals.copy()}

    def _sum_shapes(self, meta):
        return {"count": (len(self.actions),), "total": (len(self.actions),)}

    def _load(self, meta, sums):
        self._counts, self._totals = np.array(sums["count"]), np.array(sums["total"])

    def _action_axes(self):
        return {"count": 0, "total": 0}


@pytest.mark.parametrize("algorithm", ["boltzmann", 'said "so"', "back\\slash", "another", "größe"])
def test_a_right_one_passes_whatever_it_is_called(algorithm):
    named = type("Named", (Boltzmann,), {"algorithm": algorithm})
    check_policy(named(NAMES, temperature=5.0, floor=0.1))


class ForgetsItsTemperature(Boltzmann):
    def _config(self):
        return {}


class LearnsUnweighted(Boltzmann):
    def _learn(self, x, index, reward, weight, bucket):
        super()._learn(x, index, reward, 1.0, bucket)

    def _learn_batch(self, rows, indexes, rewards, weights, buckets):
        super()._learn_batch(rows, indexes, rewards, np.ones(len(indexes)), buckets)

    def _revise(self, x, index, change, weight, bucket):
        super()._revise(x, index, change, 1.0, bucket)

    def _withdraw(self, x, index, reward, weight, bucket):
        super()._withdraw(x, index, reward, 1.0, bucket)


class LearnsWeightsOfOneAtMost(Boltzmann):
    def _learn_batch(self, rows, indexes, rewards, weights, buckets):
        super()._learn_batch(rows, indexes, rewards, np.minimum(weights, 1.0), buckets)


class RevisesUnweighted(Boltzmann):
    def _revise(self, x, index, change, weight, bucket):
        super()._revise(x, index, change, 1.0, bucket)


class WithdrawsUnweighted(Boltzmann):
    def _withdraw(self, x, index, reward, weight, bucket):
        super()._withdraw(x, index, reward, 1.0, bucket)


class AllowsAllBetween(Boltzmann):
    """Takes what is eligible for a range of places."""

    def _mask(self, eligible):
        mask = super()._mask(eligible)
        if mask is not None:
            mask[mask.argmax() : np.flatnonzero(mask)[-1]] = True
        return mask


class ReadsEligibleByPlace(Boltzmann):
    """Favours what a request names first."""

    def _decide(self, x, eligible, features):
        names, mask, scores, p = super()._decide(x, eligible, features)
        if eligible is not None:
            first = np.array([name == eligible[0] for name in names])
            p = 0.9 * p + 0.1 * first
        return names, mask, scores, p


class KeepsNoFloorBackwards(Boltzmann):
    def _decide(self, x, eligible, features):
        names, mask, scores, p = super()._decide(x, eligible, features)
        backwards = eligible is not None and list(eligible) != sorted(eligible, key=NAMES.index)
        return names, mask, scores, self._score(x, mask, features)[1] if backwards else p


class ScoresOnlyTheEligible(Boltzmann):
    def decide(self, x, *, rng, eligible=None, features=None):
        choice = super().decide(x, rng=rng, eligible=eligible, features=features)
        return replace(choice, scores=choice.scores[choice.eligible])


class AnswersWithItsOwnArray(Boltzmann):
    """Keeps the last answer of `distribution`, and hands it out again."""

    kept = None

    def distribution(self, x, *, eligible=None, features=None):
        asked = (self.updates, self.actions, None if eligible is None else tuple(eligible))
        if self.kept is None or self.kept[0] != asked:
            self.kept = asked, super().distribution(x, eligible=eligible, features=features)
        return self.kept[1]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ForgetsItsTemperature, "`_config` must return every constructor argument"),
        (LearnsUnweighted, "an update of weight 0 must change nothing"),
        (LearnsWeightsOfOneAtMost, "weight 2 must equal learning twice"),
        (RevisesUnweighted, "a corrected reward must give the same state"),
        (WithdrawsUnweighted, "a withdrawn update must leave no trace"),
        (AllowsAllBetween, "lists other actions than the eligible ones"),
        (ReadsEligibleByPlace, "look actions up by name"),
        (KeepsNoFloorBackwards, "below the floor"),
        (ScoresOnlyTheEligible, "one number per action"),
        (AnswersWithItsOwnArray, "return a new array each time"),
    ],
)
def test_what_is_wrong_in_one_thing_is_told(kind, said):
    with pytest.raises(AssertionError, match=said):
        check_policy(kind(NAMES, temperature=0.05, floor=0.3))


class Clips(LinUCB):
    """Takes features of up to half a unit, and makes them so in the caller's own array."""

    def learn(self, x, action, reward, **more):
        if isinstance(x, np.ndarray) and np.isfinite(x).all() and np.abs(x).max(initial=0) < 1e3:
            np.clip(x, -0.5, 0.5, out=x)
        super().learn(x, action, reward, **more)


class ClearsRows(LinUCB):
    def _learn_batch(self, rows, indexes, rewards, weights, buckets):
        super()._learn_batch(rows, indexes, rewards, weights, buckets)
        rows *= 0


class RoundsRewards(LinUCB):
    def _learn_batch(self, rows, indexes, rewards, weights, buckets):
        super()._learn_batch(rows, indexes, rewards, weights, buckets)
        if isinstance(rewards, np.ndarray):
            np.round(rewards, out=rewards)


class SortsEligible(LinUCB):
    def _decide(self, x, eligible, features):
        if isinstance(eligible, list):
            eligible.sort()
        return super()._decide(x, eligible, features)


class ClearsCounts(LinUCB):
    @classmethod
    def from_state(cls, state):
        policy = super().from_state(state)
        state["count"] *= 0
        return policy


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Clips, "learn changed the x"),
        (ClearsRows, "learn_batch changed the X"),
        (RoundsRewards, "learn_batch changed the rewards"),
        (SortsEligible, "decide changed the request"),
        (ClearsCounts, "from_state changed the state"),
    ],
)
def test_what_writes_to_the_callers_arrays_is_told(kind, said):
    wrong = type(kind.__name__, (kind,), {"algorithm": kind.__name__})
    with pytest.raises(AssertionError, match=said):
        check_policy(wrong(NAMES, 4, floor=0.1))


def test_class_that_does_not_say_what_it_reads_is_refused():
    silent = type("Silent", (Boltzmann,), {"reads": None})
    with pytest.raises(InputError, match="set the class attribute reads to one of vector, key"):
        check_policy(silent(NAMES))
