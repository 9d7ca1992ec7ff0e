"""What may be chosen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import InputError
from steersman_systems.rag_tuner.configuration import VARIANTS, Configuration, Space
from tests.systems.rag_tuner.worlds import SPACE

configurations = st.builds(
    Configuration,
    variant=st.sampled_from(VARIANTS),
    k=st.integers(1, 100),
    rerank=st.booleans(),
    fusion_weight=st.floats(0, 1),
    expansion=st.booleans(),
    prompt=st.sampled_from(["plain", "terse"]),
)


@given(configurations)
def test_parts_give_it_back(one):
    assert Configuration.of(one.parts()) == one
    assert one.canonical().canonical() == one.canonical()
    assert (one.canonical() == one) == (one.variant == "hybrid" or one.fusion_weight == 0.5)


def test_every_configuration_is_there_once():
    # (bm25, dense: 1 weight each; hybrid: 21) x 30 ks x rerank x expansion
    assert len(SPACE.all) == (2 + 21) * 30 * 2 * 2 == len(set(SPACE.all))
    assert [SPACE.index[one] for one in SPACE.all[:5]] == [0, 1, 2, 3, 4]


def test_the_probability_of_a_draw_is_how_often_it_comes():
    space = Space(("bm25", "hybrid"), (3, 4), (False,), (0.0, 0.5, 1.0), (False,), ("plain",))
    rng = np.random.default_rng(0)
    counts = np.bincount([space.index[space.draw(rng)] for _ in range(6_000)], minlength=8)
    assert space.draw_probabilities.sum() == pytest.approx(1)
    assert np.abs(counts / 6_000 - space.draw_probabilities).max() < 4 * np.sqrt(0.25 / 6_000)
    assert space.draw_probabilities[space.index[Configuration("bm25", k=3)]] == 0.25


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"variant": "splade"}, "variant is 'splade'"),
        ({"k": 0}, "k is 0"),
        ({"k": 5.0}, "k is 5.0"),
        ({"k": True}, "k is True"),
        ({"fusion_weight": 1.1}, "fusion_weight is 1.1"),
        ({"fusion_weight": float("nan")}, "fusion_weight is nan"),
        ({"prompt": ""}, "prompt is ''; give the name of a prompt template"),
        ({"prompt": {"a": 1}}, "prompt is {'a': 1}"),
        ({"fusion_weight": "x"}, "fusion_weight is 'x'"),
        ({"rerank": "no"}, "rerank is 'no'; allowed: true or false"),
        ({"expansion": 1}, "expansion is 1; allowed: true or false"),
        ({"top_k": 5}, "unknown part top_k"),
    ],
)
def test_what_is_no_configuration(parts, says):
    with pytest.raises(InputError, match=says):
        Configuration.of(parts)


def test_what_may_not_be_chosen():
    assert SPACE.check(Configuration("bm25", fusion_weight=0.9)) == Configuration("bm25")
    for outside in (Configuration("rrf"), Configuration(k=2), Configuration(fusion_weight=0.01)):
        with pytest.raises(InputError, match="2,760 that may be chosen"):
            SPACE.check(outside)


def test_how_it_reads():
    one = Configuration("hybrid", k=7, fusion_weight=0.65, expansion=True, prompt="terse")
    assert str(one) == "hybrid w=0.65 k=7 +expansion prompt=terse"
    assert str(Configuration("rrf")) == "rrf k=10"
