"""Connections that nobody proved themselves on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("prometheus_client")
from gadget_svm.peers.arrivals import GRACE, Arrivals


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_connection_has_time_to_speak_and_is_turned_away_once():
    clock = Clock()
    arrivals = Arrivals(10, clock)
    arrivals.begun()
    clock.now = GRACE - 1
    assert arrivals.turned_away() == 0
    clock.now = GRACE + 2
    assert arrivals.turned_away() == 1
    assert arrivals.turned_away() == 0


@given(st.lists(st.tuples(st.floats(0, 20), st.booleans(), st.integers(1, 3)), max_size=40))
def test_in_the_end_all_that_never_spoke_are_counted_and_no_others(visits):
    """However they come, and however many calls those make that speak."""
    clock = Clock()
    arrivals, told = Arrivals(100, clock), 0
    for number, (later, speaks, calls) in enumerate(visits):
        clock.now += later
        arrivals.begun()
        for _ in range(calls * speaks):
            arrivals.spoken(f"ipv4:10.0.0.1:{number}")
        told += arrivals.turned_away()
        assert told <= sum(not spoke for _, spoke, _ in visits[: number + 1])
    clock.now += GRACE + 2
    assert told + arrivals.turned_away() == sum(not speaks for _, speaks, _ in visits)


def test_a_flood_of_connections_takes_no_memory():
    clock = Clock()
    arrivals = Arrivals(5, clock)
    for number in range(10_000):
        clock.now += 0.01
        arrivals.begun()
        arrivals.spoken(f"ipv4:10.0.0.1:{number}")
    assert len(arrivals._young) <= GRACE + 3
    assert len(arrivals._known) == 5
