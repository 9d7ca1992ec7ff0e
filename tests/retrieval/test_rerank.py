"""The cosine reranker orders by nearness to the query."""

import numpy as np

from steersman.retrieval.rerank import CosineReranker
from tests.retrieval.hashed_words import HashedWords


def test_scores_are_the_cosines():
    embedder = HashedWords()
    texts = ["a wing", "a wing lifts", "copper"]
    scores = CosineReranker(embedder).scores("a wing", texts)
    expected = embedder.encode(texts) @ embedder.encode(["a wing"])[0]
    np.testing.assert_allclose(scores, expected)
    assert scores.argmax() == 0


def test_no_text_has_no_score():
    assert CosineReranker(HashedWords()).scores("a", []).shape == (0,)
