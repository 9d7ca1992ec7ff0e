"""HTTP handler that evaluates retrieval configurations on a tenant's corpus."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from steersman.api.route import Route, handles
from steersman.api.routes.search import told
from steersman.db.corpora import corpora_of
from steersman.db.reviews import file_for_review
from steersman.errors import BackendError
from steersman.platform.http.messages import Answer, converted, json_answer, read_json
from steersman.platform.postgres.database import as_tenant
from steersman.retrieval.loaded_corpus import Place, find_place, one_view
from steersman.wire import Refused
from steersman_systems.rag_tuner.service.fair_queue import Full, Line, Slices
from steersman_systems.rag_tuner.service.messages import (
    MOST_ANSWERS,
    MOST_SEARCHES,
    EvaluateRequest,
    Evaluation,
)
from steersman_systems.rag_tuner.service.metrics import TunerCounts
from steersman_systems.rag_tuner.service.models import AnswerSettings, Models

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from asyncpg import Pool

    from steersman.api.parts import Parts
    from steersman.platform.breaker import Breaker
    from steersman.platform.http.messages import Request
    from steersman.providers.detectors.answer_review import FlaggedAnswer
    from steersman.retrieval.corpora_reader import OpenCorpus
    from steersman.retrieval.embedders import Embedders
    from steersman.serving.corpus_cache import CorpusCache
    from steersman.serving.metrics import Metrics
    from steersman_systems.rag_tuner.service.evaluation import Found

_log = logging.getLogger(__name__)
_BYTES = 8 * 1024 * 1024
_ENDING_S = 10.0


_EXAMPLE = {
    "corpus": "manuals",
    "configurations": [{"variant": "bm25", "k": 5}, {"variant": "hybrid", "fusion_weight": 0.4}],
    "questions": [
        {"text": "why does the pump hum?", "gold": ["pumps.md"]},
        {"text": "how many amperes does the cable carry?", "gold": ["cables.txt"]},
    ],
}


class Tuning:
    """Handler of ``POST /tuner/evaluate``; evaluations run in threads beside decisions.

    Args:
        pool: connections of role app.
        cache: corpora in memory.
        embedders: embedders of corpora by name.
        breaker: circuit breaker for the store.
        models: answering and judging models.
        metrics: metrics of the service.
    """

    def __init__(
        self,
        pool: Pool[Any],
        cache: CorpusCache,
        embedders: Embedders,
        breaker: Breaker,
        models: Models,
        metrics: Metrics,
    ) -> None:
        self._pool, self._cache = pool, cache
        self._embedders, self._breaker, self._models = embedders, breaker, models
        self._counts = TunerCounts()
        self._line, self._slices = Line(on_waited=self._counts.waited), Slices()
        models.on_spent = self._counts.spent
        metrics.add(self._counts.families)
        metrics.gauge("tuner_line", "Evaluations by state", self._line.states, ("state",))

    @classmethod
    def open(cls, parts: Parts, settings: AnswerSettings | None = None) -> Self:
        """Return the HTTP part of the RAG tuner.

        Args:
            settings: models that answer and judge; None: those that the environment names.

        Raises:
            InputError: a variable of the environment is invalid.
        """
        models = Models(settings or AnswerSettings.from_environment(), parts.home)
        return cls(parts.pool, parts.corpora, parts.embedders, parts.breaker, models, parts.metrics)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Start no further evaluation at the end."""
        yield
        self._line.close()

    @handles(
        Route(
            "POST",
            "/tuner/evaluate",
            "Evaluate retrieval configurations on a corpus with labelled questions",
            Evaluation,
            scope="decide",
            sheds="search",
            traced=True,
            body=EvaluateRequest,
            examples={"one": _EXAMPLE},
            codes=("not_found", "not_allowed", "too_many_requests"),
            raw=True,  # a refused body counts as a refused evaluation
        )
    )
    async def evaluate(self, request: Request) -> Answer:
        """Answer ``POST /tuner/evaluate`` with an `Evaluation`.

        Raises:
            Refused: unknown corpus or snapshot, no usable question, request too large, answers
                cannot be judged here, queue full, or timeout.
        """
        read = await read_json(request, _BYTES)
        begun = time.perf_counter()
        try:
            asked: EvaluateRequest = converted(read, EvaluateRequest)
            found = await self._answered(request.key.tenant, asked)
        except Exception as error:
            self._counts.ended(_result(error))
            raise
        self._counts.answered(asked, found, time.perf_counter() - begun)
        return json_answer(found.answer)

    async def sweep(self) -> int:
        """Delete outdated answer caches, and return the number of deleted files."""
        gone = 0
        for tenant in await asyncio.to_thread(self._models.tenants):

            async def look(tenant: UUID = tenant) -> dict[UUID, int]:
                async with self._pool.acquire() as connection, as_tenant(connection, tenant):
                    found = await corpora_of(connection, tenant)
                return {corpus.id: corpus.erasures for corpus in found}

            there = await self._breaker.call(look)
            gone += await asyncio.to_thread(self._models.forget, tenant, there)
        return gone

    async def _answered(self, tenant: UUID, asked: EvaluateRequest) -> Found:
        _check_size(asked)
        if asked.answers is not None:
            self._models.check()
        with self._line.place(tenant):
            try:
                async with asyncio.timeout(asked.deadline_ms / 1e3):
                    return await self._evaluated(tenant, asked)
            except TimeoutError:
                raise _late(asked) from None

    async def _evaluated(self, tenant: UUID, asked: EvaluateRequest) -> Found:
        async def look() -> Place:
            async with self._pool.acquire() as connection, one_view(connection, tenant):
                return await find_place(connection, tenant, asked.corpus, asked.snapshot)

        with told(asked.corpus):
            place = await self._breaker.call(look)
            opened = await self._cache.get(tenant, place)
            stop = threading.Event()
            work = partial(self._work, tenant, asked, opened, stop)
            try:
                found = await self._line.run(tenant, work, stop)
            except BackendError as error:
                # The message quotes the operator's server; tenants must not see it.
                _log.warning("%s", error)
                detail = "the embedder or a model does not respond; see the server log"
                raise Refused.of("unavailable", detail, retry_after_s=5.0) from error
            if found.flagged and found.answer.spent is not None:
                filing = partial(self._file, tenant, opened.loaded.place, found.flagged)
                filed = await self._breaker.call(filing)
                found.answer.spent.filed = filed
        return found

    def _work(
        self, tenant: UUID, asked: EvaluateRequest, opened: OpenCorpus, stop: threading.Event
    ) -> Found:
        # Imported on first use: it is slow to import.
        from steersman_systems.rag_tuner.service.evaluation import evaluation  # noqa: PLC0415
        from steersman_systems.rag_tuner.service.judged_comparison import judged  # noqa: PLC0415

        judging = None
        if asked.answers is not None:
            judging = partial(judged, self._models, tenant, opened, self._embedders, asked.answers)
        return evaluation(asked, opened, self._slices, stop, judging)

    async def _file(self, tenant: UUID, place: Place, flagged: Sequence[FlaggedAnswer]) -> int:
        """Add findings of detectors to the review list; return the number of new ones.

        Findings of a corpus that was deleted or had an erasure meanwhile are dropped.
        """
        async with self._pool.acquire() as connection, as_tenant(connection, tenant):
            there = {one.id: one.erasures for one in await corpora_of(connection, tenant)}
            if there.get(place.corpus.id) != place.corpus.erasures:
                return 0
            filed = [
                await file_for_review(
                    connection, tenant, detector=one.detector, kinds=one.kinds, score=one.score,
                    subject=one.subject, excerpt=one.excerpt, at=datetime.now(UTC),
                )
                for one in flagged
            ]  # fmt: skip
        return sum(filed)


class _Late(Refused):
    """Timeout of an evaluation."""


def _result(error: Exception) -> str:
    """Return the result label of a failed evaluation; see `TunerCounts.ended`."""
    if isinstance(error, Full):
        return "busy"
    if isinstance(error, _Late):
        return "late"
    if not isinstance(error, Refused):
        return "failed"
    if error.problem.code == "too_many_requests":
        return "budget"
    return "away" if error.problem.status >= 500 else "refused"


def _check_size(asked: EvaluateRequest) -> None:
    size = len(asked.questions) if asked.slice is None else asked.slice.size
    searches = len(asked.configurations) * min(size, len(asked.questions))
    most, what = MOST_SEARCHES, "searches"
    if asked.answers is not None:
        most, what = MOST_ANSWERS, "answers to judge"
    if searches > most:
        detail = f"{searches:,} {what}; at most {most:,} are allowed: send fewer configurations "
        raise Refused.of("invalid", detail + "or a smaller slice", field="questions")


def _late(asked: EvaluateRequest) -> Refused:
    detail = f"no answer within {asked.deadline_ms:g} ms; "
    if asked.answers is None:
        detail += "send fewer questions at once, or increase deadline_ms"
        return _Late.of("unavailable", detail, retry_after_s=1.0)
    detail += "results so far are cached and not paid again: send the same request to continue"
    # Pending model calls finish before the next evaluation starts.
    return _Late.of("unavailable", detail, retry_after_s=_ENDING_S)
