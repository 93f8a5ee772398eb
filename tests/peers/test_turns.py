"""Whose turn it is to write, and whom a GADGET node then draws."""

from collections import Counter

import numpy as np
import pytest

from gadget_svm.peers.charter import Charter
from gadget_svm.peers.learner import Learner
from gadget_svm.peers.turns import FIRST, MOST, PATIENCE, Turns
from support.peer_sites import LAM, SITES, excess


def test_one_letter_for_each_that_comes():
    turns = Turns()
    for _ in range(FIRST):
        assert turns.open("bc", 0.0, 1.0) == ["b", "c"]
        turns.wrote("b", 0.0)
    assert turns.open("bc", 0.0, 1.0) == ["c"]
    turns.heard("b")
    assert turns.open("bc", 0.0, 1.0) == ["b", "c"]
    turns.wrote("b", 0.0)
    assert turns.open("bc", 0.0, 1.0) == ["c"]


def test_many_letters_are_no_licence_to_flood():
    turns = Turns()
    for _ in range(100):
        turns.heard("b")
    for _ in range(MOST):
        assert turns.open("b", 0.0, 1.0)
        turns.wrote("b", 0.0)
    assert not turns.open("b", 0.0, 1.0)


def test_a_letter_that_got_lost_does_not_end_it():
    turns = Turns()
    for now in (0.0, 10.0, 20.0):
        assert turns.open("b", now, 2.0)
        turns.wrote("b", now)
        assert not turns.open("b", now + 1.9 * PATIENCE, 2.0)
        assert turns.open("b", now + 2.0 * PATIENCE, 2.0)


def test_one_who_begins_anew_is_written_to_at_once():
    turns = Turns()
    turns.wrote("b", 0.0)
    assert not turns.open("b", 0.0, 1.0)
    turns.forget("b")
    assert turns.open("b", 0.0, 1.0) == ["b"]


def learner_of(i, name, algorithm="gadget"):
    X, y = SITES[name]
    terms = Charter("test", algorithm, LAM, 12, "none", (-1.0, 1.0), True, "none")
    return Learner(X, (y > 0).astype(np.int32), terms, i, seed=i)


@pytest.mark.parametrize("algorithm", ["gadget", "pdmm"])
def test_whom_a_node_draws(algorithm):
    learner = learner_of(0, "a", algorithm)
    learner.draw_from([])  # nobody there at all
    learner.set_neighbours([1, 2, 3, 4])

    def drawn(others, ticks=200):
        found = Counter()
        for _ in range(ticks):
            learner.draw_from(others)
            found.update(parcel.other for parcel in learner.solve())
            learner.absorb([])
        return found

    everybody = drawn(None)
    assert set(everybody) == {1, 2, 3, 4}
    some, one, nobody = drawn({1, 3}), drawn({4}), drawn([])
    if algorithm == "pdmm":
        assert set(some) == set(one) == set(nobody) == {1, 2, 3, 4}  # not for PDMM, whose edges bear it
    else:
        assert set(some) == {1, 3}
        assert min(some.values()) > 60
        assert one == {4: 200}
        assert not nobody
    assert set(drawn(None)) == {1, 2, 3, 4}


def play(names, *, late=0.0, slow=1, waiting=True, clock=3200):
    """GADGET between peers whose letters take one step of the clock, or some more as often as ``late`` says, and of
    whom the first has a tick in every ``slow`` steps only. How far the worst model is from the optimum; everybody's
    ticks."""
    rng, names = np.random.default_rng(0), list(names)
    learners, turns = {name: learner_of(i, name) for i, name in enumerate(names)}, {name: Turns() for name in names}
    for i, learner in enumerate(learners.values()):
        learner.set_neighbours([j for j in range(len(names)) if j != i])
    under_way, behind, boxes = {}, {}, {name: {} for name in names}

    def post(now, ends, parcel):
        under_way[ends] = (now + 1 + (int(rng.integers(3, 20)) if rng.random() < late else 0), parcel)

    for now in range(clock):
        for ends in [ends for ends, (due, _) in under_way.items() if due <= now]:
            source, target = ends
            boxes[target][source] = under_way.pop(ends)[1]
            turns[target].heard(source)
            if ends in behind:
                post(now, ends, behind.pop(ends))
        for i, name in enumerate(names):
            others = [other for other in names if other != name]
            ready = turns[name].open(others, now, heartbeat=20) if waiting else others
            if (i == 0 and now % slow) or not ready:
                continue
            learner = learners[name]
            learner.draw_from([names.index(other) for other in ready])
            said = learner.solve()
            learner.absorb([boxes[name].pop(other) for other in others if other in boxes[name]])
            learner.weigh_recent()
            for parcel in said:
                ends, said_by_me = (name, names[parcel.other]), parcel._replace(other=i, vector=parcel.vector.copy())
                turns[name].wrote(ends[1], now)
                if ends in under_way:
                    behind[ends] = said_by_me
                else:
                    post(now, ends, said_by_me)
    worst = max(excess("".join(names), learner.model()[0]) for learner in learners.values())
    return worst, [learner.t for learner in learners.values()]


def test_who_waits_for_turns_is_nearer_the_optimum_where_letters_are_late():
    held_back, _ = play("abc", late=0.2)
    assert held_back < 0.02
    assert 2 * held_back < play("abc", late=0.2, waiting=False)[0]


def test_one_who_is_slow_slows_nobody_and_does_not_get_all_the_mass():
    near, ticks = play("abcd", slow=20)
    assert ticks[0] == 160
    assert min(ticks[1:]) > 0.9 * 3200
    assert 2 * near < play("abcd", slow=20, waiting=False)[0]
