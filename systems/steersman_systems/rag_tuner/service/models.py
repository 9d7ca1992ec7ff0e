"""Models for ``POST /tuner/evaluate``, configured by environment variables."""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from steersman.errors import DataError, InputError
from steersman.platform.wheel_files import state_directory
from steersman.wire import Refused
from steersman_systems.rag_tuner.service.daily_budget import Daily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from steersman.db.judge_cache import JudgeCache
    from steersman.providers.backend import Backend
    from steersman.providers.detectors.flags import Detector
    from steersman.providers.judges.relevancy import TextEmbedder
    from steersman.retrieval.corpora_reader import OpenCorpus
    from steersman_systems.rag_tuner.judged_answers import Answers
    from steersman_systems.rag_tuner.service.messages import AskedAnswers

_log = logging.getLogger(__name__)
_CACHE_BYTES = 256 << 20
_KEPT_S = 30 * 86_400.0
_PREFIX = "STEERSMAN_ANSWERS_"
_ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FILE = re.compile(rf"({_ID})-({_ID})-([0-9]+)\.sqlite(?:-wal|-shm|-journal)?")
_NUMBERS = ("prompt_usd", "answer_usd", "call_usd", "max_usd", "day_usd", "per_s", "timeout_s")
_COUNTS = ("max_calls", "day_calls")
_RANGES = {"timeout_s": (0.001, 3600.0)}


class AnswerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Models that answer and judge; each attribute is a variable ``STEERSMAN_ANSWERS_…``.

    Attributes:
        url: URL of a chat completions server, for example ``http://127.0.0.1:8080/v1``.
        model: name of the answering model on the server.
        api_key: API key of the server; None: no key.
        judge_url: URL of the judging server; None: same server, model and key.
        judge_model: name of the judging model.
        judge_api_key: API key of the judging server.
        prompt_usd: price of 1,000 prompt tokens of both models in US dollars.
        answer_usd: price of 1,000 answer tokens of both models in US dollars.
        call_usd: price of a call without token counts or token prices; None: estimated.
        max_usd: spending limit of one request in US dollars, if prices are set.
        max_calls: limit of model calls of one request.
        day_usd: spending limit of a tenant per day in US dollars, if prices are set.
        day_calls: limit of model calls of a tenant per day.
        per_s: limit of calls per second for all tenants together; None: no limit.
        timeout_s: timeout of one call in seconds, 0.001 to 3600.
    """

    url: str
    model: str
    api_key: str | None = None
    judge_url: str | None = None
    judge_model: str | None = None
    judge_api_key: str | None = None
    prompt_usd: float = 0.0
    answer_usd: float = 0.0
    call_usd: float | None = None
    max_usd: float = 1.0
    max_calls: int = 2_000
    day_usd: float = 10.0
    day_calls: int = 20_000
    per_s: float | None = None
    timeout_s: float = 30.0

    def __repr__(self) -> str:  # without keys
        return f"AnswerSettings(url={self.url!r}, model={self.model!r})"

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None
    ) -> AnswerSettings | None:
        """Return the settings from environment variables; None: no model.

        Args:
            environment: environment variables; default: those of this process.

        Raises:
            InputError: a required variable is missing, or a number is invalid or out of range.

        >>> from_environment = AnswerSettings.from_environment
        >>> from_environment({}) is None
        True
        >>> from_environment({"STEERSMAN_ANSWERS_URL": "http://127.0.0.1:8080/v1"})
        Traceback (most recent call last):
        steersman.errors.InputError: STEERSMAN_ANSWERS_MODEL is not set; set both the model ...
        """
        given = os.environ if environment is None else environment
        values: dict[str, Any] = {
            name: given[_PREFIX + name.upper()]
            for name in cls.__struct_fields__
            if given.get(_PREFIX + name.upper())
        }
        if not values:
            return None
        for name, other in (("url", "model"), ("judge_url", "judge_model")):
            for one, missing in ((name, other), (other, name)):
                if (one in values or name == "url") and missing not in values:
                    raise InputError(
                        f"{_PREFIX}{missing.upper()} is not set; set both the model "
                        "and its URL, or neither"
                    )
        for name in (*_NUMBERS, *_COUNTS):
            if name in values:
                values[name] = _number(name, values[name])
        return cls(**values)


def _number(name: str, said: str) -> float | int:
    try:
        value = int(said) if name in _COUNTS else float(said)
    except ValueError:
        value = math.nan
    least, most = _RANGES.get(name, (0, 1e9))
    if not least <= value <= most:
        end = f"{least:g} to {most:g}" if name in _RANGES else "0 or more"
        allowed = f"a number, {end}"
        raise InputError(f"invalid {_PREFIX}{name.upper()} {said!r:.40}: expected {allowed}")
    return value


class Models:
    """Models of a server and the cache of their answers, separate for each tenant and corpus.

    Args:
        settings: models; None: requests for answers are refused.
        home: home directory; it holds the answer cache and weights of detectors.
        on_spent: callback with calls and dollars of each evaluation, also an aborted one.

    Raises:
        InputError: a setting out of range.
    """

    def __init__(
        self,
        settings: AnswerSettings | None,
        home: Path | None = None,
        on_spent: Callable[[int, float], None] = lambda _calls, _usd: None,
    ) -> None:
        self.settings = settings
        self.on_spent, self._counting = on_spent, threading.Lock()
        self._home = home
        self._folder = state_directory(home) / "tuner"
        if settings is None:
            return
        # A service without models does not pay for these imports.
        from steersman.providers.chat import ChatBackend  # noqa: PLC0415
        from steersman.providers.judges.judge import Judge  # noqa: PLC0415
        from steersman.providers.spending_limit import (  # noqa: PLC0415
            Prices,
            Rate,
        )

        self._writer: Backend = ChatBackend(settings.url, settings.model, api_key=settings.api_key)
        self._judge: Backend = self._writer
        if settings.judge_url is not None and settings.judge_model is not None:
            key = settings.judge_api_key
            self._judge = ChatBackend(settings.judge_url, settings.judge_model, api_key=key)
        Judge(self._judge, timeout_s=settings.timeout_s)  # or each request would be refused
        self.daily = Daily(
            self._folder / "spent.sqlite",
            usd=settings.day_usd,
            calls=settings.day_calls,
        )
        self._prices = Prices(settings.prompt_usd, settings.answer_usd, settings.call_usd)
        self._rate = Rate(settings.per_s)

    @property
    def names(self) -> tuple[str, str]:
        """Names of the answering and judging models, without their URLs."""
        if self.settings is None:
            return "", ""
        return self.settings.model, self.settings.judge_model or self.settings.model

    def spent(self, calls: int, cost_usd: float) -> None:
        """Count the calls and cost of an evaluation; thread-safe."""
        with self._counting:
            self.on_spent(calls, cost_usd)

    def check(self) -> AnswerSettings:
        """Return the settings.

        Raises:
            Refused: no model is configured.
        """
        if self.settings is None:
            detail = (
                "this server has no model to answer questions, so answers cannot be judged; leave "
                "answers out, or ask the operator to set STEERSMAN_ANSWERS_URL and _MODEL"
            )
            raise Refused.of("not_allowed", detail, field="answers")
        return self.settings

    def budget(self, asked: AskedAnswers) -> tuple[float | None, int]:
        """Return the limits of a request: dollars (None without prices) and calls.

        Raises:
            Refused: no model is configured, or a spending limit is given without prices.
        """
        settings = self.check()
        calls = min(asked.max_calls or settings.max_calls, settings.max_calls)
        if not self._prices.estimate("x", max_tokens=1):
            if asked.max_cost_usd is not None:
                detail = (
                    "max_cost_usd cannot be enforced: this server has no prices of its models; "
                    "give max_calls instead"
                )
                raise Refused.of("not_allowed", detail, field="answers.max_cost_usd")
            return None, calls
        usd = settings.max_usd if asked.max_cost_usd is None else asked.max_cost_usd
        return min(usd, settings.max_usd), calls

    def kept(self, tenant: UUID, opened: OpenCorpus) -> JudgeCache:
        """Return the answer cache of a corpus; delete caches from before an erasure.

        Raises:
            Refused: the cache cannot be used.
        """
        from steersman.db.judge_cache import JudgeCache  # noqa: PLC0415 (as above)

        corpus = opened.loaded.place.corpus
        file = self._folder / f"{tenant}-{corpus.id}-{corpus.erasures}.sqlite"
        try:
            self.forget(tenant, {corpus.id: corpus.erasures}, others=False)
            kept = JudgeCache(file, max_bytes=_CACHE_BYTES)
            os.utime(file)  # reads count as use
        except (DataError, OSError) as error:
            _log.error("%s", error)
            detail = "the answer cache cannot be written; see the server log"
            raise Refused.of("unavailable", detail) from None
        return kept

    def tenants(self) -> set[UUID]:
        """Return the tenants with cached answers."""
        return {tenant for tenant, _, _, _ in self._files()}

    def forget(
        self,
        tenant: UUID,
        corpora: Mapping[UUID, int],
        *,
        others: bool = True,
        now: float | None = None,
    ) -> int:
        """Delete outdated caches, because questions and answers may contain personal data.

        These are caches from before an erasure, caches unused for 30 days and, with `others`,
        caches of deleted corpora. A running evaluation that uses one is aborted.

        Args:
            now: seconds since 1970; None: current time.

        Raises:
            OSError: a file cannot be deleted.
        """
        before = (time.time() if now is None else now) - _KEPT_S
        listed = [one for one in self._files() if one[0] == tenant]
        used: dict[tuple[UUID, int], float] = {}
        for _, corpus, number, file in listed:
            try:
                at = file.stat().st_mtime
            except FileNotFoundError:
                continue  # another process was first
            used[corpus, number] = max(at, used.get((corpus, number), at))
        gone = 0
        for _, corpus, number, file in listed:
            newest = corpora.get(corpus)
            if newest is None and not others:
                continue
            stale = used.get((corpus, number), before) < before
            if newest is None or number < newest or stale:
                file.unlink(missing_ok=True)
                gone += 1
        return gone

    def _files(self) -> Iterable[tuple[UUID, UUID, int, Path]]:
        """Yield tenant, corpus, number of erasures and path of each cache file."""
        if not self._folder.is_dir():
            return []
        named = [(_FILE.fullmatch(file.name), file) for file in self._folder.iterdir()]
        return [(UUID(it[1]), UUID(it[2]), int(it[3]), file) for it, file in named if it]

    def answers(
        self,
        asked: AskedAnswers,
        embedder: TextEmbedder,
        kept: JudgeCache,
        *,
        cost_ref_usd: float,
    ) -> Answers:
        """Return the models with the settings of a request.

        Args:
            cost_ref_usd: unit of cost in US dollars.

        Raises:
            DataError: a detector is not installed.
        """
        from steersman.providers.detectors.answer_review import Instability  # noqa: PLC0415
        from steersman.providers.judges.faithfulness import Faithfulness  # noqa: PLC0415
        from steersman.providers.judges.judge import Retry  # noqa: PLC0415 (as above)
        from steersman.providers.judges.relevancy import Relevancy  # noqa: PLC0415
        from steersman_systems.rag_tuner.judged_answers import Answers  # noqa: PLC0415

        settings = self.check()
        return Answers(
            self._writer,
            lambda judge: [Faithfulness(judge), Relevancy(judge, embedder)],
            judge_backend=self._judge,
            cache=kept,
            prices=self._prices,
            rate=self._rate,
            retry=Retry(tries=2, longest_s=5.0),
            timeout_s=settings.timeout_s,
            max_tokens=asked.max_tokens,
            detectors=self._detectors(asked),
            instability=Instability() if "instability" in asked.detectors else None,
            repeats=asked.repeats,
            cost_ref_usd=cost_ref_usd,
        )

    def _detectors(self, asked: AskedAnswers) -> list[Detector]:
        from steersman.providers.detectors.national_ids import PersonalData  # noqa: PLC0415 (as above)
        from steersman.providers.detectors.toxicity import toxicity  # noqa: PLC0415

        known: dict[str, Callable[[], Detector]] = {
            "personal_data": PersonalData,
            "toxicity": lambda: toxicity(self._home),
        }
        return [make() for name, make in known.items() if name in asked.detectors]
