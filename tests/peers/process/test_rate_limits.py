"""Token buckets: how much passes, in bursts and in the long run, and how many names are remembered."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("grpc")
from gadget_svm.peers.process.rate_limits import RateLimits, TokenBucket


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def taken(bucket, now, times):
    return sum(bucket.take(now) for _ in range(times))


def test_a_burst_passes_then_the_rate():
    bucket = TokenBucket(8, 5)
    assert taken(bucket, 0.0, 20) == 5
    assert taken(bucket, 3 / 8, 20) == 3
    assert not bucket.take(7 / 16)  # half a token
    assert bucket.take(1 / 2)


def test_silence_saves_no_more_than_the_burst():
    bucket = TokenBucket(10, 5)
    taken(bucket, 0.0, 5)
    assert taken(bucket, 1e9, 20) == 5


def test_a_clock_that_steps_back_gives_nothing():
    bucket = TokenBucket(10, 5)
    taken(bucket, 100.0, 5)
    assert not bucket.take(0.0)
    assert not bucket.take(100.0)  # the same seconds do not count twice
    assert bucket.take(100.125)


@given(
    st.integers(1, 64).map(float), st.integers(1, 50), st.lists(st.integers(0, 256).map(lambda k: k / 64), max_size=200)
)
def test_never_more_than_the_burst_and_the_rate(rate, burst, steps):
    bucket, now, passed = TokenBucket(rate, burst), 0.0, 0
    for step in steps:
        now += step
        passed += bucket.take(now)
    assert passed <= burst + rate * now
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
    assert limits.take("b")  # starts again


@pytest.mark.parametrize(
    ("rate", "burst"), [(0, 5), (-1, 5), (math.inf, 5), (math.nan, 5), (1, 0.5), (1, math.nan), (1, math.inf)]
)
def test_senseless_limits(rate, burst):
    with pytest.raises(ValueError, match=r"rate=|burst="):
        RateLimits(rate, burst)


def test_room_for_no_name():
    with pytest.raises(ValueError, match="max_names=0"):
        RateLimits(1, 1, max_names=0)
