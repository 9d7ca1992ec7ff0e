"""What configurations are worth on a tenant's corpus, over HTTP: ``POST /tuner/evaluate``."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from steersman.retrieval import Place, find_place, one_view
from steersman.service.app import Route
from steersman.service.http import Answer, converted, json_answer, read_json
from steersman.service.searching import told
from steersman.service.tuner_messages import MOST_SEARCHES, EvaluateRequest, Evaluation
from steersman.wire import Refused

if TYPE_CHECKING:
    from uuid import UUID

    from asyncpg import Pool

    from steersman.retrieval import Opened
    from steersman.service.corpus_cache import CorpusCache
    from steersman.service.http import Request
    from steersman.store import Breaker

_BYTES = 8 * 1024 * 1024
_MOST_WAITING = 4


class Tuning:
    """Handler of ``POST /tuner/evaluate``; one evaluation runs at a time, beside decisions.

    Args:
        pool: connections of role app.
        cache: corpora in memory.
        breaker: around the store.

    No doctest: it needs a server; ``tests/service/test_tuning.py`` shows it.
    """

    def __init__(self, pool: Pool[Any], cache: CorpusCache, breaker: Breaker) -> None:
        self._pool, self._cache, self._breaker = pool, cache, breaker
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tuner")
        self._waiting = 0

    def routes(self) -> list[tuple[str, Route]]:
        """Return the routes."""
        return [("POST", Route("/tuner/evaluate", self.evaluate, "decide", "search", traced=True))]

    def close(self) -> None:
        """Begin no further evaluation."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def evaluate(self, request: Request) -> Answer:
        """Answer ``POST /tuner/evaluate``.

        Args:
            request: whose key may decide.

        Returns:
            An `Evaluation`.

        Raises:
            Refused: there is no such corpus or snapshot, no question can be answered from it, it
                is more than one request may ask, or it took too long.
        """
        asked: EvaluateRequest = converted(await read_json(request, _BYTES), EvaluateRequest)
        size = len(asked.questions) if asked.slice is None else asked.slice.size
        searches = len(asked.configurations) * min(size, len(asked.questions))
        if searches > MOST_SEARCHES:
            detail = f"{searches:,} searches; allowed are {MOST_SEARCHES:,}: fewer configurations, "
            raise Refused.of("invalid", detail + "or a smaller slice", field="questions")
        if self._waiting >= _MOST_WAITING:
            detail = f"{self._waiting} evaluations wait already; try again later"
            raise Refused.of("unavailable", detail, retry_after_s=5.0)
        self._waiting += 1
        stop = threading.Event()
        try:
            async with asyncio.timeout(asked.deadline_ms / 1e3):
                return json_answer(await self._evaluated(request.key.tenant, asked, stop))
        except TimeoutError:
            detail = f"no answer within {asked.deadline_ms:g} ms; ask fewer questions at once, or "
            detail += "give more deadline_ms"
            raise Refused.of("unavailable", detail, retry_after_s=1.0) from None
        finally:
            stop.set()  # whoever went away shall not hold up the next
            self._waiting -= 1

    async def _evaluated(
        self, tenant: UUID, asked: EvaluateRequest, stop: threading.Event
    ) -> Evaluation:
        async def look() -> Place:
            async with self._pool.acquire() as connection, one_view(connection, tenant):
                return await find_place(connection, tenant, asked.corpus, asked.snapshot)

        with told(asked.corpus):
            place = await self._breaker.call(look)
            opened = await self._cache.get(tenant, place)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, _work, asked, opened, stop)


def _work(asked: EvaluateRequest, opened: Opened, stop: threading.Event) -> Evaluation:
    # Who serves must not wait until the tuner is imported.
    from steersman.service.tuner_evaluation import evaluation  # noqa: PLC0415

    return evaluation(asked, opened, stop)
