"""World of the assistant: every request with the outcome of each choice.

Requests come from the pinned wheel, engine results from the recording. The world gives contexts and
outcomes; policies decide. It has no state: the caller keeps the `ToolHistory`.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from steersman.errors import DataError
from steersman.retrieval.bm25 import words
from steersman_systems.assistant.engines import fuse
from steersman_systems.assistant.history import ToolHistory, lead, tool_features
from steersman_systems.assistant.intents import IntentClassifier, tool_families
from steersman_systems.assistant.recorded_engines import PADDING, Recording
from steersman_systems.assistant.requests import load_catalogue
from steersman_systems.assistant.routes import Deep, compute_cost_usd

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from steersman_systems.assistant.requests import Catalogue

INTENTS = 40
"""Number of tool families, which are the intents: about 18 tools each."""
_AT_ONCE = 128


@dataclass(frozen=True)
class World:
    """n requests over one catalogue, with indexes 0 to n-1.

    Args:
        catalogue: Requests and tools.
        recording: Engine results in the same order.

    Raises:
        DataError: The recording has other requests.
    """

    catalogue: Catalogue
    recording: Recording

    def __post_init__(self) -> None:
        truth = [request.tool for request in self.catalogue.requests]
        tools = len(self.catalogue.tools)
        same = np.array_equal(self.recording.truth, truth)
        if not same or len(self.recording.tool_embedding) != tools:
            message = (
                f"the recording has {len(self.recording.truth)} requests over "
                f"{len(self.recording.tool_embedding)} tools; expected these {len(truth)} over "
                f"{tools}; create it again with `steersman data record assistant`"
            )
            raise DataError(message)

    @classmethod
    def load(cls, home: Path | None = None, *, fetch: bool = True) -> Self:
        """Load the world of the shipped recording; needs no model.

        Returns:
            The world of 1,311 requests and 729 tools.

        Raises:
            DataError: The requests cannot be downloaded, or the recording does not match.
        """
        return cls(load_catalogue(home, fetch=fetch), Recording.load())

    def __len__(self) -> int:
        return len(self.catalogue.requests)

    # Inputs of the choices ---------------------------------------------------------------------

    def shortlist(self, request: int) -> NDArray[np.int64]:
        """Return the candidate tools of a request.

        Returns:
            (n,) tool indices, n ≤ 20, the best fused score first.
        """
        return self._shortlists[request]

    def bm25_best(self, request: int) -> int:
        """Return the index of the tool that BM25 ranks first."""
        return int(self.recording.shortlist[request, 0])

    def names(self, tools: Sequence[int] | NDArray[np.int64]) -> list[str]:
        """Return the names of tools, in the same order."""
        found: list[str] = self._names[tools].tolist()
        return found

    def embedding(self, request: int) -> NDArray[np.float32]:
        """Return the embedding of a request, (384,) float32, a unit vector; read-only."""
        vector: NDArray[np.float32] = self._embeddings[request]
        return vector

    def history(self) -> ToolHistory:
        """Return an empty history of this catalogue's tools."""
        return ToolHistory(self.recording.tool_embedding.astype(np.float32))

    def tool_features(self, request: int, history: ToolHistory) -> NDArray[np.float64]:
        """Return the features of the request's shortlist.

        Returns:
            (n, 11) float64, rows in the order of `shortlist`, columns those of `TOOL_FEATURES`.
        """
        said = self._words_said[request]
        tools = self.shortlist(request)
        matches = [len(self._name_words[t] & said) / len(self._name_words[t]) for t in tools]
        bm25, dense = self._scores(request)
        return tool_features(
            history, tools, bm25, dense, np.array(matches), self.embedding(request)
        )

    def context(self, request: int) -> dict[str, Any]:
        """Return the context of a request, from the request alone.

        Returns:
            ``text``; ``intent``, a family of tools; ``language``, the script of most letters;
            ``text_len`` in characters; ``confidence``, the best cosine; ``score_gap`` and
            ``dense_gap``, the lead of the best fused score and of the best cosine; ``agreement``, 1
            if both engines rank the same tool first, 0 also if BM25 knows no word of the request.
        """
        text = self.catalogue.requests[request].text
        bm25, dense = self._scores(request)
        return {
            "text": text,
            "intent": self.intents[request],
            "language": script(text),
            "text_len": float(len(text)),
            "confidence": float(dense.max()),
            "score_gap": float(lead(fuse(bm25, dense)).max()),
            "dense_gap": float(lead(dense).max()),
            "agreement": float(bm25.any() and bm25.argmax() == dense.argmax()),
        }

    @cached_property
    def contexts(self) -> tuple[dict[str, Any], ...]:
        """`context` of every request."""
        return tuple(self.context(request) for request in range(len(self)))

    @cached_property
    def intents(self) -> tuple[str, ...]:
        """Intent of each request, from a classifier fitted on the tools' texts."""
        texts = [tool.text for tool in self.catalogue.tools]
        names = [tool.name for tool in self.catalogue.tools]
        families = tool_families(names, texts, INTENTS, np.random.default_rng(0))
        classifier = IntentClassifier.fit(texts, families)
        asked = [request.text for request in self.catalogue.requests]
        parts = (asked[at : at + _AT_ONCE] for at in range(0, len(asked), _AT_ONCE))
        return tuple(intent for part in parts for intent in classifier.predict_many(part)[0])

    # Outcomes -----------------------------------------------------------------------------------

    def tool_right(self, request: int, tool: int) -> bool:
        """Return whether a tool is the right one for a request."""
        return self.catalogue.requests[request].tool == tool

    def route_right(self, request: int, route: str, *, planned: int, deep: Deep) -> bool:
        """Return whether a route answers the request."""
        if route == "deep":
            return deep.right(self.catalogue.requests[request].id)
        tool = self.bm25_best(request) if route == "micro" else planned
        return self.tool_right(request, tool)

    def latency_ms(self, request: int, route: str, *, deep: Deep) -> float:
        """Return the latency of a route, with the engines.

        The context of the route decision needs both engines, so every route pays for both. The time
        of the policies is not included (see ``benchmarks.policies``: well below one millisecond).

        Returns:
            Milliseconds.
        """
        engines = float(self.recording.latency_ms[request].sum())
        if route != "deep":
            return engines
        return engines + deep.latency_ms(self.catalogue.requests[request].id)

    def cost_usd(self, request: int, route: str, *, deep: Deep) -> float:
        """Return the price of a route: processor time of the engines, and the escalation.

        Returns:
            US dollars.
        """
        engines = compute_cost_usd(float(self.recording.latency_ms[request].sum()))
        return engines + (deep.cost_usd if route == "deep" else 0.0)

    # Cached values ------------------------------------------------------------------------------

    @cached_property
    def _embeddings(self) -> NDArray[np.float32]:
        return self.recording.request_embedding.astype(np.float32)

    @cached_property
    def _names(self) -> NDArray[np.object_]:
        return np.array([tool.name for tool in self.catalogue.tools], object)

    @cached_property
    def _words_said(self) -> list[frozenset[str]]:
        return [frozenset(words(request.text)) for request in self.catalogue.requests]

    @cached_property
    def _name_words(self) -> list[frozenset[str]]:
        return [frozenset(words(tool.name)) for tool in self.catalogue.tools]

    @cached_property
    def _orders(self) -> list[NDArray[np.int64]]:
        recording, orders = self.recording, []
        for row, bm25, dense in zip(
            recording.shortlist, recording.bm25, recording.dense, strict=True
        ):
            count = np.count_nonzero(row != PADDING)
            fused = fuse(bm25[:count], dense[:count])
            orders.append(np.argsort(-fused, kind="stable"))
        return orders

    @cached_property
    def _shortlists(self) -> list[NDArray[np.int64]]:
        rows = zip(self.recording.shortlist, self._orders, strict=True)
        return [row[order].astype(np.int64) for row, order in rows]

    def _scores(self, request: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        order = self._orders[request]
        return self.recording.bm25[request, order], self.recording.dense[request, order]


def script(text: str) -> str:
    """Return the script of most letters of a text, in lower case, as a proxy for its language.

    Returns:
        The first word of the letters' Unicode names, such as "latin", "cjk" or "hangul"; "none"
        without letters.

    >>> script("Wie wird das Wetter?"), script("서울 날씨"), script("12 + 30")
    ('latin', 'hangul', 'none')
    """
    scripts = Counter(
        unicodedata.name(char, "unknown").split()[0].lower() for char in text if char.isalpha()
    )
    return scripts.most_common(1)[0][0] if scripts else "none"
