"""Learning on routing data: what is learned where there is something to learn, and what is said."""

import os
from pathlib import Path

import numpy as np
import pytest

from steersman.errors import InputError
from steersman_systems.assistant.routers import RouterWorld, load_router
from steersman_systems.assistant.routing_trial import learn_routing
from steersman_systems.assistant.tool_choice import right_tools

WORDS = ("train station", "bank account", "rain tomorrow", "pizza oven", "tax form")


def world(n, *, right, task="t", seed=0):
    """Return requests of five kinds; the choice ``right(kind)`` earns 1, others nothing."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, len(WORDS), n)
    texts = tuple(f"{WORDS[kind]} {rng.integers(0, 50)}" for kind in kinds)
    rewards = np.zeros((n, len(WORDS)))
    rewards[np.arange(n), [right(kind) for kind in kinds]] = 1.0
    about = {"task": task} if task else {}
    return RouterWorld(
        name="made",
        texts=texts,
        contexts=tuple({"text": text, **about} for text in texts),
        rewards=rewards,
        names=tuple("abcde"),
        train=np.arange(n) < n // 2,
        descriptions=() if task else WORDS,
    )


def test_what_texts_tell_is_learned_and_the_interval_is_over_requests():
    made = world(600, right=lambda kind: kind)
    routed = learn_routing(made, orders=2)
    assert (routed.requests, routed.choices, routed.orders, routed.warm) == (300, 5, 2, 300)
    test = made.rewards[~made.train]
    best = made.names.index(routed.best_fixed_choice)
    assert routed.best_fixed_choice == made.best_fixed()
    assert routed.best_fixed == pytest.approx(test[:, best].mean())
    assert routed.oracle == 1.0
    assert routed.learned > 0.9
    value, low, high = routed.gain
    assert value == pytest.approx(routed.learned - routed.best_fixed)
    gain_is_about_one_or_none = 1.96 * np.sqrt(value * (1 - value) / 300)
    assert high - low == pytest.approx(2 * gain_is_about_one_or_none, rel=0.1)
    assert learn_routing(made, orders=2) == routed


def test_where_texts_tell_nothing_nothing_is_gained():
    made = world(400, right=lambda _: 3)
    routed = learn_routing(made, orders=1)
    assert routed.best_fixed_choice == "d"
    assert routed.best_fixed == routed.oracle == 1.0
    assert routed.gain[0] <= 0.0


def test_tools_are_learned_from_right_or_wrong_alone():
    made = world(1200, right=lambda kind: kind, task="")
    assert made.has_one_right
    said = []
    routed = learn_routing(made, done=lambda: said.append(1))
    assert (routed.requests, routed.orders, routed.warm, said) == (600, 1, 0, [1])
    rows, right = right_tools(made)
    assert routed.learned == right.mean()
    share = made.rewards[rows].mean(axis=0)
    assert routed.best_fixed == pytest.approx(share.max())
    assert routed.best_fixed_choice == made.names[int(share.argmax())]
    assert routed.late > 0.9
    assert routed.gain[1] > 0.5


def test_what_is_too_little_to_decide_is_refused():
    with pytest.raises(InputError, match="orders is 0; allowed: 1 or more"):
        learn_routing(world(40, right=lambda kind: kind), orders=0)
    for task in ("t", ""):
        with pytest.raises(InputError, match=r"made has \d requests to decide; at least 4"):
            learn_routing(world(3, right=lambda kind: kind, task=task))


@pytest.mark.slow
def test_routerbench_gains_over_its_best_model():
    folder = os.environ.get("STEERSMAN_DATA")
    if folder is None or not (Path(folder) / "routerbench_subset").is_dir():
        pytest.skip("set STEERSMAN_DATA to a directory that holds routerbench_subset")
    pytest.importorskip("pyarrow")
    routed = learn_routing(load_router("routerbench_subset", Path(folder)), orders=3)
    assert routed.best_fixed_choice == "gpt-4-1106-preview"
    assert routed.gain[1] > 0.0
