"""Learners without wires: what a kept edge does to a node and what is done to it, and neighbours that begin anew."""

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")
from gadget_svm.peers import leaving
from gadget_svm.peers.charter import Charter
from gadget_svm.peers.discretion import Discretion
from gadget_svm.peers.learner import Learner
from support.peer_sites import LAM, SITES, above, excess


class Net:
    """Learners that hear each other at once."""

    def __init__(self, names, algorithm="pdmm"):
        self.algorithm = algorithm
        self.learners = {i: self.learner(i, name) for i, name in enumerate(names)}
        for i, learner in self.learners.items():
            learner.set_neighbours([j for j in self.learners if j != i])

    def learner(self, i, name):
        X, y = SITES[name]
        terms = Charter("test", self.algorithm, LAM, 12, "none", (-1.0, 1.0), True, "none")
        return Learner(X, (y > 0).astype(np.int32), terms, i, seed=i)

    def run(self, ticks, *some):
        waiting = {i: [] for i in some or self.learners}
        for _ in range(ticks):
            sent = {i: self.learners[i].solve() for i in waiting}
            for i in waiting:
                self.learners[i].absorb(waiting[i])
                self.learners[i].weigh_recent()
                waiting[i] = []
            for i, parcels in sent.items():
                for parcel in parcels:
                    if parcel.other in waiting:
                        waiting[parcel.other].append(parcel._replace(other=i, vector=parcel.vector.copy()))

    def leave(self, leaver, heir):
        gone, stays = self.learners[leaver], self.learners[heir]
        gone.set_neighbours([heir, *gone.kept])
        word = leaving._last_word(gone, Discretion(gone.X, 1), heir)
        stays.kept |= {leaver}
        stays.solve()
        w = stays.model()
        strained = word._replace(other=leaver, note=3 * word.weight)  # so much asks for another penalty
        stays.absorb([strained])
        for i in gone.neighbours + [j for j in self.learners if j not in (leaver, heir)]:
            if leaver in self.learners[i].neighbours and i != heir:
                self.drop(i, leaver)
        return w

    def drop(self, i, other):
        learner = self.learners[i]
        learner.set_neighbours([j for j in learner.neighbours if j != other])


def assert_balanced(learner):
    """(n lam + R) w + sum A z = v: what every move of PDMM keeps true."""
    edge, w = learner.block.edge, learner.block.flat[0]
    sign = np.where(learner.node < learner.block.links.target, 1.0, -1.0)
    left = (edge["n_lam"][0] + edge["R"][0]) * w + (sign * edge["open"]) @ edge["z"]
    v = learner.X.T @ (learner.duals[0] * np.where(learner.label == 1, 1.0, -1.0))
    np.testing.assert_allclose(left, v, atol=1e-9 * np.abs(v).max())


def z_of(learner, other):
    [at] = np.flatnonzero(learner.block.links.target == other)
    return learner.block.edge["z"][at].copy()


@pytest.mark.parametrize("names", ["ab", "abc", "abcd"])
@pytest.mark.parametrize("heir", [0, 1])
def test_a_last_letter_moves_nobody(names, heir):
    """Whether the heir's number is the lower one and it owns the penalty, or not."""
    leaver = 1 - heir
    net = Net(names)
    net.run(800)
    before = net.leave(leaver, heir)
    after = net.learners[heir].model()
    np.testing.assert_allclose(after, before, atol=2e-3 * np.abs(before).max())
    staying = [i for i in net.learners if i != leaver]
    for i in staying:
        assert_balanced(net.learners[i])
    net.run(400, *staying)
    for i in staying:
        assert_balanced(net.learners[i])
        assert excess(names, net.learners[i].model()[0]) < 3e-4


@pytest.mark.parametrize("others", [0, 1])
def test_what_an_edge_pulled_that_is_closed_is_not_put_on_a_kept_one(others):
    """With another edge it goes there, and w stays; without one, w goes where its own rows and what is kept have it."""
    net = Net("abc" if not others else "abcd")
    net.run(800)
    net.leave(1, 0)
    learner = net.learners[0]
    kept, before = z_of(learner, 1), learner.model()
    net.drop(0, 2)
    np.testing.assert_array_equal(z_of(learner, 1), kept)
    assert_balanced(learner)
    assert np.allclose(learner.model(), before) == bool(others)


def test_nothing_is_said_to_one_who_is_away():
    net = Net("abcd")
    net.run(50)
    net.leave(1, 0)
    learner, receivers = net.learners[0], []
    for _ in range(12):
        receivers += [parcel.other for parcel in learner.solve()]
        learner.absorb([])
    assert receivers.count(2) == receivers.count(3) == 6


def test_one_who_is_heard_anew_puts_nothing_on_a_kept_edge():
    """Its letter of a higher epoch closes its edge and opens it again, within a tick."""
    net = Net("abcd")
    net.run(800)
    net.leave(1, 0)
    kept = z_of(net.learners[0], 1)
    net.drop(2, 0)
    net.learners[2].set_neighbours([0, 3])
    net.run(1000, 0, 2, 3)
    assert net.learners[0].block.edge["epoch"][1] == 2  # it was: closed and opened
    np.testing.assert_array_equal(z_of(net.learners[0], 1), kept)
    assert_balanced(net.learners[0])
    for i in (0, 2, 3):
        assert excess("abcd", net.learners[i].model()[0]) < 3e-4


def speaks_alone(speaker, hearer, ticks):
    """One hears the other and not the other way round; how large the weights of the hearer were in between."""
    largest = 0.0
    for _ in range(ticks):
        said = [parcel._replace(other=speaker.node, vector=parcel.vector.copy()) for parcel in speaker.solve()]
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
            for parcel in said:  # the newest says all there is to say
                waiting[parcel.other][i] = parcel._replace(other=i, vector=parcel.vector.copy())
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
def test_who_takes_the_place_of_a_gadget_learner_brings_no_mass_along(saved):
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
def test_who_loses_the_last_neighbour_solves_its_own_problem_at_once(names):
    """Its alphas were those of the model of all, and alone they make up none."""
    net = Net(names)
    net.run(800)
    learner = net.learners[0]
    learner.set_neighbours([])
    assert excess("a", learner.model()[0]) > 10.0
    assert learner.settle(lambda: True) > 0
    assert excess("a", learner.model()[0]) < 0.011
    assert learner.t == 800
    assert_balanced(learner)
    assert learner.settle(lambda: True) == 0  # from here on at the usual pace


def test_who_is_left_alone_takes_no_longer_than_it_may():
    net, looks = Net("ab"), iter([True, True, False])
    net.run(800)
    learner = net.learners[0]
    learner.set_neighbours([])
    assert learner.settle(lambda: next(looks)) == 2
    assert learner.settle(lambda: True) == 0


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_who_was_always_alone_learns_at_the_usual_pace(algorithm):
    alone = Net("a", algorithm)
    alone.run(3)
    alone.learners[0].set_neighbours([])
    assert alone.learners[0].settle(lambda: True) == 0
    never_spoke = Net("ab", algorithm).learners[0]
    never_spoke.set_neighbours([])
    assert never_spoke.settle(lambda: True) == 0


def test_who_keeps_an_edge_or_has_another_again_is_not_alone():
    net = Net("ab")
    net.run(800)
    net.leave(1, 0)
    net.learners[0].set_neighbours([1])
    assert net.learners[0].settle(lambda: True) == 0
    net = Net("ab")
    net.run(100)
    net.learners[0].set_neighbours([])
    net.learners[0].set_neighbours([1])
    assert net.learners[0].settle(lambda: True) == 0


def test_gadget_lets_its_last_neighbour_go_as_ever():
    net = Net("ab", "gadget")
    net.run(100)
    net.learners[0].set_neighbours([])
    assert net.learners[0].settle(lambda: True) == 0
