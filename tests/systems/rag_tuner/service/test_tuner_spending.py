"""What a tenant may spend in a day: taken out beforehand, put back, and filled at midnight."""

import sqlite3
import time
from contextlib import closing, suppress
from uuid import uuid4

import pytest

from steersman.wire import Refused
from steersman_systems.rag_tuner.service.daily_budget import Daily

ONE, OTHER = uuid4(), uuid4()
NOON = 20_000 * 86_400.0 + 43_200.0


def spend(daily, tenant, usd, calls, asked=(5.0, 100)):
    with daily.purse(tenant, *asked) as purse:
        purse.spent_usd, purse.spent_calls = usd, calls
    return purse


def test_what_is_spent_is_gone_until_midnight_for_every_process(tmp_path):
    now = [NOON]
    daily, beside = (
        Daily(tmp_path / "tuner" / "spent.sqlite", usd=8.0, calls=150, clock=lambda: now[0])
        for _ in range(2)
    )
    first = spend(daily, ONE, 3.0, 20)
    assert (first.usd, first.less, first.ended) == (5.0, (False, False), None)
    assert spend(beside, ONE, 4.5, 20).usd == 5.0
    left = spend(daily, ONE, 0.5, 20)
    assert left.usd == pytest.approx(0.5)
    assert (left.less, left.calls) == ((True, False), 100)
    assert "$8.00 and 60 calls" in left.ended.problem.detail  # with its own
    empty = spend(beside, ONE, 0.0, 0)
    assert (empty.usd, empty.ended.problem.status) == (0.0, 429)
    assert empty.ended.problem.retry_after_s == 43_200.0
    assert "$8.00 and 60 calls are spent" in empty.ended.problem.detail
    assert spend(daily, OTHER, 1.0, 1).usd == 5.0
    now[0] += 43_200
    assert spend(daily, ONE, 0.0, 0).usd == 5.0


def test_two_at_once_spend_no_more_than_one(tmp_path):
    daily = Daily(tmp_path / "spent.sqlite", usd=8.0, calls=150, clock=lambda: NOON)
    with daily.purse(ONE, 5.0, 100) as first, daily.purse(ONE, 5.0, 100) as second:
        assert (first.usd + second.usd, first.calls + second.calls) == (8.0, 150)
        with daily.purse(ONE, None, 100) as third:
            assert (third.usd, third.less) == (None, (False, True))  # calls count alone
            assert third.ended is not None
    with suppress(ValueError), daily.purse(ONE, 5.0, 100) as broken:
        broken.spent_usd = 2.0
        raise ValueError("no")
    assert spend(daily, ONE, 0.0, 0, asked=(8.0, 150)).usd == 6.0


def test_what_a_killed_process_held_is_free_after_a_while_but_for_what_it_spent(tmp_path):
    now = [NOON]
    daily = Daily(tmp_path / "spent.sqlite", usd=8.0, calls=150, lease_s=60.0, clock=lambda: now[0])
    killed = daily.purse(ONE, 8.0, 150)
    purse = killed.__enter__()
    purse.spent_usd, purse.spent_calls = 2.0, 10
    daily.save(purse)
    now[0] += 59
    assert spend(daily, ONE, 0.0, 0).usd == 0.0
    now[0] += 2
    after = spend(daily, ONE, 0.0, 0, asked=(8.0, 150))
    assert (after.usd, after.calls) == (6.0, 140)
    purse.spent_usd = 3.0  # it was not dead after all
    killed.__exit__(None, None, None)
    assert spend(daily, ONE, 0.0, 0, asked=(8.0, 150)).usd == 5.0


def test_what_cannot_be_written_down_is_not_spent(tmp_path):
    (tmp_path / "spent.sqlite").write_bytes(b"x" * 5_000)
    daily = Daily(tmp_path / "spent.sqlite", usd=8.0, calls=150)
    with pytest.raises(Refused, match="spending record cannot be written"):
        spend(daily, ONE, 0.0, 0)


def test_what_could_not_be_committed_is_told_and_written_the_next_time(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("steersman.db.spending_file._WAIT_S", 0.05)
    file = tmp_path / "spent.sqlite"
    daily = Daily(file, usd=8.0, calls=150, clock=lambda: NOON)
    with daily.purse(ONE, 5.0, 100) as purse:
        purse.spent_usd, purse.spent_calls = 3.0, 40
        with closing(sqlite3.connect(file, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM spent").fetchall()
            with pytest.raises(Refused, match="spending record cannot be written"):
                daily.save(purse)
    assert f"spending of $3.000000 and 40 calls by tenant {ONE} is not recorded" in caplog.text
    with daily.purse(ONE, 8.0, 150) as left:
        assert (left.usd, left.calls) == (5.0, 110)


def test_what_the_end_could_not_write_is_written_by_the_next_request(tmp_path, monkeypatch):
    monkeypatch.setattr("steersman.db.spending_file._WAIT_S", 0.05)
    now, file = [NOON], tmp_path / "spent.sqlite"
    daily = Daily(file, usd=8.0, calls=150, lease_s=60.0, clock=lambda: now[0])
    with closing(sqlite3.connect(file, isolation_level=None)) as other:

        def spent_while_another_writes():
            with daily.purse(ONE, 5.0, 100) as purse:
                purse.spent_usd, purse.spent_calls = 3.0, 40
                other.execute("BEGIN IMMEDIATE")

        with pytest.raises(Refused, match="spending record cannot be written"):
            spent_while_another_writes()
        with pytest.raises(Refused), daily.purse(ONE, 1.0, 1):
            pass  # nor by this one, so it is not forgotten
        other.execute("ROLLBACK")
    now[0] += 61.0  # what was held for it has ended
    with daily.purse(ONE, 8.0, 150) as left:
        assert (left.usd, left.calls) == (5.0, 110)
    again = Daily(file, usd=8.0, calls=150, clock=lambda: now[0])
    with again.purse(ONE, 8.0, 150) as left:
        assert (left.usd, left.calls) == (5.0, 110)


def test_what_is_told_keeps_the_rest_held(tmp_path):
    now = [NOON]
    daily = Daily(tmp_path / "spent.sqlite", usd=8.0, calls=150, lease_s=60.0, clock=lambda: now[0])
    with daily.purse(ONE, 8.0, 150) as purse:
        now[0] += 50
        purse.spent_usd, purse.spent_calls = 2.0, 10
        daily.save(purse)
        now[0] += 50
        assert spend(daily, ONE, 0.0, 0).usd == 0.0
        now[0] += 50  # stopped for too long: another has it, and it is held again all the same
        assert spend(daily, ONE, 0.0, 0).usd == 5.0
        daily.save(purse)
        assert spend(daily, ONE, 0.0, 0).usd == 0.0
    assert spend(daily, ONE, 0.0, 0, asked=(8.0, 150)).usd == 6.0


def test_money_stays_held_while_one_question_lasts_and_nothing_is_told(tmp_path):
    now, file = [NOON], tmp_path / "spent.sqlite"
    daily = Daily(file, usd=8.0, calls=150, lease_s=0.2, clock=lambda: now[0])
    with daily.purse(ONE, 8.0, 150):
        now[0] += 0.15
        with closing(sqlite3.connect(file, timeout=30.0)) as reader:
            ends = time.monotonic() + 30.0
            while reader.execute("SELECT until FROM held").fetchone()[0] < now[0] + 0.1:
                assert time.monotonic() < ends, "nothing holds it for longer"
                time.sleep(0.01)
        now[0] += 0.15
        assert spend(daily, ONE, 0.0, 0).usd == 0.0
    assert spend(daily, ONE, 0.0, 0).usd == 5.0


def test_a_purse_that_was_away_too_long_frees_nobody_elses(tmp_path):
    now = [NOON]
    daily = Daily(tmp_path / "spent.sqlite", usd=8.0, calls=150, lease_s=60.0, clock=lambda: now[0])
    away = daily.purse(ONE, 8.0, 150)
    away.__enter__()
    now[0] += 61
    with daily.purse(ONE, 8.0, 150):
        away.__exit__(None, None, None)
        assert spend(daily, ONE, 0.0, 0).usd == 0.0


def test_what_is_spent_after_midnight_is_of_the_new_day(tmp_path):
    now = [NOON + 43_190.0]
    daily = Daily(tmp_path / "spent.sqlite", usd=8.0, calls=150, clock=lambda: now[0])
    with daily.purse(ONE, 8.0, 150) as purse:
        purse.spent_usd, purse.spent_calls = 1.0, 5
        daily.save(purse)
        now[0] += 20.0
        purse.spent_usd, purse.spent_calls = 7.0, 50
    with daily.purse(ONE, 8.0, 150) as left:
        assert (left.usd, left.calls) == (2.0, 105)
