"""Live evaluation: real searches, in time, at a rate, within a budget, and nothing paid twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from steersman.errors import BackendUnavailableError, DataError, InputError
from steersman.llm import Faithfulness, JudgeCache, Prices, Relevancy, Retry
from steersman.retrieval import Question, Searcher
from steersman.retrieval.documents import Document, Lineage, Passage
from steersman.systems.rag_tuner import Configuration, load_policy_config, reward_of
from steersman.systems.rag_tuner.answering import Answers
from steersman.systems.rag_tuner.evaluating import LiveEvaluator
from steersman.systems.rag_tuner.limits import Limits, Line
from tests.retrieval.hashed_words import HashedWords

pytest.importorskip("bm25s")
TEXTS = {
    "pumps": "A worn bearing makes a pump hum.",
    "cables": "A cable carries forty amperes.",
    "valves": "A valve that leaks needs a seal.",
    "motors": "A motor hums when its bearing is dry.",
}
QUESTIONS = (
    Question("q1", "why does the pump hum", {"pumps": 1.0}),
    Question("q2", "how many amperes does a cable carry", {"cables": 1.0}),
    Question("q3", "what does a leaking valve need", {"valves": 1.0}),
)
ALL = np.arange(3)
WORDS = Configuration("bm25", k=2)


def passages():
    found = []
    for name, text in TEXTS.items():
        lineage = Lineage(Document(name, text).sha256, 0, len(text), chunker="whole")
        found.append(Passage(name, 0, text, lineage=lineage))
    return found


class Flaky(HashedWords):
    """An embedder that is away for the first so many calls after the passages were embedded."""

    def __init__(self, away=0):
        super().__init__()
        self.away, self.calls = 0, 0
        self._then = away

    def begin(self):
        self.away = self._then

    def encode(self, texts):
        self.calls += 1
        if self.away > 0:
            self.away -= 1
            raise BackendUnavailableError("the embedder is away")
        return super().encode(texts)


def evaluator(embedder=None, **options):
    embedder = embedder or HashedWords()
    searcher = Searcher(passages(), embedder=embedder)
    if isinstance(embedder, Flaky):
        embedder.begin()
    options.setdefault("limits", Limits(pause_s=0.0))
    return LiveEvaluator(searcher, QUESTIONS, revision="manuals@1", **options)


def test_passages_are_judged_as_in_a_recording():
    batch = evaluator().evaluate(WORDS, ALL)
    assert batch.measures == ("recall", "ndcg")
    assert batch.quality.tolist() == [[1.0, 1.0]] * 3
    assert batch.cost.tolist() == [2 / 16] * 3
    assert (batch.latency_ms > 0).all()
    assert reward_of(batch, load_policy_config()).breaches == ()
    wrong = LiveEvaluator(
        Searcher(passages()), [Question("q", "pump hum", {"cables": 1.0})], revision="r"
    )
    assert wrong.evaluate(WORDS, np.arange(1)).quality.tolist() == [[0.0, 0.0]]


def test_what_was_found_is_not_asked_again(tmp_path):
    kept = JudgeCache(tmp_path / "kept.sqlite")
    embedder = Flaky()
    first = evaluator(embedder, kept=kept)
    dense = Configuration("dense", k=2)
    before = first.evaluate(dense, ALL[:2])
    calls = embedder.calls
    found = first.measure(dense, ALL)
    assert (found.paid_before, embedder.calls) == (2, calls + 1)
    assert found.batch.latency_ms[:2].tolist() == before.latency_ms.tolist()
    # Another configuration, revision or judgement is another evaluation.
    for other in (
        evaluator(kept=kept).measure(Configuration("dense", k=3), ALL),
        LiveEvaluator(Searcher(passages()), QUESTIONS, revision="manuals@2", kept=kept).measure(
            WORDS, ALL
        ),
    ):
        assert other.paid_before == 0


def test_a_search_without_its_embedder_is_tried_again_then_marked_and_no_evidence(tmp_path):
    hybrid = Configuration("hybrid", k=2)
    waited = []
    patient = evaluator(
        Flaky(away=2), limits=Limits(workers=1, tries=3, pause_s=0.25), sleep=waited.append
    )
    assert patient.evaluate(hybrid, ALL).quality.shape == (3, 2)
    assert waited == [0.25, 0.25]
    kept = JudgeCache(tmp_path / "kept.sqlite")
    embedder = Flaky(away=3)
    away = evaluator(embedder, kept=kept, limits=Limits(workers=1, tries=3, pause_s=0.0))
    found = away.measure(hybrid, ALL)
    assert found.degraded == (0,)
    assert found.told[0].degraded == ("dense",)
    assert found.batch.queries.tolist() == [1, 2]
    embedder.away = 3
    with pytest.raises(DataError, match="dense was away for 1 of 3 queries"):
        away.evaluate(hybrid, ALL)
    embedder.away = 0
    calls = embedder.calls
    assert away.evaluate(hybrid, ALL).queries.tolist() == [0, 1, 2]
    assert embedder.calls == calls + 1


def test_all_degraded_is_no_batch_at_all():
    found = evaluator(Flaky(away=99), limits=Limits(pause_s=0.0)).measure(
        Configuration("dense", k=2), ALL
    )
    assert found.batch is None
    assert found.degraded == (0, 1, 2)


def test_a_search_that_takes_too_long_has_failed():
    let_go = threading.Event()

    class Slow(HashedWords):
        def encode(self, texts):
            if len(texts) == 1:
                let_go.wait(30)
            return super().encode(texts)

    slow = evaluator(Slow(), limits=Limits(timeout_s=0.05))
    batch = slow.evaluate(Configuration("dense", k=2), ALL)
    let_go.set()
    assert batch.failed.all()
    assert batch.latency_ms.tolist() == [50.0] * 3
    assert "error_rate" in reward_of(batch, load_policy_config()).breaches


def test_queries_are_begun_at_a_rate():
    waited = []
    limited = evaluator(
        limits=Limits(queries_per_s=2.0, workers=1), clock=lambda: 0.0, sleep=waited.append
    )
    limited.evaluate(WORDS, ALL)
    assert waited == [0.5, 1.0]


def test_what_comes_when_the_line_is_full_is_sent_away():
    entered, let_go = threading.Event(), threading.Event()

    class Slow(HashedWords):
        def encode(self, texts):
            if len(texts) == 1:
                entered.set()
                let_go.wait(30)
            return super().encode(texts)

    busy = evaluator(Slow(), limits=Limits(running=1, waiting=0, timeout_s=60.0))
    dense = Configuration("dense", k=2)
    first = threading.Thread(target=busy.evaluate, args=(dense, ALL[:1]))
    first.start()
    assert entered.wait(30)
    with pytest.raises(BackendUnavailableError, match="1 evaluations run and 0 wait"):
        busy.evaluate(dense, ALL[:1])
    let_go.set()
    first.join()
    busy.evaluate(dense, ALL[:1])  # the place is free again
    with Line(1, 1).turn():
        pass


class Written:
    """A model whose answers are written down; it counts its calls."""

    name = "written"

    def __init__(self):
        self.answers, self.judged, self.down = 0, 0, False

    def complete(self, prompt, *, max_tokens, timeout_s):
        if "PASSAGES" in prompt:
            self.answers += 1
            if self.down:
                raise BackendUnavailableError("busy", retry_after_s=None)
            return "The bearing is worn."
        self.judged += 1
        if "noncommittal" in prompt:
            return json.dumps({"noncommittal": False, "questions": ["why does the pump hum"] * 3})
        if "contexts" in prompt.split("DATA ")[1]:
            verdict = {"number": 1, "grounds": "it says so", "supported": True}
            return json.dumps({"verdicts": [verdict]})
        return json.dumps({"statements": ["The bearing is worn."]})


def answers(model, tmp_path=None, **options):
    cache = None if tmp_path is None else JudgeCache(tmp_path / "judged.sqlite")
    words = HashedWords()
    return Answers(
        model,
        lambda judge: [Faithfulness(judge), Relevancy(judge, words)],
        cache=cache,
        prices=Prices(call_usd=0.01),
        **options,
    )


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


def test_the_budget_of_an_episode_ends_it_and_the_next_goes_on(tmp_path):
    model = Written()
    kept = JudgeCache(tmp_path / "kept.sqlite")
    limits = Limits(workers=1, max_cost_usd=0.04)
    live = evaluator(kept=kept, answers=answers(model, tmp_path), limits=limits)
    found = live.measure(WORDS, ALL)
    assert found.cost_usd <= 0.04 + 1e-9
    assert [one.why for one in found.told.values()] == ["", "budget", "budget"]
    with pytest.raises(DataError, match="the budget of an evaluation ended before 1 of 3"):
        live.evaluate(WORDS, ALL)
    batch = live.evaluate(WORDS, ALL)
    assert not np.isnan(batch.quality).any()
    # Nothing twice; one of three judgements of relevancy is enough, as all answers are the same.
    assert (model.answers, model.judged) == (3, 7)


def test_a_model_that_does_not_answer_is_a_failure_and_is_asked_again_later(tmp_path):
    model = Written()
    model.down = True
    kept = JudgeCache(tmp_path / "kept.sqlite")
    live = evaluator(kept=kept, answers=answers(model, retry=Retry(tries=1)))
    batch = live.evaluate(WORDS, ALL)
    assert batch.failed.all()
    assert "error_rate" in reward_of(batch, load_policy_config()).breaches
    model.down = False
    assert not live.evaluate(WORDS, ALL).failed.any()


def test_answers_that_hold_what_must_not_be_in_them_are_marked():
    live = evaluator(answers=answers(Written(), violates=lambda text: "bearing" in text))
    assert live.evaluate(WORDS, ALL).violations.all()
    with pytest.raises(InputError, match="prompt is 'poem'"):
        live.evaluate(Configuration("bm25", k=2, prompt="poem"), ALL)


KILLED = """
import sys, time, numpy as np
from pathlib import Path
from tests.systems.rag_tuner.test_evaluating import *
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
