"""GADGET sends to neighbours that have answered only, and why: by nodes whose messages are late."""

from collections import Counter

import numpy as np
import pytest

from gadget_svm.peers.training.session import ANSWER_TICKS
from support.peer_sites import excess
from support.training_kit import learner


@pytest.mark.parametrize("algorithm", ["gadget", "pdmm"])
def test_a_gadget_node_draws_among_those_that_may_be_sent_to(algorithm):
    one = learner("a", algorithm)
    one.draw_from([])
    one.set_neighbours([1, 2, 3, 4])

    def drawn(others, ticks=200):
        found = Counter()
        for _ in range(ticks):
            one.draw_from(others)
            found.update(message.other for message in one.solve())
            one.absorb([])
        return found

    everybody = drawn({1, 2, 3, 4})
    assert set(everybody) == {1, 2, 3, 4}
    some, single, none = drawn({1, 3}), drawn({4}), drawn([])
    if algorithm == "pdmm":
        assert (
            set(some) == set(single) == set(none) == {1, 2, 3, 4}
        )  # PDMM's edges keep no mass, and it has an order of its own
    else:
        assert set(some) == {1, 3}
        assert min(some.values()) > 60
        assert single == {4: 200}
        assert not none
    assert set(drawn({1, 2, 3, 4})) == {1, 2, 3, 4}


def play(names, *, late=0.0, slow=1, waiting=True, clock=3200):
    """GADGET between nodes whose messages take one step of the clock, or some more as often as ``late`` says; the first
    node ticks in every ``slow``-th step only. Returns the distance of the worst model from the optimum, and ticks."""
    rng, count = np.random.default_rng(0), len(names)
    nodes, asked = [learner(name, "gadget", i) for i, name in enumerate(names)], [{} for _ in names]
    for i, node in enumerate(nodes):
        node.set_neighbours([j for j in range(count) if j != i])
    under_way, behind, boxes = {}, {}, [{} for _ in names]

    def post(now, ends, message):
        under_way[ends] = (now + 1 + (int(rng.integers(3, 20)) if rng.random() < late else 0), message)

    for now in range(clock):
        for ends in [ends for ends, (due, _) in under_way.items() if due <= now]:
            source, target = ends
            boxes[target][source] = under_way.pop(ends)[1]
            asked[target].pop(source, None)
            if ends in behind:
                post(now, ends, behind.pop(ends))
        for i, node in enumerate(nodes):
            others = [j for j in range(count) if j != i]
            ready = [j for j in others if not waiting or asked[i].get(j, -np.inf) <= now - ANSWER_TICKS]
            if (i == 0 and now % slow) or not ready:
                continue
            node.draw_from(ready)
            sent = node.solve()
            node.absorb([boxes[i].pop(j) for j in others if j in boxes[i]])
            for message in sent:
                ends, mine = (i, message.other), message._replace(other=i, vector=message.vector.copy())
                asked[i][message.other] = now
                if ends in under_way:
                    behind[ends] = mine
                else:
                    post(now, ends, mine)
    worst = max(excess("".join(names), node.model()[0]) for node in nodes)
    return worst, [node.t for node in nodes]


def test_nodes_that_wait_for_answers_are_nearer_the_optimum_where_messages_are_late():
    held_back, _ = play("abc", late=0.2)
    assert held_back < 0.02
    assert 2 * held_back < play("abc", late=0.2, waiting=False)[0]


def test_a_slow_node_slows_nobody_and_does_not_get_all_the_mass():
    near, ticks = play("abcd", slow=20)
    assert ticks[0] == 160
    assert min(ticks[1:]) > 0.9 * 3200
    assert 2 * near < play("abcd", slow=20, waiting=False)[0]
