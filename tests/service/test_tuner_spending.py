"""What a tenant may spend in a day: taken out beforehand, put back, and filled at midnight."""

from contextlib import suppress
from uuid import uuid4

import pytest

from steersman.service.tuner_spending import Daily
from steersman.wire import Refused

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
    assert "$8.00 and 60 calls of models are spent" in empty.ended.problem.detail
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
    with pytest.raises(Refused, match="cannot be written down"):
        spend(daily, ONE, 0.0, 0)
