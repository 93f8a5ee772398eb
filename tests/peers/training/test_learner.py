"""Learners without links: edges that come, go and restart, and a node that is left alone."""

import numpy as np
import pytest

from gadget_svm.algorithms.certificate import bound_of, sums_length
from support.peer_sites import LAM, above, excess
from support.training_kit import LearnerNet as Net
from support.training_kit import learner as learner_of
from support.training_kit import rows


def assert_balanced(learner):
    """(n lam + R) w + sum A z = v: what every move of PDMM keeps true."""
    edge, w = learner.block.edge, learner.block.flat[0]
    sign = np.where(learner.node < learner.block.links.target, 1.0, -1.0)
    left = (edge["n_lam"][0] + edge["R"][0]) * w + (sign * edge["open"]) @ edge["z"]
    v = learner.X.T @ (learner.duals[0] * np.where(learner.label == 1, 1.0, -1.0))
    np.testing.assert_allclose(left, v, atol=1e-9 * np.abs(v).max())


def speaks_alone(speaker, hearer, ticks):
    """One hears the other and not the other way round; how large the weights of the hearer were in between."""
    largest = 0.0
    for _ in range(ticks):
        said = [message._replace(other=speaker.node, vector=message.vector.copy()) for message in speaker.solve()]
        speaker.absorb([])
        hearer.solve()
        hearer.absorb(said)
        largest = max(largest, np.abs(hearer.model()).max())
    return largest


def stiffen(learner, times):
    """Another penalty on all edges, whatever the other ends think."""
    learner.block.edge["rho"] *= times
    learner.block.edge["R"] *= times
    learner.refresh()


def assert_at_the_optimum(net, names):
    for learner in net.learners.values():
        assert_balanced(learner)
        assert excess(names, learner.model()[0]) < 3e-4


@pytest.mark.parametrize("fresh", [0, 1])
@pytest.mark.parametrize("deaf", [0, 3, 30, 60])
@pytest.mark.parametrize("stiffer", [0.01, 1.0, 100.0])
def test_one_who_begins_anew_and_hears_nothing_at_first_moves_nobody_far(fresh, deaf, stiffer):
    """It wishes for another penalty than its edge had come to, and says so until it hears of it."""
    net = Net("ab")
    net.run(200)
    stays, before = net.learners[1 - fresh], np.abs(net.learners[fresh].model()).max()
    begun = net.learners[fresh] = net.learner(fresh, "ab"[fresh])
    begun.set_neighbours([1 - fresh])
    stays.reset_edge(fresh)
    begun.solve()
    begun.absorb([])
    stiffen(begun, stiffer)
    assert speaks_alone(begun, stays, deaf) < 20 * before
    net.run(800)
    assert_at_the_optimum(net, "ab")


def test_one_who_goes_back_to_a_penalty_of_long_ago_moves_nobody_far():
    """As from an old checkpoint: its edge has come to another penalty since."""
    net = Net("ab")
    net.run(4)
    arrays, about = net.learners[1].state()
    old = {name: np.array(value) for name, value in arrays.items()}
    net.run(200)
    before = np.abs(net.learners[0].model()).max()
    net.learners[1].restore(old, about)
    net.learners[0].reset_edge(1)
    stiffen(net.learners[1], 64.0)
    assert speaks_alone(net.learners[1], net.learners[0], 30) < 20 * before
    net.run(800)
    assert_at_the_optimum(net, "ab")


@pytest.mark.parametrize("every", [3, 5, 8])
def test_a_slow_one_between_two_that_are_fast_settles(every):
    """Most of what comes to it follows on letters that it never answered."""
    net, waiting, rng = Net("abc"), {i: {} for i in range(3)}, np.random.default_rng(0)
    net.learners[1].set_neighbours([0])
    net.learners[2].set_neighbours([0])
    for _ in range(3000):
        for i, learner in net.learners.items():
            if i == 0 and rng.integers(every):
                continue
            said = learner.solve()
            learner.absorb([waiting[i][j] for j in sorted(waiting[i])])
            waiting[i] = {}
            for message in said:  # the newest says all there is to say
                waiting[message.other][i] = message._replace(other=i, vector=message.vector.copy())
    for learner in net.learners.values():
        assert excess("abc", learner.model()[0]) < 1e-4


def test_gadget_forgets_one_who_is_gone_and_learns_with_one_who_comes():
    """As soon as it learned at first, though it has been at it for long by then."""
    net = Net("abc", "gadget")
    net.run(1500)
    assert max(excess("abc", learner.model()[0]) for learner in net.learners.values()) < 0.02
    for i in (0, 1):
        net.drop(i, 2)
    net.run(700, 0, 1)
    assert max(excess("ab", net.learners[i].model()[0]) for i in (0, 1)) < 0.03 < above("ab", "abc") / 2
    net.learners[3] = net.learner(3, "d")
    net.learners[3].set_neighbours([0])
    net.learners[0].set_neighbours([1, 3])
    net.run(700, 0, 1, 3)
    assert max(excess("abd", net.learners[i].model()[0]) for i in (0, 1, 3)) < 0.05 < above("abd", "ab") / 2


def total_mass(learners):
    """What the nodes have, and what is under way between them."""
    blocks = [learner.block for learner in learners]
    under_way = sum(block.edge["sigma_phi"].sum() - block.edge["seen_phi"].sum() for block in blocks)
    return sum(block.phi[0] for block in blocks) + under_way


@pytest.mark.parametrize("saved", [False, True])
def test_a_successor_of_a_gadget_learner_brings_no_mass_along(saved):
    """The others have what the former one gave away; from a state of long ago, or from nothing."""
    net = Net("abc", "gadget")
    net.run(20)
    arrays, about = net.learners[0].state()
    old = {name: np.array(value) for name, value in arrays.items()}
    net.drop(0, 1)
    net.learners[0].set_neighbours([1, 2])  # epochs that the old state knows nothing of
    net.run(200)
    former, net.learners[0] = net.learners[0], net.learner(0, "a")
    if saved:
        net.learners[0].restore(old, about)
    net.learners[0].succeed(former)
    net.learners[0].set_neighbours([1, 2])
    before, number = int(former.block.edge["epoch"][0]), former.block.exchanges
    assert before > int(old["edge.epoch"][0]) + 1
    assert net.learners[0].block.exchanges == number
    net.run(200)
    [epoch] = {int(learner.block.edge["epoch"][0]) for learner in net.learners.values()}
    assert epoch > before
    assert total_mass(net.learners.values()) == pytest.approx(180.0)
    net.run(800)
    assert max(excess("abc", learner.model()[0]) for learner in net.learners.values()) < 0.03


@pytest.mark.parametrize("names", ["ab", "abc", "abcd"])
def test_a_node_without_its_last_neighbour_solves_its_own_problem(names):
    """Its dual variables were those of the model of all; for its own rows they make up no model."""
    net = Net(names)
    net.run(800)
    alone = net.learners[0]
    alone.set_neighbours([])
    assert alone.isolated
    assert excess("a", alone.model()[0]) > 10.0
    net.run(1, 0)
    assert alone.isolated
    arrays, about = alone.state()
    again = net.learners[0] = net.learner(0, "a")
    again.restore(arrays, about)
    while again.isolated:
        net.run(1, 0)
        assert again.t < 1000
    assert excess("a", again.model()[0]) < 0.011
    assert_balanced(again)


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_a_node_that_was_always_alone_has_its_own_model(algorithm):
    net = Net("a", algorithm)
    net.run(3)
    never_spoke = Net("ab", algorithm).learners[0]
    for learner in (net.learners[0], never_spoke):
        learner.set_neighbours([])
        assert not learner.isolated


def test_a_node_that_has_a_neighbour_again_is_not_alone():
    net = Net("ab")
    net.run(100)
    net.learners[0].set_neighbours([])
    net.learners[0].set_neighbours([1])
    assert not net.learners[0].isolated


def test_the_sums_of_all_nodes_bound_the_gap():
    net = Net("abc")
    net.run(300)
    w = net.learners[1].model()
    total = sum(one.sums(w) for one in net.learners.values())
    bounds, duals, weight = bound_of(w, total, LAM, 1, 13)
    assert len(total) == sums_length(1, 13)
    assert weight == 180.0
    gap = excess("abc", w[0])
    assert gap < bounds.sum() / duals.sum() < 1e-3
    own, _, _ = bound_of(w, net.learners[1].sums(w), LAM, 1, 13)
    assert own.sum() > 0.01  # of its own rows the model is not the best


def test_an_algorithm_without_dual_variables_has_no_sums():
    net = Net("ab", "gadget")
    with pytest.raises(NotImplementedError):
        net.learners[0].sums(net.learners[0].model())


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_neighbours_models_are_estimated_from_their_messages(algorithm):
    """From two messages by running sums, and from one that was sent and one that came by PDMM."""
    net = Net("ab", algorithm)
    net.run(400)
    a, b = net.learners[0], net.learners[1]
    heard = []
    for _ in range(2):
        [to_b], [to_a] = a.solve(), b.solve()
        truth = b.model()
        heard.append(to_a._replace(other=1, vector=to_a.vector.copy()))
        a.absorb([heard[-1]])
        b.absorb([to_b._replace(other=0, vector=to_b.vector.copy())])
    last, previous = heard[1], heard[0]
    found = a.estimate_neighbour_model(last, previous, to_b.vector)
    assert found.shape == truth.shape
    most = 0.2 if algorithm == "gadget" else 1e-3  # GADGET sends its last iterate, its model is an average
    assert np.abs(found - truth).max() < most * np.abs(truth).max()
    assert a.estimate_neighbour_model(last, None, None) is None


def test_a_snapshot_of_other_rows_is_refused():
    arrays, about = learner_of("a").state()
    with pytest.raises(ValueError, match=r"w has the shape \(1, 1, 13\), here \(1, 1, 9\)"):
        learner_of(rows(30, 8)).restore(arrays, about)
