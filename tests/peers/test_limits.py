"""Token buckets: how much passes, in bursts and in the long run, and how much is remembered."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gadget_svm.peers.limits import Bucket, Buckets


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def taken(bucket, times):
    return sum(bucket.take() for _ in range(times))


def test_a_burst_passes_then_the_rate(clock):
    bucket = Bucket(8, 5, clock)
    assert taken(bucket, 20) == 5
    clock.now += 3 / 8
    assert taken(bucket, 20) == 3
    clock.now += 1 / 16
    assert not bucket.take()  # half a token
    clock.now += 1 / 16
    assert bucket.take()


def test_silence_saves_no_more_than_the_burst(clock):
    bucket = Bucket(10, 5, clock)
    taken(bucket, 5)
    clock.now += 1e9
    assert taken(bucket, 20) == 5


def test_a_clock_that_steps_back_gives_nothing(clock):
    bucket = Bucket(10, 5, clock)
    taken(bucket, 5)
    clock.now -= 100
    assert not bucket.take()
    clock.now += 100
    assert not bucket.take()  # the same seconds are not paid twice
    clock.now += 0.125
    assert bucket.take()


def test_the_time_may_be_given(clock):
    bucket = Bucket(1, 1, clock)
    assert bucket.take(0.0)
    assert not bucket.take(0.5)
    assert bucket.take(1.0)


@given(
    st.integers(1, 64).map(float), st.integers(1, 50), st.lists(st.integers(0, 256).map(lambda k: k / 64), max_size=200)
)
def test_never_more_than_the_burst_and_the_rate(rate, burst, steps):
    bucket, now, passed = Bucket(rate, burst), 0.0, 0
    for step in steps:
        now += step
        passed += bucket.take(now)
    assert passed <= burst + rate * now
    assert passed >= min(len(steps), burst)


def test_names_do_not_share(clock):
    buckets = Buckets(1, 3, clock=clock)
    assert [buckets.take("a") for _ in range(5)] == [True] * 3 + [False] * 2
    assert [buckets.take("b") for _ in range(5)] == [True] * 3 + [False] * 2
    clock.now += 1
    assert buckets.take("a")
    assert not buckets.take("a")


def test_the_longest_silent_name_is_forgotten(clock):
    buckets = Buckets(1, 1, most=2, clock=clock)
    for name in ("a", "b", "a", "c"):  # b spoke before a did last
        buckets.take(name)
    assert len(buckets) == 2
    assert "b" not in buckets
    assert not buckets.take("a")
    assert not buckets.take("c")
    assert buckets.take("b")  # starts anew


def test_many_names_take_bounded_room(clock):
    buckets = Buckets(1, 1, most=100, clock=clock)
    for i in range(10_000):
        assert buckets.take(f"n{i}")
        assert len(buckets) <= 100


def test_a_name_can_be_forgotten(clock):
    buckets = Buckets(1, 1, clock=clock)
    buckets.take("a")
    buckets.forget("a")
    buckets.forget("never seen")
    assert buckets.take("a")


@pytest.mark.parametrize(
    ("rate", "burst"), [(0, 5), (-1, 5), (math.inf, 5), (math.nan, 5), (1, 0.5), (1, math.nan), (1, math.inf)]
)
def test_senseless_limits(rate, burst):
    for kind in (Bucket, Buckets):
        with pytest.raises(ValueError, match=r"rate=|burst="):
            kind(rate, burst)


def test_room_for_nobody():
    with pytest.raises(ValueError, match="most=0"):
        Buckets(1, 1, most=0)
