"""An answer is paid once, whoever asks and whatever happens meanwhile."""

import logging
import multiprocessing
import signal
import sqlite3
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

from steersman.db.judge_cache import JudgeCache, key_of
from steersman.errors import DataError, InputError
from steersman.providers.judges.faithfulness import Faithfulness
from steersman.providers.judges.relevancy import Relevancy
from steersman.providers.judges.scores import Case, Tally
from tests.providers.scripted import Script, judge_at
from tests.sqlite_neighbour import keeps_its_journal

ANSWER, PARTS = "Tea is hot.", ["Tea is hot."]
CASE = Case("Is tea hot?", ANSWER, ("Tea is hot.",))
KEY = key_of("backend", "prompt", 10, "v/1")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "deep" / "judgements.sqlite"


def test_after_a_restart_nothing_is_asked_again(chat, file):
    chat.answer = Script({ANSWER: PARTS}, supported=PARTS)
    first = Faithfulness(judge_at(chat, cache=JudgeCache(file)))(CASE)
    again = Faithfulness(judge_at(chat, cache=JudgeCache(file)))(CASE)
    assert (first.calls, first.cached, again.calls, again.cached) == (2, 0, 0, 2)
    assert again.value == first.value == 1.0
    assert again.statements == first.statements
    assert len(chat.asked) == 2


def test_other_contexts_ask_anew_only_what_depends_on_them(chat, file):
    chat.answer = Script({ANSWER: PARTS}, supported=PARTS)
    measure = Faithfulness(judge_at(chat, cache=JudgeCache(file)))
    measure(CASE)
    found = measure(Case(CASE.question, ANSWER, ("Another context.",)))
    assert (found.calls, found.cached) == (1, 1)


def test_malformed_answers_were_paid_too_and_stay(chat, file):
    chat.answer = "not JSON"
    first = Faithfulness(judge_at(chat, cache=JudgeCache(file)))(CASE)
    again = Faithfulness(judge_at(chat, cache=JudgeCache(file)))(CASE)
    assert (first.calls, again.calls, again.cached) == (3, 0, 3)
    assert again.reason == "malformed"


def test_what_failed_is_asked_again(chat, file):
    chat.answer = Script({ANSWER: PARTS}, supported=PARTS)
    chat.mode = "broken"
    assert Faithfulness(judge_at(chat, cache=JudgeCache(file)))(CASE).reason == "unavailable"
    chat.mode = None
    assert Faithfulness(judge_at(chat, cache=JudgeCache(file)))(CASE).value == 1.0


@pytest.mark.parametrize("other", [("b", "p", 1, "v"), ("a", "q", 1, "v"), ("a", "p", 2, "v")])
def test_a_key_depends_on_everything(other):
    assert len({key_of("a", "p", 1, "v"), key_of(*other), key_of("a", "p", 1, "w")}) == 3
    assert key_of("ab", "c", 1, "v") != key_of("a", "bc", 1, "v")


def test_two_threads_that_ask_the_same_at_once_pay_once(chat, file):
    judge = judge_at(chat, cache=JudgeCache(file))
    tallies = [Tally() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda t: judge.ask("p", max_tokens=5, version="v", tally=t), tallies))
    assert set(said) == {"blue"}
    assert sum(tally.calls for tally in tallies) == len(chat.asked) == 1
    assert sum(tally.cached for tally in tallies) == 7
    assert not judge._turns


def test_the_first_answer_counts(file):
    one, two = JudgeCache(file), JudgeCache(file)
    assert one.put(KEY, "first") == "first"
    assert two.put(KEY, "second") == "first"
    assert one.get(KEY) == "first"
    assert one.get(key_of("backend", "prompt", 10, "v/2")) is None


@pytest.mark.parametrize("text", ["", "a\x00b", "서울 ✨", "half \ud83d", "x" * 100_000])
def test_any_answer_comes_back_as_it_was(file, text):
    JudgeCache(file).put(KEY, text)
    assert JudgeCache(file).get(KEY) == text


def test_a_second_cache_of_this_process_leaves_the_locks_of_the_first(file):
    first = JudgeCache(file)
    with first._using() as connection:
        connection.execute("SELECT count(*) FROM answer").fetchall()
        JudgeCache(file)
        assert keeps_its_journal(file)


def test_the_file_is_for_this_user_alone(file):
    cache = JudgeCache(file)
    cache.put(KEY, "secret")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_full_cache_stores_nothing_more_and_says_so_once(file, caplog):
    cache = JudgeCache(file, max_bytes=65_536)
    keys = [key_of("b", str(n), 1, "v") for n in range(40)]
    with caplog.at_level(logging.WARNING):
        assert [cache.put(key, "x" * 5000) for key in keys] == ["x" * 5000] * 40
    assert 0 < len(cache) < 40
    assert cache.unstored == 40 - len(cache)
    assert len([r for r in caplog.records if "cannot store" in r.getMessage()]) == 1
    assert file.stat().st_size <= 65_536


def test_a_cap_that_holds_nothing_is_refused(file):
    with pytest.raises(InputError, match="the minimum is 65,536"):
        JudgeCache(file, max_bytes=1000)


def test_another_file_is_left_alone(file):
    file.parent.mkdir()
    file.write_text("my thesis" * 1000)
    with pytest.raises(DataError, match="not a judge cache"):
        JudgeCache(file)
    assert file.read_text().startswith("my thesis")


def test_a_changed_answer_is_not_believed(file):
    cache = JudgeCache(file)
    cache.put(KEY, "true")
    connection = sqlite3.connect(file)
    with connection:
        connection.execute("UPDATE answer SET text = 'false'")
    connection.close()
    with pytest.raises(DataError, match="checksum"):
        cache.get(KEY)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(DataError, match="cannot be used"):
        JudgeCache(tmp_path / "taken" / "judgements.sqlite")


def _put_many(file, who):
    cache = JudgeCache(file)
    keys = [key_of("b", str(n), 1, "v") for n in range(60)]
    return [cache.put(key, f"{who} says {n}") for n, key in enumerate(keys)]


@pytest.mark.slow
def test_two_processes_agree_on_every_answer(file):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        one, two = pool.starmap(_put_many, [(file, "one"), (file, "two")])
    assert one == two
    assert len(JudgeCache(file)) == 60


@pytest.mark.slow
def test_a_killed_process_paid_for_what_it_stored(chat, file):
    chat.answer = Script(questions={f"answer {n}": None for n in range(3)})
    program = textwrap.dedent("""
        import os, sys, signal
        from pathlib import Path
        from steersman.providers.judges.scores import Case
        from steersman.providers.chat import ChatBackend
        from steersman.providers.judges.judge import Judge
        from steersman.db.judge_cache import JudgeCache
        from steersman.providers.judges.relevancy import Relevancy
        judge = Judge(ChatBackend(sys.argv[1], "judge"), cache=JudgeCache(Path(sys.argv[2])))
        measure = Relevancy(judge, None)
        for number in range(3):
            assert measure(Case("Why?", f"answer {number}")).calls == 1
            if number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    """)
    command = [sys.executable, "-c", program, chat.url(), str(file)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert len(chat.asked) == 2
    measure = Relevancy(judge_at(chat, cache=JudgeCache(file)), None)
    found = [measure(Case("Why?", f"answer {n}")) for n in range(3)]
    assert [(one.value, one.calls, one.cached) for one in found] == [
        (0.0, 0, 1),
        (0.0, 0, 1),
        (0.0, 1, 0),
    ]


def test_one_that_was_deleted_does_not_come_back_for_everybody_to_read(file):
    cache = JudgeCache(file)
    cache.put(KEY, "secret")
    file.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        cache.get(KEY)
    with pytest.raises(DataError, match="cannot be written"):
        cache.put(KEY, "secret")
    assert not file.exists()


def test_a_file_that_others_may_read_is_closed_to_them(file):
    JudgeCache(file).put(KEY, "secret")
    file.chmod(0o644)
    assert JudgeCache(file).get(KEY) == "secret"
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_folder_may_have_any_name(tmp_path):
    cache = JudgeCache(tmp_path / "a b?c=1#é%20" / "judgements.sqlite")
    cache.put(KEY, "there")
    assert cache.get(KEY) == "there"
    assert cache.file.exists()
