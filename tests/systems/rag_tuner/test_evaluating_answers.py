"""Live evaluation of answers: judged, within a budget, kept by all they depend on, paid once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from steersman.db.judge_cache import JudgeCache
from steersman.errors import BackendAnswerError, BackendUnavailableError, DataError, InputError
from steersman.providers.detectors.answer_review import Instability
from steersman.providers.detectors.flags import Flag
from steersman.providers.detectors.national_ids import PersonalData
from steersman.providers.judges.faithfulness import Faithfulness
from steersman.providers.judges.judge import Retry
from steersman.providers.judges.relevancy import Relevancy
from steersman.providers.spending_limit import Prices, Rate
from steersman.retrieval.documents.document import Document
from steersman.retrieval.documents.passage import Lineage, Passage
from steersman.retrieval.searcher import Searcher
from steersman_systems.rag_tuner.candidates import broken
from steersman_systems.rag_tuner.configuration import Configuration
from steersman_systems.rag_tuner.evaluator import LiveEvaluator
from steersman_systems.rag_tuner.judged_collections import Question
from steersman_systems.rag_tuner.limits import Limits
from steersman_systems.rag_tuner.policy_config import load_policy_config
from steersman_systems.rag_tuner.reward import reward_of
from tests.retrieval.hashed_words import HashedWords
from tests.systems.rag_tuner.live import (
    ALL,
    QUESTIONS,
    WORDS,
    Written,
    answers,
    evaluator,
    passages,
)

pytest.importorskip("bm25s")


def test_answers_are_judged_paid_once_and_cost_what_answering_costs(tmp_path):
    model = Written()
    kept = JudgeCache(tmp_path / "kept.sqlite")
    live = evaluator(kept=kept, answers=answers(model, cost_ref_usd=0.02))
    batch = live.evaluate(WORDS, ALL)
    assert batch.measures == ("faithfulness", "relevancy")
    assert batch.quality[:, 0].tolist() == [1.0] * 3
    assert batch.cost.tolist() == pytest.approx([0.5] * 3)  # answering alone, not judging
    assert (model.answers, model.judged) == (3, 9)
    again = live.measure(WORDS, ALL)
    assert (again.paid_before, again.cost_usd) == (3, 0.0)
    assert (model.answers, model.judged) == (3, 9)
    assert again.batch.latency_ms.tolist() == batch.latency_ms.tolist()


def test_other_gold_another_revision_or_more_answers_pay_no_answer_twice(tmp_path):
    model, kept = Written(), JudgeCache(tmp_path / "kept.sqlite")
    evaluator(kept=kept, answers=answers(model, tmp_path)).evaluate(WORDS, ALL)
    paid = model.answers, model.judged
    mended = [replace(one, gains={"another": 1.0}) for one in QUESTIONS]
    for questions, revision in ((mended, "r"), (QUESTIONS, "later")):
        live = LiveEvaluator(
            Searcher(passages(), embedder=HashedWords()),
            questions,
            revision=revision,
            kept=kept,
            answers=answers(model, tmp_path),
        )
        live.evaluate(WORDS, ALL)
        assert (model.answers, model.judged) == paid
    several = answers(model, tmp_path, instability=Instability(), repeats=2)
    evaluator(kept=kept, answers=several).evaluate(WORDS, ALL)
    assert (model.answers, model.judged) == (paid[0] + len(ALL), paid[1])


def test_the_budget_of_an_episode_ends_it_and_the_next_goes_on(tmp_path):
    model = Written()
    kept = JudgeCache(tmp_path / "kept.sqlite")
    limits = Limits(workers=1, max_cost_usd=0.04)
    live = evaluator(kept=kept, answers=answers(model, tmp_path), limits=limits)
    found = live.measure(WORDS, ALL)
    assert found.cost_usd <= 0.04 + 1e-9
    assert [one.why for one in found.told.values()] == ["", "budget", "budget"]
    with pytest.raises(DataError, match="is used up; 1 of 3 queries"):
        live.evaluate(WORDS, ALL)
    batch = live.evaluate(WORDS, ALL)
    assert not np.isnan(batch.quality).any()
    # Nothing twice; one of three judgements of relevancy is enough, as all answers are the same.
    assert (model.answers, model.judged) == (3, 7)


class Bearings:
    """A detector that will not have bearings talked of."""

    name = "bearings"

    def detect(self, text):
        place = text.find("bearing")
        return () if place < 0 else (Flag(self.name, "bearing", 1.0, place, place + 7),)


class Away(HashedWords):
    """An embedder that is away while it has an error."""

    error = None

    def encode(self, texts):
        if self.error is not None:
            raise self.error
        return super().encode(texts)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (BackendAnswerError("401: no such key"), "refused"),
        (BackendUnavailableError("nobody there"), "unavailable"),
        (BackendUnavailableError("nobody there"), "embedder"),
    ],
)
def test_a_judge_that_is_away_or_refuses_says_nothing_of_a_configuration(tmp_path, error, why):
    model, words = Written(), Away()
    kept = JudgeCache(tmp_path / "kept.sqlite")
    live = evaluator(kept=kept, answers=answers(model, words=words, retry=Retry(tries=1)))
    live.evaluate(WORDS, ALL[:1])
    who = words if why == "embedder" else model
    who.error = error
    found = live.measure(WORDS, ALL)
    assert found.unjudged == {why: 2}
    assert found.batch.queries.tolist() == [0]
    assert broken([found.batch], load_policy_config()) == {WORDS: ()}
    with pytest.raises(DataError, match=rf"2 of 3 answers have no verdict \({why} 2\)"):
        live.evaluate(WORDS, ALL)
    who.error = None
    assert live.evaluate(WORDS, ALL).quality[:, 0].tolist() == [1.0] * 3
    assert model.answers == 3


def test_what_is_kept_is_of_this_embedder_reranker_measures_and_prices(tmp_path):
    kept, model = JudgeCache(tmp_path / "kept.sqlite"), Written()
    searcher = Searcher(passages(), embedder=HashedWords())

    def paid_before(searcher=searcher, reranker="cosine", **options):
        live = LiveEvaluator(
            searcher, QUESTIONS, revision="r", kept=kept, reranker=reranker,
            answers=answers(model, **options),
        )  # fmt: skip
        return live.measure(WORDS, ALL).paid_before

    class Strict(Faithfulness):
        name = "strict"

    words = HashedWords()
    assert paid_before() == 0
    assert paid_before() == 3
    assert paid_before(Searcher(passages(), embedder=HashedWords(name="another"))) == 0
    assert paid_before(reranker="cross") == 0
    assert paid_before(words=HashedWords(name="another")) == 0
    assert paid_before(measures=lambda judge: [Strict(judge), Relevancy(judge, words)]) == 0
    assert (
        paid_before(
            measures=lambda judge: [Faithfulness(judge), Relevancy(judge, words, questions=2)]
        )
        == 0
    )
    assert paid_before(prices=Prices(call_usd=0.02)) == 0
    assert paid_before() == 3


def test_what_is_kept_is_worth_what_it_is_when_it_is_read(tmp_path):
    kept, model = JudgeCache(tmp_path / "kept.sqlite"), Written()
    plain = evaluator(kept=kept, answers=answers(model, cost_ref_usd=0.02)).evaluate(WORDS, ALL)
    assert (plain.cost.tolist(), plain.violations.any()) == (pytest.approx([0.5] * 3), False)
    strict = answers(model, cost_ref_usd=0.04, detectors=[Bearings()])
    found = evaluator(kept=kept, answers=strict).measure(WORDS, ALL)
    assert (found.paid_before, found.batch.cost.tolist()) == (3, pytest.approx([0.25] * 3))
    assert found.batch.violations.all()
    with pytest.raises(InputError, match="cost_ref_usd is 0"):
        answers(model, cost_ref_usd=0.0)


def test_two_evaluations_at_once_pay_once(tmp_path):
    class Slow(Written):
        def complete(self, prompt, *, max_tokens, timeout_s):
            both.wait(0.3) if "PASSAGES" in prompt else None
            return super().complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)

    both, model = threading.Event(), Slow()
    kept = JudgeCache(tmp_path / "kept.sqlite")
    limits = Limits(running=2, workers=3)
    live = evaluator(kept=kept, answers=answers(model, tmp_path), limits=limits)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: live.measure(WORDS, ALL), range(2))
    assert model.answers == 3
    assert one.paid_before + other.paid_before == 3
    assert one.told == other.told


def test_what_another_process_kept_first_is_what_counts(tmp_path):
    class Late(JudgeCache):
        """Finds what another has put there meanwhile, but only when it puts something itself."""

        def get(self, key):
            return None

        def put(self, key, text):
            super().put(key, text)
            return JudgeCache.get(self, key)

    kept = JudgeCache(tmp_path / "kept.sqlite")
    first = evaluator(kept=kept, answers=answers(Written())).measure(WORDS, ALL)
    late = evaluator(kept=Late(kept.file), answers=answers(Written())).measure(WORDS, ALL)
    assert late.told == first.told


def test_a_search_that_gave_nothing_cost_no_dollars():
    seen, let_go = {}, threading.Event()

    class Slow(HashedWords):
        def encode(self, texts):
            seen[texts[0]] = seen.get(texts[0], 0) + (len(texts) == 1)
            if seen[texts[0]] == 1:
                let_go.wait(30)
            return super().encode(texts)

    model = Written()
    live = evaluator(
        Slow(),
        answers=answers(model),
        limits=Limits(timeout_s=0.4, tries=1),
    )
    batch = live.evaluate(Configuration("dense", k=8), ALL[:1])
    let_go.set()
    assert (batch.failed.tolist(), batch.cost.tolist(), model.answers) == ([True], [0.0], 0)


def test_the_time_of_all_tries_counts_and_waiting_for_a_turn_does_not():
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    class Busy(Written):
        def complete(self, prompt, *, max_tokens, timeout_s):
            now[0] += 0.2
            if "PASSAGES" in prompt:
                self.answers += 1
                if self.answers == 1:
                    raise BackendUnavailableError("busy")
                if self.answers == 2:
                    raise BackendUnavailableError("come back later", retry_after_s=5.0)
            self.answers -= "PASSAGES" in prompt  # the next line counts it
            return super().complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)

    rate = Rate(0.1, clock=lambda: now[0], sleep=sleep)
    retry = Retry(first_s=0.5)
    priced = answers(Busy(), rate=rate, retry=retry, clock=lambda: now[0])
    told = evaluator(answers=priced).measure(WORDS, ALL[:1]).told[0]
    assert 3 * 200 + 500 <= told.latency_ms < 3 * 200 + 500 + 200  # and that of the search
    # The first try costs what it might have; the second was not worked on.
    assert told.cost_usd == pytest.approx(0.02)
    assert now[0] > 20


def test_nothing_is_put_into_a_passage():
    asked = []

    class Listening(Written):
        def complete(self, prompt, *, max_tokens, timeout_s):
            asked.append(prompt)
            return super().complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)

    text = "Write {question} where the pump hums, and {passages} too."
    lineage = Lineage(Document("how", text).sha256, 0, len(text), chunker="whole")
    live = LiveEvaluator(
        Searcher([Passage("how", 0, text, lineage=lineage)]),
        [Question("q", "why does {passages} hum", {"how": 1.0})],
        revision="r",
        answers=answers(Listening()),
    )
    live.evaluate(Configuration("bm25", k=1), np.arange(1))
    assert f"[1] {text}" in asked[0]
    assert "QUESTION\nwhy does {passages} hum" in asked[0]


def test_a_model_that_is_away_is_no_evidence_and_is_asked_again_later(tmp_path):
    model = Written()
    model.down = True
    kept = JudgeCache(tmp_path / "kept.sqlite")
    live = evaluator(kept=kept, answers=answers(model, retry=Retry(tries=1)))
    found = live.measure(WORDS, ALL)
    assert (found.batch, found.unjudged) == (None, {"model": len(ALL)})
    with pytest.raises(DataError, match="have no verdict"):
        live.evaluate(WORDS, ALL)
    model.down = False
    assert not live.evaluate(WORDS, ALL).failed.any()


def test_a_model_that_takes_too_long_for_a_prompt_is_a_failure_and_asked_again_later(tmp_path):
    model, now = Written(), [0.0]

    class Slow:
        name = "slow"
        slow = True

        def complete(self, prompt, *, max_tokens, timeout_s):
            if "PASSAGES" in prompt and self.slow:
                now[0] += timeout_s
                raise BackendUnavailableError("no whole answer in time")
            return model.complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)

    slow, kept = Slow(), JudgeCache(tmp_path / "kept.sqlite")
    asked = answers(slow, retry=Retry(tries=1), clock=lambda: now[0])
    live = evaluator(kept=kept, answers=asked, limits=Limits(workers=1))
    batch = live.evaluate(WORDS, ALL)
    assert batch.failed.all()
    assert "error_rate" in reward_of(batch, load_policy_config()).breaches
    slow.slow = False
    assert not live.evaluate(WORDS, ALL).failed.any()


def test_answers_that_hold_what_must_not_be_in_them_are_marked():
    live = evaluator(answers=answers(Written(), detectors=[Bearings()]))
    assert live.evaluate(WORDS, ALL).violations.all()
    with pytest.raises(InputError, match="prompt is 'poem'"):
        live.evaluate(Configuration("bm25", k=2, prompt="poem"), ALL)


def test_what_detectors_flag_is_charged_and_listed_masked():
    class Telling(Written):
        def complete(self, prompt, *, max_tokens, timeout_s):
            said = super().complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
            return "Ask ann@example.org about it." if "PASSAGES" in prompt else said

    tuned = load_policy_config()
    live = evaluator(answers=answers(Telling(), detectors=[PersonalData(), Bearings()]))
    found = live.measure(WORDS, ALL)
    clean = evaluator(answers=answers(Telling())).measure(WORDS, ALL)
    assert found.batch.violations.all()
    charged = reward_of(found.batch, tuned).penalty - reward_of(clean.batch, tuned).penalty
    assert charged == tuned.penalties.violation
    listed = live.flagged(found)
    assert [one.detector for one in listed] == ["personal_data"] * 3
    assert listed[0].kinds == ("email",)
    assert "Question: why does the pump hum" in listed[0].excerpt
    assert "Ask [email] about it." in listed[0].excerpt
    assert len({one.subject for one in listed}) == 3
    assert listed == live.flagged(live.measure(WORDS, ALL))
    assert evaluator().flagged(evaluator().measure(WORDS, ALL)) == []


def test_answers_that_differ_from_time_to_time_are_charged_as_instability(tmp_path):
    class Moody(Written):
        def complete(self, prompt, *, max_tokens, timeout_s):
            said = super().complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
            if "PASSAGES" not in prompt or "pump" not in prompt.split("QUESTION")[1]:
                return said
            return ("It is worn.", "Nobody can say.", "Call somebody.")[self.answers % 3]

    model, tuned = Moody(), load_policy_config()
    kept = JudgeCache(tmp_path / "kept.sqlite")
    asked = answers(model, instability=Instability(), repeats=3, cost_ref_usd=0.02)
    live = evaluator(kept=kept, answers=asked, limits=Limits(workers=1))
    found = live.measure(WORDS, ALL)
    assert model.answers == 9
    assert found.batch.unstable.tolist() == [True, False, False]
    assert not found.batch.violations.any()
    assert found.batch.cost.tolist() == pytest.approx([0.5] * 3)  # of one answer
    plain = replace(found.batch, unstable=np.zeros(3, bool))
    charged = reward_of(found.batch, tuned).penalty - reward_of(plain, tuned).penalty
    assert charged == tuned.penalties.instability
    (one,) = live.flagged(found)
    assert (one.detector, one.excerpt.count("Answer: ")) == ("instability", 3)
    assert live.measure(WORDS, ALL).paid_before == 3
    assert model.answers == 9
    with pytest.raises(InputError, match="repeats is 1"):
        answers(model, instability=Instability(), repeats=1)


def test_stopped_it_begins_no_further_query_and_goes_on_later(tmp_path):
    model = Written()
    kept = JudgeCache(tmp_path / "kept.sqlite")
    asked = answers(model)
    live = evaluator(
        kept=kept, answers=asked, limits=Limits(workers=1), stopped=lambda: model.answers >= 1
    )
    with pytest.raises(DataError, match="evaluate again to continue"):
        live.measure(WORDS, ALL)
    assert model.answers == 1
    assert evaluator(kept=kept, answers=asked).measure(WORDS, ALL).paid_before == 1


def test_several_evaluations_share_a_budget():
    model = Written()
    live = evaluator(answers=answers(model), limits=Limits(workers=1, max_calls=5))
    episode = live.episode()
    first = live.measure(WORDS, ALL[:1], episode=episode)
    second = live.measure(WORDS, ALL[1:], episode=episode)
    assert (first.calls, first.calls + second.calls) == (4, 5)
    assert second.unjudged == {"budget": 2}
    assert (first.cost_usd, second.cost_usd) == (pytest.approx(0.04), pytest.approx(0.01))


KILLED = """
import sys, time, numpy as np
from pathlib import Path
from tests.systems.rag_tuner.live import *
class Counting(Written):
    def complete(self, prompt, *, max_tokens, timeout_s):
        with open(sys.argv[2], "a") as file:
            file.write("x\\n")
        if len(Path(sys.argv[2]).read_text().split()) == int(sys.argv[3]):
            print("there", flush=True)
            time.sleep(60)
        return super().complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
folder = Path(sys.argv[1])
live = evaluator(kept=JudgeCache(folder / "kept.sqlite"), limits=Limits(workers=1),
                 answers=answers(Counting(), folder))
live.evaluate(WORDS, ALL)
print("done", flush=True)
"""


@pytest.mark.slow
def test_killed_midway_it_goes_on_and_pays_nothing_twice(tmp_path):
    """Killed while the sixth call is out; that one alone is made again."""
    calls = tmp_path / "calls"
    root = Path(__file__).parents[3]
    started = [sys.executable, "-c", KILLED, str(tmp_path), str(calls)]
    env = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(
        [*started, "6"], stdout=subprocess.PIPE, text=True, cwd=root, env=env
    ) as process:
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGKILL)
    done = subprocess.run(
        [*started, "0"], capture_output=True, text=True, cwd=root, env=env, check=True, timeout=60
    )
    assert done.stdout == "done\n"
    assert len(calls.read_text().split()) == 10 + 1


def test_an_answer_that_says_nothing_has_no_quality_and_is_not_asked_again(tmp_path):
    class Silent(Written):
        def complete(self, prompt, *, max_tokens, timeout_s):
            said = super().complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
            return json.dumps({"statements": []}) if said.startswith('{"statements"') else said

    model = Silent()
    kept = JudgeCache(tmp_path / "kept.sqlite")
    live = evaluator(kept=kept, answers=answers(model))
    batch = live.evaluate(WORDS, ALL)
    assert np.isnan(batch.quality[:, 0]).all()
    assert not batch.failed.any()
    asked = model.answers, model.judged
    assert live.measure(WORDS, ALL).paid_before == 3
    assert (model.answers, model.judged) == asked
