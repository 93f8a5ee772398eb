"""Connections on which no peer proved its identity are counted, once and without using memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("grpc")
from gadget_svm.peers.process.handshake_counter import GRACE_S, HandshakeCounter


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_connection_has_time_for_its_first_call_and_is_counted_once():
    clock = Clock()
    counter = HandshakeCounter(10, clock)
    counter.began()
    assert counter.take_failed() == 0
    clock.now = GRACE_S - 1
    assert counter.take_failed() == 0
    clock.now = GRACE_S
    assert counter.take_failed() == 1
    assert counter.take_failed() == 0


@given(st.lists(st.tuples(st.floats(0, 20), st.booleans(), st.integers(1, 3)), max_size=40))
def test_in_the_end_all_without_a_call_are_counted_and_no_others(visits):
    clock = Clock()
    counter, reported = HandshakeCounter(100, clock), 0
    for number, (later, proves, calls) in enumerate(visits):
        clock.now += later
        counter.began()
        for _ in range(calls * proves):
            counter.proved(f"ipv4:10.0.0.1:{number}")
        reported += counter.take_failed()
        assert reported <= sum(not proved for _, proved, _ in visits[: number + 1])
    clock.now += GRACE_S + 1
    assert reported + counter.take_failed() == sum(not proves for _, proves, _ in visits)


def test_a_flood_of_connections_uses_no_memory():
    clock = Clock()
    counter = HandshakeCounter(5, clock)
    for number in range(10_000):
        clock.now += 0.01
        counter.began()
        counter.proved(f"ipv4:10.0.0.1:{number}")
        if not number % 200:
            assert counter.take_failed() == 0
    assert len(counter._marks) <= GRACE_S / 2 + 1
    assert len(counter._addresses) == 5
