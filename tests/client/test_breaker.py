"""The circuit breaker, on a clock of its own."""

from steersman_client.breaker import Breaker


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def opened(clock, failures=3):
    breaker = Breaker(clock, failures)
    for _ in range(failures):
        assert breaker.allow()
        breaker.failed()
    return breaker


def test_it_opens_after_failures_in_a_row_only():
    breaker = Breaker(Clock(), 3)
    for _ in range(10):
        breaker.failed()
        breaker.failed()
        breaker.succeeded()
    assert breaker.allow()
    assert not opened(Clock()).allow()


def test_after_the_pause_one_probe_passes_and_no_second():
    clock = Clock()
    breaker = opened(clock)
    clock.now = 1.0
    assert [breaker.allow() for _ in range(3)] == [True, False, False]


def test_a_good_probe_closes_it():
    clock = Clock()
    breaker = opened(clock)
    clock.now = 1.0
    assert breaker.allow()
    breaker.succeeded()
    assert all(breaker.allow() for _ in range(5))


def test_each_bad_probe_doubles_the_pause_up_to_half_a_minute():
    clock = Clock()
    breaker = opened(clock)
    pauses = []
    for _ in range(8):
        began = clock.now
        while not breaker.allow():
            clock.now += 0.5
        pauses.append(clock.now - began)
        breaker.failed()
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_cancelled_probe_lets_another_one_try():
    clock = Clock()
    breaker = opened(clock)
    clock.now = 1.0
    assert breaker.allow()
    breaker.abandoned()
    assert breaker.allow()


def test_failures_of_requests_that_began_before_do_not_prolong_the_pause():
    clock = Clock()
    breaker = opened(clock)
    clock.now = 0.9
    breaker.failed()
    clock.now = 1.0
    assert breaker.allow()
