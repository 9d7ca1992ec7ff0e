"""A judge is distilled; what comes of it stands beside what its length alone would say."""

import numpy as np
import pytest
from scipy.optimize import minimize

from steersman.errors import InputError
from steersman.providers.judges.pairwise import Pair
from steersman_systems.evidence_selection.reward_model import (
    TRAITS,
    Preferred,
    distil,
    distilled_report,
    trait_differences,
)

RNG = np.random.default_rng(0)
WORDS = ("wing", "lift", "drag", "air", "flow", "speed", "jet", "heat")


def answer(words, count):
    return " ".join(RNG.choice(words, count)) + "."


def pairs(count):
    """Pairs in which one answer speaks of what is asked and the other does not."""
    found = []
    for _ in range(count):
        asked = list(RNG.choice(WORDS, 3, replace=False))
        near = answer(asked, int(RNG.integers(3, 20)))
        far = answer(("stone", "lamp", "cup", "door"), int(RNG.integers(3, 20)))
        better = int(RNG.integers(1, 3))
        pair = Pair(" ".join(asked) + "?", *((near, far) if better == 1 else (far, near)))
        found.append(Preferred(pair, better))
    return found


def test_what_the_judge_goes_by_is_found_and_beats_length():
    human = pairs(200)
    found = distilled_report(human, human)
    assert found.model.value > 0.95
    assert abs(found.length.value - 0.5) < 0.12
    assert found.ahead.low > 0.3
    assert found.judge.value == 1.0
    assert "length baseline" in str(found)


@pytest.mark.parametrize("longer", [True, False])
def test_a_judge_of_length_gives_a_model_that_is_no_better_than_length(longer):
    human = pairs(200)
    judged = []
    for one in human:
        first = len(one.pair.first.split()) > len(one.pair.second.split())
        judged.append(Preferred(one.pair, 1 if first == longer else 2))
    found = distilled_report(judged, judged)
    assert found.length.value > 0.85
    assert abs(found.ahead.value) < 0.05


def test_twelve_right_answers_prove_no_model_to_be_always_right():
    human = [
        Preferred(Pair(f"question {n}?", "many words " * (4 + n % 3), "short"), 1)
        for n in range(12)
    ]
    found = distilled_report(human, human, folds=3)
    assert (found.model.value, found.length.value, found.ahead.value) == (1.0, 1.0, 0.0)
    for share in (found.model, found.length, found.judge):
        assert (round(share.low, 3), share.high) == (0.735, 1.0)
    assert round(found.ahead.low, 3) == -round(found.ahead.high, 3) == -0.265


def test_swapping_the_answers_turns_the_verdict_round():
    human = pairs(50)
    rows = trait_differences([one.pair for one in human])
    model = distil(rows, np.array([one.better for one in human]))
    swapped = trait_differences(
        [Pair(one.pair.question, one.pair.second, one.pair.first) for one in human]
    )
    np.testing.assert_allclose(model.log_odds(rows), -model.log_odds(swapped), atol=1e-12)


def test_the_weights_are_those_of_a_second_implementation():
    human = pairs(60)
    rows = trait_differences([one.pair for one in human])
    better = np.array([one.better for one in human])
    model = distil(rows, better, ridge=0.7)
    signs = np.where(better == 1, 1, -1)

    def loss(weights):
        odds = (rows / model.scales) @ weights * signs
        return np.log1p(np.exp(-odds)).sum() + 0.35 * weights @ weights

    again = minimize(loss, np.zeros(len(TRAITS)), method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(model.weights, again.x, atol=2e-3)


def test_traits_are_counted():
    one = Pair("Which wing?", "The wing, I'm sorry.\nNo 7 wing!", "x", ("A wing.",))
    row = dict(zip(TRAITS, trait_differences([one])[0], strict=True))
    assert row["length"] == pytest.approx(np.log(8) - np.log(2))
    assert (row["words_of_question"], row["refusal"]) == (1.0, 1.0)
    assert row["lines"] == pytest.approx(np.log(2))
    assert row["near_question"] == 0.0


def test_abstentions_teach_nothing_and_count_as_half_right():
    human = pairs(40)
    found = distilled_report([None if n % 2 else one for n, one in enumerate(human)], human)
    assert found.judge.value == 0.75
    assert found.pairs == 40


@pytest.mark.slow
def test_pairs_of_one_prompt_are_held_out_together_and_count_as_one():
    human = [one for one in pairs(30) for _ in range(12)]
    alone = distilled_report(human, human, groups=[str(n) for n in range(360)])
    found = distilled_report(human, human)
    assert found.pairs == alone.pairs == 360
    for mine, theirs in ((found.length, alone.length), (found.ahead, alone.ahead)):
        assert mine.high - mine.low > 2 * (theirs.high - theirs.low)
    with pytest.raises(
        InputError,
        match=r"folds is 5; allowed: 2 to 20, and at most .* or single questions, 1",
    ):
        distilled_report(human[:12], human[:12])
    with pytest.raises(InputError, match="1 groups for 360 pairs; give one for each"):
        distilled_report(human, human, groups=["a"])


def test_what_cannot_be_learned_from_is_refused():
    human = pairs(6)
    with pytest.raises(InputError, match="5 judged and 6 human pairs"):
        distilled_report(human[:5], human)
    with pytest.raises(InputError, match="1 pairs with ridge"):
        distil(np.zeros((1, 2)), np.array([1]))
    with pytest.raises(InputError, match="better is 0; allowed: 1 and 2"):
        Preferred(human[0].pair, 0)
