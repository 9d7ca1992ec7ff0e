"""Which models answer and judge for ``POST /tuner/evaluate``, as the server's environment says."""

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
from steersman.retrieval import state_directory
from steersman.service.tuner_spending import Daily
from steersman.wire import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from steersman.llm import Backend, JudgeCache, TextEmbedder
    from steersman.llm.detectors import Detector
    from steersman.retrieval import Opened
    from steersman.service.tuner_messages import AskedAnswers
    from steersman.systems.rag_tuner import Answers

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
        url: of a server of chat completions, such as ``http://127.0.0.1:8080/v1``.
        model: that answers, as the server names it.
        api_key: of that server; None: it wants none.
        judge_url: of the server that judges; None: the same server, model and key.
        judge_model: that judges.
        judge_api_key: of that server.
        prompt_usd: for 1,000 tokens of prompts, of both.
        answer_usd: for 1,000 tokens of answers.
        call_usd: for a call whose tokens are not told or have no price; None: they are estimated.
        max_usd: the most that one request may spend, where there are prices.
        max_calls: of models, in one request.
        day_usd: the most that a tenant may spend in a day, likewise.
        day_calls: of models, of a tenant in a day.
        per_s: calls a second, of all tenants together; None: any number.
        timeout_s: of one call, 0.001 to 3600.
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
        """Return what the environment names; None: no model.

        Args:
            environment: default: of this process.

        Raises:
            InputError: a variable without the one it needs, or a number that is none or out of
                its range.

        >>> from_environment = AnswerSettings.from_environment
        >>> from_environment({}) is None
        True
        >>> from_environment({"STEERSMAN_ANSWERS_URL": "http://127.0.0.1:8080/v1"})
        Traceback (most recent call last):
        steersman.errors.InputError: STEERSMAN_ANSWERS_MODEL is not set; name the model ...
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
    """The models of a server, and what they said, kept apart for each tenant and corpus.

    Args:
        settings: which models; None: none, and whoever asks for answers is told so.
        home: directory of all state: what was paid for is kept there, and weights of detectors.
        on_spent: told calls and dollars of each evaluation, also of one that was broken off.

    Raises:
        InputError: a setting out of its range.
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
        from steersman.llm import ChatBackend, Judge, Prices, Rate  # noqa: PLC0415

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
        """Who answers and who judges, without their addresses: those are the operator's."""
        if self.settings is None:
            return "", ""
        return self.settings.model, self.settings.judge_model or self.settings.model

    def spent(self, calls: int, cost_usd: float) -> None:
        """Count what an evaluation took; threads may do so at once.

        Args:
            calls: of models.
            cost_usd: what they cost.
        """
        with self._counting:
            self.on_spent(calls, cost_usd)

    def check(self) -> AnswerSettings:
        """Return the settings.

        Raises:
            Refused: there is no model here.
        """
        if self.settings is None:
            detail = (
                "this server has no model to answer questions, so answers cannot be judged; leave "
                "answers out, or ask the operator to set STEERSMAN_ANSWERS_URL and _MODEL"
            )
            raise Refused.of("not_allowed", detail, field="answers")
        return self.settings

    def budget(self, asked: AskedAnswers) -> tuple[float | None, int]:
        """Return the most money and calls of a request: what it asks for, and not more than may be.

        Args:
            asked: by it.

        Returns:
            Dollars, or None where nothing has a price; and calls.

        Raises:
            Refused: there is no model here, or no price for the money that it caps.
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

    def kept(self, tenant: UUID, opened: Opened) -> JudgeCache:
        """Return where what is paid for a corpus is kept; what was before an erasure is deleted.

        Args:
            tenant: whose.
            opened: the corpus.

        Raises:
            Refused: it cannot be used.
        """
        from steersman.llm import JudgeCache  # noqa: PLC0415 (as above)

        corpus = opened.loaded.place.corpus
        file = self._folder / f"{tenant}-{corpus.id}-{corpus.erasures}.sqlite"
        try:
            self.forget(tenant, {corpus.id: corpus.erasures}, others=False)
            kept = JudgeCache(file, max_bytes=_CACHE_BYTES)
            os.utime(file)  # what is only read is used as well
        except (DataError, OSError) as error:
            _log.error("%s", error)
            detail = "the answer cache cannot be written; see the server log"
            raise Refused.of("unavailable", detail) from None
        return kept

    def tenants(self) -> set[UUID]:
        """Return the tenants of whom something is kept."""
        return {tenant for tenant, _, _, _ in self._files()}

    def forget(
        self,
        tenant: UUID,
        corpora: Mapping[UUID, int],
        *,
        others: bool = True,
        now: float | None = None,
    ) -> int:
        """Delete what must not be kept any more: questions and answers may be about people.

        That is what was before an erasure, what nobody used for 30 days and, of `others`, what is
        of corpora that are gone. An evaluation under way that kept something there is broken off.

        Args:
            tenant: whose.
            corpora: all there are of it: id -> how often documents were erased.
            others: whether all there are is told; False: look at these alone.
            now: seconds since 1970; None: the clock's.

        Returns:
            How many files were deleted.

        Raises:
            OSError: one cannot be deleted.
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
        """Return whose they are, of which corpus, and after how many erasures."""
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
        """Return the models as a request wants them.

        Args:
            asked: by it.
            embedder: of questions, for relevancy.
            kept: where judgements are.
            cost_ref_usd: the unit of cost.

        Raises:
            DataError: a detector is not installed.
        """
        from steersman.llm import Faithfulness, Relevancy, Retry  # noqa: PLC0415 (as above)
        from steersman.llm.detectors import Instability  # noqa: PLC0415
        from steersman.systems.rag_tuner import Answers  # noqa: PLC0415

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
        from steersman.llm.detectors import PersonalData  # noqa: PLC0415 (as above)
        from steersman.systems.toxicity_model import toxicity  # noqa: PLC0415

        known: dict[str, Callable[[], Detector]] = {
            "personal_data": PersonalData,
            "toxicity": lambda: toxicity(self._home),
        }
        return [make() for name, make in known.items() if name in asked.detectors]
