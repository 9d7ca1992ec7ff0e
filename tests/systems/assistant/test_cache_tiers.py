"""The cache tiers: what hits, what a hit means, and that looking changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman_systems.assistant.cache import LOOKUPS, CacheTiers, Lookup, normalise
from steersman_systems.assistant.recent_texts import RecentTexts

DIM = 4
TEXTS = ["play jazz", "play jazz 2", "weather in Oslo", "weather in Rome", "pay bill 17", "hi"]


def unit(seed: int) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(DIM)
    return vector / np.linalg.norm(vector)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def tiers(clock: Clock, **options: float) -> CacheTiers:
    return CacheTiers(clock, dim=DIM, **{"threshold": 0.9, "negative_threshold": 0.9, **options})


def seen(cache: CacheTiers) -> list[object]:
    asked = [(text, unit(k)) for k, text in enumerate([*TEXTS, "new text"])]
    return [
        (cache.features(text), [cache.look_up(kind, text, vector) for kind in LOOKUPS])
        for text, vector in asked
    ]


steps = st.lists(
    st.tuples(
        st.integers(0, len(TEXTS) - 1),
        st.sampled_from([None, "a", "b"]),
        st.booleans(),
        st.floats(0, 500),
        st.lists(
            st.tuples(st.sampled_from(LOOKUPS), st.sampled_from(range(len(TEXTS)))), max_size=4
        ),
    ),
    max_size=30,
)


@pytest.mark.slow
@given(steps=steps)
def test_what_was_chosen_leaves_no_trace(steps) -> None:
    clock, other_clock = Clock(), Clock()
    silent, asked = (tiers(c, capacity=3, ttl_s=600) for c in (clock, other_clock))
    for text, answer, cheap_ok, wait, lookups in steps:
        clock.now_s += wait
        other_clock.now_s += wait
        for kind, other in lookups:
            asked.look_up(kind, TEXTS[other], unit(other))
            asked.features(TEXTS[other])
        for cache in (silent, asked):
            cache.update(TEXTS[text], unit(text), answer=answer, cheap_ok=cheap_ok)
    assert seen(silent) == seen(asked)


@pytest.mark.slow
@given(
    writes=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.booleans(), st.floats(0.0, 40.0)), max_size=40
    )
)
def test_the_store_agrees_with_a_plain_list(writes) -> None:
    store = RecentTexts(capacity=3, ttl_s=100.0, sizes={"meaning": DIM})
    plain: list[tuple[str, float]] = []
    now_s = 0.0
    for text, dropped, wait in writes:
        now_s += wait
        plain = [(t, at) for t, at in plain if t != text]
        if dropped:
            store.drop(text)
        else:
            store.write(text, text.upper(), {"meaning": unit(ord(text))}, now_s)
            plain = [*plain, (text, now_s)][-3:]
        alive = {t: at for t, at in plain if now_s - at <= 100.0}
        assert len(store) == len(plain)
        for t in "abcdef":
            slot = store.find(t, now_s)
            assert (slot is not None) == (t in alive)
            assert slot is None or (store.value(slot), store.text(slot)) == (t.upper(), t)
        cosine, slot = store.nearest("meaning", unit(ord("a")), now_s)
        best = max(alive, key=lambda t: unit(ord(t)) @ unit(ord("a")), default=None)
        assert (slot is None) == (best is None)
        if best is not None and slot is not None:
            assert cosine == pytest.approx(max(0.0, unit(ord(best)) @ unit(ord("a"))), abs=1e-5)


def test_exact_ignores_case_and_spacing_but_no_number() -> None:
    cache = tiers(Clock())
    cache.update("Version  1.5?", unit(0), answer="v", cheap_ok=True)
    assert cache.look_up("l1", "version 1.5?").hit
    assert not cache.look_up("l1", "version 15?").hit
    assert cache.features("VERSION 1.5?")["exact"] == 1.0


def test_a_near_duplicate_with_other_parameters_is_a_wrong_hit() -> None:
    cache = tiers(Clock())
    near = unit(0) + 0.05 * unit(1)
    cache.update("order 5 fries", unit(0), answer='order("fries", 5)', cheap_ok=True)
    found = cache.look_up("l2", "order 6 fries", near / np.linalg.norm(near))
    assert found.hit
    assert found.right('order("fries", 6)', cheap_ok=True) is False
    assert found.right('order("fries", 5)', cheap_ok=True) is True
    known = cache.features("order 6 fries")
    assert known["similarity"] > 0.5
    assert known["same_numbers"] == 0.0
    assert cache.features("order 5 big fries")["same_numbers"] == 1.0


def test_a_negative_hit_serves_nothing_and_is_right_when_the_cheap_route_fails() -> None:
    cache = tiers(Clock())
    cache.update("hard one", unit(0), answer="call", cheap_ok=False)
    found = cache.look_up("l3", "hard one", unit(0))
    assert (found.hit, found.answer) == (True, None)
    assert found.right("call", cheap_ok=False) is True
    assert found.right("call", cheap_ok=True) is False
    assert cache.look_up("l3", "hard  ONE", unit(5)).similarity == 1.0
    assert cache.features("hard one")["negative"] == pytest.approx(1.0, abs=1e-5)


def test_a_failure_is_forgiven_by_a_success_and_by_time() -> None:
    clock = Clock()
    cache = tiers(clock, negative_ttl_s=100.0)
    cache.update("hard one", unit(0), answer=None, cheap_ok=False)
    clock.now_s = 100.0
    assert cache.look_up("l3", "hard one", unit(0)).hit
    clock.now_s = 101.0
    assert not cache.look_up("l3", "hard one", unit(0)).hit
    cache.update("hard one", unit(0), answer=None, cheap_ok=False)
    cache.update("hard one", unit(0), answer="call", cheap_ok=True)
    assert not cache.look_up("l3", "hard one", unit(0)).hit


def test_answers_expire_and_are_renewed() -> None:
    clock = Clock()
    cache = tiers(clock, ttl_s=10.0)
    cache.update("hi", unit(0), answer="a", cheap_ok=True)
    clock.now_s = 8.0
    cache.update("hi", unit(0), answer="b", cheap_ok=True)
    clock.now_s = 18.0
    assert cache.look_up("l1", "hi") == Lookup("l1", True, "b", 1.0, 10.0)
    clock.now_s = 18.5
    assert cache.look_up("l1", "hi") == Lookup("l1", False)
    assert cache.look_up("l2", "hi", unit(0)) == Lookup("l2", False)


def test_a_withdrawn_answer_is_forgotten() -> None:
    cache = tiers(Clock())
    cache.update("hi", unit(0), answer="a", cheap_ok=True)
    cache.update("hi", unit(0), answer=None, cheap_ok=True)
    assert not cache.look_up("l2", "hi", unit(0)).hit


def test_bypass_never_hits_and_a_miss_is_neither_right_nor_wrong() -> None:
    cache = tiers(Clock())
    cache.update("hi", unit(0), answer="a", cheap_ok=True)
    missed = cache.look_up("bypass", "hi", unit(0))
    assert not missed.hit
    assert missed.right("a", cheap_ok=True) is None


def test_memory_stays_bounded() -> None:
    store = RecentTexts(capacity=5, ttl_s=1e9, sizes={"meaning": DIM})
    for k in range(1000):
        store.write(str(k), None, {"meaning": unit(k)}, float(k))
    assert len(store) == 5
    assert [store.find(str(k), 1000.0) is not None for k in (994, 995, 999)] == [False, True, True]


def test_an_empty_cache_knows_nothing() -> None:
    cache = tiers(Clock())
    assert set(cache.features("").values()) == {0.0}
    assert not any(cache.look_up(kind, "", unit(0)).hit for kind in LOOKUPS)


@pytest.mark.parametrize("text", ["", " \n ", "\x00", "é" * 5000, "\ud800"])
def test_odd_texts_are_texts(text) -> None:
    cache = tiers(Clock())
    cache.update(text, unit(0), answer="a", cheap_ok=False)
    assert cache.look_up("l1", text).hit
    assert 0.0 <= cache.features(text)["similarity"] <= 1.0


def test_compatibility_forms_are_one_text() -> None:
    assert normalise("ﬁle  ①") == normalise("FILE 1")


def test_bad_arguments_are_refused_and_nothing_is_written() -> None:
    cache = tiers(Clock())
    with pytest.raises(InputError, match=r"embedding is of shape \(3,\)"):
        cache.update("hi", np.ones(3), answer="a", cheap_ok=False)
    with pytest.raises(InputError, match="all finite"):
        cache.update("hi", np.full(DIM, np.nan), answer="a", cheap_ok=False)
    assert not any(cache.look_up(kind, "hi", unit(0)).hit for kind in LOOKUPS)
    with pytest.raises(InputError, match="embedding is none"):
        cache.look_up("l2", "hi")
    with pytest.raises(InputError, match="allowed: l1, l2, l3, bypass"):
        cache.look_up("l4", "hi", unit(0))
    with pytest.raises(InputError, match="negative_threshold is 0"):
        tiers(Clock(), negative_threshold=0.0)
    with pytest.raises(InputError, match="capacity 0"):
        tiers(Clock(), capacity=0)
