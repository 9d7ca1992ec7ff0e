"""A judge is patient with a busy server, and never spends more than it may."""

import pytest

from steersman.db.judge_cache import JudgeCache
from steersman.errors import BackendAnswerError, BackendUnavailableError, BudgetError, InputError
from steersman.providers.backend import MeteredBackend
from steersman.providers.chat import ChatBackend
from steersman.providers.judges.judge import Judge, Retry
from steersman.providers.judges.scores import Tally
from steersman.providers.spending_limit import Budget, Prices, Rate
from tests.providers.scripted import Clock, judge_at


def _ask(judge, prompt="p", max_tokens=100):
    tally = Tally()
    return judge.ask(prompt, max_tokens=max_tokens, version="v", tally=tally), tally.calls


def test_a_server_that_names_a_time_is_left_alone_until_then(chat):
    clock = Clock()
    chat.turns += ["busy", "busy"]
    assert _ask(judge_at(chat, clock=clock)) == ("blue", 3)
    assert clock.slept == [7.0, 7.0]
    assert len(chat.asked) == 3


def test_a_server_that_wants_longer_than_is_waited_is_given_up(chat):
    clock = Clock()
    judge = judge_at(chat, "busy", clock=clock, retry=Retry(longest_s=5.0))
    with pytest.raises(BackendUnavailableError, match="slow down"):
        _ask(judge)
    assert (clock.slept, len(chat.asked)) == ([], 1)


def test_pauses_double_where_the_server_names_none(chat):
    clock = Clock()
    chat.turns += ["broken", "cut"]
    assert _ask(judge_at(chat, clock=clock, retry=Retry(first_s=0.5))) == ("blue", 3)
    assert clock.slept == [0.5, 1.0]


def test_a_silent_server_is_asked_again(chat):
    chat.turns.append("silent")
    assert _ask(judge_at(chat, timeout_s=0.5)) == ("blue", 2)


def test_tries_are_bounded(chat):
    tally = Tally()
    judge = judge_at(chat, "broken", retry=Retry(tries=2))
    with pytest.raises(BackendUnavailableError):
        judge.ask("p", max_tokens=5, version="v", tally=tally)
    assert tally.calls == len(chat.asked) == 2


def test_a_refusal_is_not_asked_again(chat):
    with pytest.raises(BackendAnswerError):
        _ask(judge_at(chat, "unauthorized"))
    assert len(chat.asked) == 1


def test_calls_are_spaced_by_the_rate(chat):
    clock = Clock()
    judge = judge_at(chat, clock=clock, per_s=4.0)
    for _ in range(3):
        _ask(judge)
    assert clock.slept == [0.25, 0.25]


def test_repeated_calls_count_in_the_budget(chat):
    chat.turns += ["broken"] * 2
    judge = judge_at(chat, budget=Budget(max_calls=2))
    with pytest.raises(BudgetError, match="all 2 calls are used; raise max_calls"):
        _ask(judge)
    assert len(chat.asked) == judge.budget.calls == 2


PRICES = Prices(prompt_usd=1.0, answer_usd=10.0)


def test_money_is_counted_by_the_tokens_that_the_server_tells(chat):
    chat.usage = {"prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37}
    judge = judge_at(chat, budget=Budget(prices=PRICES))
    _ask(judge)
    assert judge.budget.cost_usd == pytest.approx(0.030 + 0.070)


@pytest.mark.parametrize(
    "usage",
    [None, "many", {}, {"prompt_tokens": 3}, {"prompt_tokens": -1, "completion_tokens": 1.5}],
)
def test_without_them_it_is_estimated_or_counted_by_the_call(chat, usage):
    chat.usage = usage
    judge = judge_at(chat, budget=Budget(prices=PRICES))
    _ask(judge, "x" * 300, max_tokens=50)
    assert judge.budget.cost_usd == pytest.approx(0.1 + 0.5)
    judge = judge_at(chat, budget=Budget(prices=Prices(call_usd=0.25)))
    _ask(judge)
    assert judge.budget.cost_usd == 0.25


def test_a_price_by_the_call_alone_holds_where_the_server_tells_its_tokens(chat):
    chat.usage = {"prompt_tokens": 900, "completion_tokens": 300}
    budget = Budget(max_cost_usd=0.05, prices=Prices(call_usd=0.01))
    judge = judge_at(chat, budget=budget)
    for _ in range(5):
        _ask(judge)
    assert budget.cost_usd == pytest.approx(0.05)
    with pytest.raises(BudgetError, match="raise max_cost_usd"):
        _ask(judge)
    assert len(chat.asked) == 5


def test_a_call_that_may_not_fit_is_not_begun(chat):
    chat.usage = {"prompt_tokens": 100, "completion_tokens": 10}
    judge = judge_at(chat, budget=Budget(max_cost_usd=1.0, prices=PRICES))
    # A call may cost .1 + .5; the first costs .2, the second another .2, so a third may fit.
    for _ in range(3):
        _ask(judge, "x" * 300, max_tokens=50)
    with pytest.raises(BudgetError, match=r"0\.6000 of 1\.0000 USD are spent, and this call can"):
        _ask(judge, "x" * 300, max_tokens=50)
    assert len(chat.asked) == 3
    assert judge.budget.cost_usd == pytest.approx(0.6)


def test_a_failed_call_is_charged_unless_the_server_named_a_time(chat):
    judge = judge_at(chat, budget=Budget(prices=Prices(call_usd=1.0)), retry=Retry(tries=1))
    for mode, cost in [("busy", 0.0), ("cut", 1.0), ("unauthorized", 2.0)]:
        other = judge_at(chat, mode, budget=judge.budget, retry=Retry(tries=1))
        with pytest.raises((BackendUnavailableError, BackendAnswerError)):
            _ask(other)
        assert judge.budget.cost_usd == cost


class Engaged:
    """Has no turn to give, and does not know when it will."""

    name = "engaged"

    def complete(self, prompt, *, max_tokens, timeout_s):
        raise BackendUnavailableError("other prompts took all the time", asked=False)


def test_a_call_that_was_never_made_costs_nothing():
    clock, budget = Clock(), Budget(prices=Prices(call_usd=1.0))
    rate = Rate(clock=clock, sleep=clock.sleep)
    judge = Judge(Engaged(), rate=rate, budget=budget, retry=Retry(tries=1, longest_s=1.0))
    with pytest.raises(BackendUnavailableError, match="other prompts"):
        _ask(judge)
    assert (budget.calls, budget.cost_usd) == (0, 0.0)


def test_a_prompt_that_the_backend_does_not_take_leaves_no_reservation(chat):
    judge = judge_at(chat, budget=Budget(max_calls=5))
    with pytest.raises(InputError):
        _ask(judge, "x" * 200_001)
    assert judge.budget._in_flight == 0


@pytest.mark.parametrize("prompt", ["x" * 200_001, "half \ud83d"])
def test_a_prompt_that_was_never_sent_costs_nothing(chat, prompt, tmp_path):
    budget, tally = Budget(prices=Prices(call_usd=1.0)), Tally()
    for cache in (None, JudgeCache(tmp_path / "judgements.sqlite")):
        judge = judge_at(chat, cache=cache, budget=budget)
        with pytest.raises(InputError, match="the prompt"):
            judge.ask(prompt, max_tokens=5, version="v", tally=tally)
    assert (budget.calls, budget.cost_usd, tally.calls, chat.asked) == (0, 0.0, 0, [])


def test_who_waits_for_a_turn_when_it_is_stopped_asks_nothing(chat):
    clock, budget = Clock(), Budget(prices=Prices(call_usd=1.0))

    def sleep(seconds):
        clock.sleep(seconds)
        budget.close()

    backend = ChatBackend(chat.url(), "judge", clock=clock)
    judge = Judge(backend, budget=budget, rate=Rate(2.0, clock=clock, sleep=sleep))
    _ask(judge)
    with pytest.raises(BudgetError, match="judging was stopped"):
        _ask(judge)
    assert clock.slept == [0.5]
    assert (len(chat.asked), budget.calls, budget.cost_usd, budget._in_flight) == (1, 1, 1.0, 0)


def test_waiting_for_a_turn_that_never_comes_ends_as_well():
    class Taken(Engaged):
        times = 0

        def complete(self, prompt, *, max_tokens, timeout_s):
            self.times += 1
            clock.now += timeout_s
            return super().complete(prompt, max_tokens=max_tokens, timeout_s=timeout_s)

    clock, taken = Clock(), Taken()
    rate = Rate(clock=clock, sleep=clock.sleep)
    judge = Judge(taken, rate=rate, retry=Retry(tries=3, longest_s=60.0), timeout_s=60.0)
    with pytest.raises(BackendUnavailableError, match="other prompts"):
        _ask(judge)
    assert taken.times == 3  # of 60 s each: 180 s are all that may be waited
    assert clock.now < 190.0


class Recovering:
    """Left alone for a second, so many times, while somebody else tries it."""

    name = "recovering"

    def __init__(self, times):
        self.times = times

    def complete(self, prompt, *, max_tokens, timeout_s):
        self.times -= 1
        if self.times >= 0:
            raise BackendUnavailableError("circuit breaker is open", retry_after_s=1.0, asked=False)
        return "back"


def test_waiting_for_a_server_that_somebody_else_tries_is_no_try(chat):
    clock, budget = Clock(), Budget(max_calls=1)
    rate = Rate(clock=clock, sleep=clock.sleep)
    judge = Judge(Recovering(30), rate=rate, budget=budget)
    assert _ask(judge) == ("back", 1)
    assert (clock.slept, budget.calls) == ([1.0] * 30, 1)


def test_who_waits_already_is_held_as_well():
    clock = Clock()

    def sleep(seconds):
        clock.sleep(seconds)
        if len(clock.slept) == 1:  # meanwhile another thread is told to leave the server alone
            rate.hold(7.0)

    rate = Rate(2.0, clock=clock, sleep=sleep)
    rate.wait()
    rate.wait()
    assert (clock.slept, clock.now) == ([0.5, 7.0], 7.5)
    rate.wait()
    assert clock.now == 8.0


def test_waiting_for_it_ends_as_well():
    clock, budget = Clock(), Budget()
    rate = Rate(clock=clock, sleep=clock.sleep)
    retry = Retry(tries=2, longest_s=5.0)
    judge = Judge(Recovering(10**6), rate=rate, budget=budget, retry=retry)
    with pytest.raises(BackendUnavailableError, match="circuit breaker is open"):
        _ask(judge)
    assert (sum(clock.slept), budget.calls, budget._in_flight) == (10.0, 0, 0)


def test_the_backend_tells_when_it_did_not_ask(chat):
    judge = judge_at(chat, "busy", retry=Retry(tries=1))
    asked = []
    for _ in range(2):
        with pytest.raises(BackendUnavailableError) as told:
            _ask(judge)
        asked.append(told.value.asked)
    assert asked[0]
    assert len(chat.asked) == 1 or asked[1]
    assert judge.budget.calls == len(chat.asked)


class Plain:
    name = "plain"

    def complete(self, prompt, *, max_tokens, timeout_s):
        return f"{prompt} within {timeout_s}"


def test_a_backend_that_tells_no_tokens_will_do():
    judge = Judge(Plain(), budget=Budget(prices=Prices(call_usd=0.5)), timeout_s=9)
    assert _ask(judge) == ("p within 9", 1)
    assert judge.budget.cost_usd == 0.5
    assert isinstance(ChatBackend("http://127.0.0.1:1", "m"), MeteredBackend)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Judge(Plain(), timeout_s=0),
        lambda: Judge(Plain(), max_characters=200_001),
        lambda: Retry(tries=0),
        lambda: Retry(first_s=2, longest_s=1),
        lambda: Rate(0),
        lambda: Rate(float("nan")),
        lambda: Budget(max_calls=-1),
        lambda: Budget(max_cost_usd=float("nan"), prices=PRICES),
        lambda: Budget(max_cost_usd=1.0),
        lambda: Prices(prompt_usd=-1),
        lambda: Prices(call_usd=float("inf")),
    ],
)
def test_arguments_out_of_range_are_refused(wrong):
    with pytest.raises(InputError, match=r"allowed|minimum|pass prices"):
        wrong()
