"""A small collection in which one passage leads to the next."""

import numpy as np
import pytest

from steersman_systems.evidence_selection.collection import Collection
from steersman_systems.evidence_selection.question import Question
from tests.retrieval.hashed_words import HashedWords

ROWS = [
    ("band", "Counterparts", "Counterparts is an album by Rush Union, a band from Canada."),
    ("rush", "Rush Union", "They were founded in Toronto; the drummer was Neil Peartree."),
    ("neil", "Neil Peartree", "A drummer in the Hall of Fame, born in Hamilton."),
    ("hamilton", "Hamilton", "A port with steel works."),
    ("song", "Songs", "Songs called counterparts are many; an album is not a song."),
    ("noise1", "Steel", "Steel is made of iron and carbon in large works."),
    ("noise2", "Lakes", "A country with lakes and a band of forests."),
    ("noise3", "Drums", "A drummer plays drums; drums are loud."),
]


@pytest.fixture(scope="session")
def collection():
    return Collection.of_texts(ROWS, embedder=HashedWords())


@pytest.fixture
def question():
    return Question(
        "q1", "Who drummed on the album Counterparts?", answers=("Neil Peartree",),
        gold=("band", "rush", "neil"),
    )  # fmt: skip


@pytest.fixture
def pool(collection, question):
    return collection.pool(question, size=4)


@pytest.fixture
def rng():
    return np.random.default_rng(0)
