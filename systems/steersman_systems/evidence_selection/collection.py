"""Searchable collection of passages: words, vectors and links, indexed once."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from steersman.errors import InputError
from steersman.policies.sequence import EXPAND, STOP
from steersman.retrieval.bm25 import Bm25, query_terms, stem, words
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.passage import Lineage, Passage, passage_text
from steersman.retrieval.exact_index import ExactIndex
from steersman.retrieval.passage_links import link_passages
from steersman_systems.evidence_selection.pool import Candidate, LexicalScores, Pool, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from steersman.retrieval.dense import Embedder
    from steersman.retrieval.passage_links import Links
    from steersman_systems.evidence_selection.question import Question

    Floats = NDArray[np.float64]

_TOKEN = re.compile(r"\w+|[^\w\s]")
_K1 = 1.2


def about_tokens(text: str) -> int:
    """Return the approximate number of tokens: words and punctuation marks.

    >>> about_tokens("They hum, softly.")
    5
    """
    return len(_TOKEN.findall(text))


class Collection:
    """Passages with precomputed data for selection.

    Args:
        passages: at least one; a document of one passage has the document's id, other passages have
            their own.
        embedder: of passages and queries; None: words only, without vectors.
        vectors: (n, size) float32 unit vectors of the passages, if known.
        links: links between passages; None: computed from titles and shared names.
        count_tokens: token counter for `Limits.tokens`.

    Raises:
        InputError: no passage, a duplicate id, an id that is an action's name, or a wrong number of
            vectors or links.
        DataError: the extra ``rag`` is not installed.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        *,
        embedder: Embedder | None = None,
        vectors: NDArray[np.float32] | None = None,
        links: Links | None = None,
        count_tokens: Callable[[str], int] = about_tokens,
    ) -> None:
        if not passages:
            raise InputError("a collection needs at least one passage")
        texts = [passage_text(passage) for passage in passages]
        self.candidates = _candidates(passages)
        self.place_of = {one.id: one.position for one in self.candidates}
        _check_ids(self.candidates, self.place_of)
        self.embedder = embedder
        self.vectors = (
            vectors if embedder is None or vectors is not None else embedder.encode(texts)
        )
        self.links = links if links is not None else link_passages(passages)
        for name, size in (("vectors", self.vectors), ("links", self.links)):
            if size is not None and len(size) != len(passages):
                raise InputError(
                    f"{len(size)} {name} for {len(passages)} passages; give one for each"
                )
        self._index = None if self.vectors is None else ExactIndex(self.vectors)
        self._words: Bm25 | None = Bm25(texts, k1=_K1, stem=stem, query_terms=query_terms)
        self.tokens = np.array([count_tokens(text) for text in texts], np.int64)
        self.places_in_document = np.array([passage.chunk for passage in passages], np.float64)
        self.terms = Terms(texts)
        self.title_terms = Terms((one.title for one in self.candidates), self.terms.numbers)
        sizes = [len(self.title_terms.of(one.position)) for one in self.candidates]
        self.title_sizes = np.maximum(np.array(sizes, np.int64), 1)

    @classmethod
    def of_texts(cls, rows: Iterable[tuple[str, str, str]], **given: object) -> Collection:
        """Return a collection of texts, each a separate document."""
        passages = []
        for name, title, text in rows:
            document = Document(name, text, title)
            lineage = Lineage(document.sha256, 0, len(text), chunker="whole")
            passages.append(Passage(name, 0, text, title, lineage=lineage))
        return cls(passages, **given)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, object]:
        """Pickle without the engines: a copy in another process selects but cannot retrieve."""
        return self.__dict__ | {"embedder": None, "_index": None, "_words": None}

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self.candidates)

    def pool(self, question: Question, *, query: str | None = None, size: int = 100) -> Pool:
        """Return the candidates retrieved for a question.

        Args:
            size: maximum number of candidates, 1 to 100.

        Returns:
            Candidates by the convex fusion of both rankings, best first; empty without a shared
            word and without an embedder.

        Raises:
            InputError: `size` is out of range.
        """
        if isinstance(size, bool) or size not in range(1, 101):
            raise InputError(f"size is {size!r}; allowed: 1 to 100")
        return Pool.retrieved(self, question, self.query(query or question.text), size)

    def query(self, text: str) -> Query:
        """Return a query as input of both engines.

        Raises:
            InputError: this is a copy in another process, without engines.
        """
        if self._words is None:
            raise InputError("this collection is a copy without engines; search the original")
        lexical = LexicalScores.of(self._words.scores(text))
        known = self.terms.known(query_terms(text))
        if self.embedder is None or self._index is None:
            return Query(text, lexical, None, (), known)
        vector = np.asarray(self.embedder.encode([text])[0], np.float32)
        nearest, _ = self._index.search(vector, 100)
        return Query(text, lexical, vector, tuple(nearest.tolist()), known)


class Terms:
    """Index of the stems of texts, with their rarity.

    Args:
        texts: any texts.
        numbers: numbers of known stems; other stems are ignored. None: all stems.

    >>> terms = Terms(["blue whales", "blue skies"])
    >>> terms.of(0).tolist(), terms.known(["whale", "blue", "unheard"]).tolist()
    ([0, 1], [0, 1])
    """

    def __init__(self, texts: Iterable[str], numbers: dict[str, int] | None = None) -> None:
        fixed = numbers is not None
        self.numbers: dict[str, int] = {} if numbers is None else numbers
        stems: dict[str, str] = {}
        rows = []
        for text in texts:
            found = {stems.setdefault(one, stem(one)) for one in words(text)}
            if fixed:
                rows.append(sorted(self.numbers[one] for one in found if one in self.numbers))
            else:
                rows.append(sorted({self.numbers.setdefault(s, len(self.numbers))
                                    for s in sorted(found)}))  # fmt: skip
        self._rows = [np.array(row, np.int32) for row in rows]
        counts = Counter(number for row in rows for number in row)
        named_in = np.array([counts[number] for number in range(len(self.numbers))])
        self.rarity = np.log1p(len(rows) / (0.5 + named_in))

    def of(self, position: int) -> NDArray[np.int32]:
        """Return the stem numbers of one text, rising."""
        return self._rows[position]

    def known(self, stems: Iterable[str]) -> NDArray[np.int32]:
        """Return the numbers of those stems that any text has, rising."""
        return np.array(sorted({self.numbers[s] for s in stems if s in self.numbers}), np.int32)

    def among(self, wanted: NDArray[np.int32], positions: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return whether each given text has each given stem."""
        found = np.zeros((len(positions), len(wanted)), np.bool_)
        rows = [self._rows[position] for position in positions]
        if rows and len(wanted):
            flat = np.concatenate(rows)
            owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
            place = np.minimum(wanted.searchsorted(flat), len(wanted) - 1)
            hit = wanted[place] == flat
            found[owner[hit], place[hit]] = True
        return found


def _candidates(passages: Sequence[Passage]) -> tuple[Candidate, ...]:
    of_document = Counter(passage.doc_id for passage in passages)
    return tuple(
        Candidate(
            passage.doc_id if of_document[passage.doc_id] == 1 else passage.id,
            passage.title, passage.text, position,
        )
        for position, passage in enumerate(passages)
    )  # fmt: skip


def _check_ids(candidates: Sequence[Candidate], place_of: dict[str, int]) -> None:
    if len(place_of) < len(candidates):
        twice = next(one for one in candidates if place_of[one.id] != one.position)
        raise InputError(f"duplicate passage id {twice.id!r}; give each passage a unique id")
    taken = [name for name in (STOP, EXPAND) if name in place_of]
    if taken:
        raise InputError(f"passage id {taken[0]!r} is the name of an action; rename it")
