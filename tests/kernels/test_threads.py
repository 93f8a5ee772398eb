"""Threads that share nodes: the same bits for any number of them, and nobody waits for one who does not come."""

import pickle
import threading

import numpy as np
import pytest

from gadget_svm.kernels import ThreadTeam, compiled, threads
from gadget_svm.kernels.threads import AVAILABLE, barrier_groups, wait_at_barrier

N = 7


@compiled
def relay(lo, hi, party, state, count):
    """Every node takes its neighbour's number of the round before, and adds its own."""
    for step in range(count):
        new, old = (step + 1) % 2, step % 2
        for i in range(lo, hi):
            state[new, i] = state[old, (i + 1) % state.shape[1]] + i
        wait_at_barrier(party, step + 1)


def relayed(team, rounds, width=10_000):
    state = np.zeros((2, N))
    state[0] = np.arange(N) ** 2
    team.run_in_rounds(relay, N, width, state, rounds)
    return state


@pytest.mark.parametrize("size", [2, 3, 5])
def test_rounds_in_one_call_are_those_of_one_thread(monkeypatch, size):
    """With more threads than cores, too."""
    monkeypatch.setattr(threads, "_cores", lambda: 5)
    expected, team = relayed(ThreadTeam(1), 2000), ThreadTeam(size)
    try:
        for _ in range(5):
            np.testing.assert_array_equal(relayed(team, 2000), expected)
    finally:
        team.close()


def test_a_thread_that_meets_too_early_is_noticed():
    """As the test above can fail: without a gate the rounds run into each other."""
    if not AVAILABLE:
        pytest.skip("kernels are not compiled")
    one, other = barrier_groups(2)
    waiting = threading.Thread(target=wait_at_barrier, args=(one, 1), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    wait_at_barrier(other, 1)
    waiting.join(10)
    assert not waiting.is_alive()


def test_little_work_is_done_by_one():
    seen = []
    ThreadTeam(2).run_in_rounds(lambda lo, hi, party: seen.append((lo, hi, party.size)), N, 1)
    assert seen == [(0, N, 1)]


def test_two_calls_at_a_time_do_not_wait_for_each_others_threads():
    team, found = ThreadTeam(2), []
    callers = [threading.Thread(target=lambda: found.append(relayed(team, 20_000))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    team.close()
    assert len(found) == 4
    for state in found:
        np.testing.assert_array_equal(state, relayed(ThreadTeam(1), 20_000))


def test_there_are_no_more_threads_than_cores(monkeypatch):
    seen = []
    monkeypatch.setattr(threads, "_cores", lambda: 2)
    team = ThreadTeam(64)
    team.run_in_rounds(lambda _lo, _hi, party: seen.append(party.size), N, 10_000)
    team.close()
    assert seen == [2, 2]


@pytest.mark.parametrize("caller", [True, False])
def test_nobody_waits_for_one_who_was_interrupted(caller):
    """The thread that calls, or the other."""

    def kernel(lo, _, party):
        if (lo == 0) == caller:
            raise KeyboardInterrupt
        wait_at_barrier(party, 1)

    team = ThreadTeam(2)
    with pytest.raises(KeyboardInterrupt):
        team.run_in_rounds(kernel, N, 10_000)
    team.close()  # joins the other thread
    assert relayed(team, 10).shape == (2, N)
    team.close()


def test_a_team_travels_without_its_threads():
    team = pickle.loads(pickle.dumps(ThreadTeam(2)))
    np.testing.assert_array_equal(relayed(team, 100), relayed(ThreadTeam(1), 100))
    team.close()
