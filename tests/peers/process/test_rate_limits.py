"""Rates: how much passes, in bursts and in the long run, and how many names are remembered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("grpc")
from gadget_svm.peers.process.rate_limits import RateLimits


class Clock:
    now = 1024.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def taken(limits, times):
    return sum(limits.take("a") for _ in range(times))


def test_a_burst_passes_then_the_rate(clock):
    limits = RateLimits(8, 5, clock=clock)
    assert taken(limits, 20) == 5
    clock.now += 3 / 8
    assert taken(limits, 20) == 3
    clock.now += 1 / 16
    assert not limits.take("a")
    clock.now += 1 / 16
    assert limits.take("a")


def test_silence_saves_no_more_than_the_burst(clock):
    limits = RateLimits(8, 5, clock=clock)
    taken(limits, 20)
    clock.now += 2**20
    assert taken(limits, 20) == 5


def test_a_clock_that_steps_back_gives_nothing(clock):
    limits = RateLimits(8, 5, clock=clock)
    taken(limits, 5)
    clock.now -= 100.0
    assert not limits.take("a")
    clock.now += 100.0
    assert not limits.take("a")  # the same seconds do not count twice
    clock.now += 1 / 8
    assert limits.take("a")


@given(
    st.sampled_from([1.0, 2.0, 16.0, 64.0]),
    st.integers(1, 50),
    st.lists(st.integers(0, 256).map(lambda k: k / 64), max_size=200),
)
def test_never_more_than_the_burst_and_the_rate(rate, burst, steps):
    clock = Clock()
    limits, passed = RateLimits(rate, burst, clock=clock), 0
    for step in steps:
        clock.now += step
        passed += limits.take("a")
    assert passed <= burst + rate * (clock.now - Clock.now)
    assert passed >= min(len(steps), burst)


def test_names_do_not_share(clock):
    limits = RateLimits(1, 3, clock=clock)
    assert [limits.take("a") for _ in range(5)] == [True] * 3 + [False] * 2
    assert [limits.take("b") for _ in range(5)] == [True] * 3 + [False] * 2
    clock.now += 1
    assert limits.take("a")
    assert not limits.take("a")


def test_the_name_that_was_silent_longest_is_forgotten(clock):
    limits = RateLimits(1, 1, max_names=2, clock=clock)
    for name in ("a", "b", "a", "c"):  # b spoke before a did last
        limits.take(name)
    assert len(limits) == 2
    assert not limits.take("a")
    assert not limits.take("c")
    assert limits.take("b")  # has its burst again
