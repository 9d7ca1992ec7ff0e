"""Support is what denies the denial and stands close; nothing else counts."""

import numpy as np
import pytest

from lab.entailment import Entailment
from lab.negation import denial_of
from lab.support_scores import EntailmentSupport, gold_recall
from steersman.errors import DataError, InputError
from steersman.retrieval.dense import MiniLM
from tests.retrieval.hashed_words import HashedWords


class Reading:
    """Stands for a model: a text contradicts what is said in just the words it names."""

    def __init__(self, against):
        self.against = against
        self.asked = []

    def contradiction(self, premises, hypotheses):
        self.asked += list(zip(premises, hypotheses, strict=True))
        return np.array([self.against.get(pair, 0.1) for pair in zip(premises, hypotheses)])  # noqa: B905


FOR = "The museum opens at nine every morning."
AGAINST = "The museum never opens before the noon."
BESIDE = "Bananas are yellow when they are ripe."
SAID = "The museum opens at nine."
DENIED = denial_of(SAID)


@pytest.fixture
def support():
    reading = Reading({(FOR, DENIED): 0.999, (AGAINST, SAID): 0.999})
    return EntailmentSupport(reading, HashedWords(), threshold=5.0)


def test_what_denies_the_denial_is_above_what_contradicts(support):
    borne, refuted, beside = support.scores(SAID, [FOR, AGAINST, BESIDE])
    assert borne > 0.5 > beside > refuted
    assert support.scores(SAID, []).shape == (0,)


def test_long_texts_are_read_by_their_closest_sentences(support):
    text = " ".join([BESIDE] * 9 + [FOR])
    support.scores(SAID, [text])
    asked = [premise for premise, _ in support._entailment.asked]
    assert len(asked) == 12
    assert asked.count(FOR) == 2


def test_closer_sentences_count_more():
    """Two sentences are alike, and the one that is close denies what the other one says."""
    close, far = (
        "The museum opens at nine in spring.",
        "Museums of the north open at ten or at nine.",
    )
    found = [
        EntailmentSupport(Reading({(one, DENIED): 0.99, (other, SAID): 0.99}), HashedWords())
        .scores(SAID, [f"{close} {far}"])[0]
        for one, other in ((close, far), (far, close))
    ]  # fmt: skip
    assert found[0] > found[1]


@pytest.mark.parametrize(
    ("said", "denied"),
    [
        ("Valves are not stuck.", "Valves are stuck."),
        ("Pumps cannot freeze.", "Pumps can freeze."),
        ("Pumps can't freeze.", "Pumps can freeze."),
        ("Pumps can’t freeze.", "Pumps can freeze."),
        ("Valves aren't stuck.", "Valves are stuck."),
        ("Cells don't contribute.", "Cells do contribute."),
        ("Pumps won't freeze.", "Pumps will freeze."),
        ("Higher doses help.", "Lower doses help."),
        ("Tea without sugar tires.", "Tea with sugar tires."),
        ("Tea with sugar was served.", "Tea with sugar was not served."),
        ("Tea tires.", "It is not true that tea tires."),
    ],
)
def test_a_statement_is_denied(said, denied):
    assert denial_of(said) == denied


def test_the_share_of_statements_that_some_text_bears_out(support):
    assert support.share([SAID, "Nobody has ever been there."], [AGAINST, FOR]) == 0.5
    assert support.share([SAID], []) == 0.0


def test_empty_texts_are_refused(support):
    for statement, texts in (("", [FOR]), (SAID, [FOR, " "])):
        with pytest.raises(InputError, match="is empty"):
            support.scores(statement, texts)
    with pytest.raises(InputError, match="without statements"):
        support.share([], [FOR])
    with pytest.raises(InputError, match="threshold is nan"):
        EntailmentSupport(Reading({}), HashedWords(), threshold=float("nan"))


def test_gold_recall_counts_all_that_was_given():
    assert gold_recall(["a", "b", "c"], {"c": 2.0, "z": 1.0, "b": 0.0}) == 0.5
    assert gold_recall([], {"c": 1.0}) == 0.0
    with pytest.raises(InputError):
        gold_recall(["a"], {})


@pytest.mark.slow
def test_the_wheels_model_tells_support_from_contradiction():
    pytest.importorskip("onnxruntime")
    try:
        support = EntailmentSupport(Entailment(), MiniLM())
    except DataError as missing:
        pytest.skip(str(missing))
    texts = [
        "In this trial aspirin lowered the risk of stroke by a fifth.",
        "In this trial aspirin raised the risk of stroke by a fifth.",
        "Bananas are yellow when they are ripe, in most countries.",
    ]
    borne, refuted, beside = support.scores("Aspirin lowers the risk of stroke.", texts)
    assert borne > refuted
    assert borne > beside
