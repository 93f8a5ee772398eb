"""Certificates by messages that are lost, repeated, late and out of order, among peers that crash and come back."""

from collections import Counter
from dataclasses import replace
from random import Random

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm.algorithms.certificate import bound_of, sums_length
from gadget_svm.peers.training.certificate_echo import (
    STALL_TIMEOUT_S,
    CertificateEcho,
    ComputeSums,
    Failed,
    Tell,
    label,
)
from gadget_svm.peers.wire.messages import (
    CertificateId,
    CertificateProbe,
    CertificateSums,
    Certified,
    CoveredSite,
)

K, F, LAM = 1, 3, 0.1


def own_sums(name, model):
    """Some sums of a site with 10 rows: they depend on its name and on the model."""
    sums = np.zeros(sums_length(K, F))
    number = int(name[1:]) + 1.0
    sums[:F] = 0.1 * number * np.arange(1, F + 1)
    sums[F], sums[F + 1] = 5.0 + number + model.sum(), 4.0
    sums[-3:] = 10.0, 20.0, 1.0
    return sums


class Network:
    """Peers with certifications, and messages on their way."""

    def __init__(self, graph, rng, loss=0.0, duplication=0.0, delay=0.1):
        self.graph, self.rng, self.loss, self.duplication, self.delay = graph, rng, loss, duplication, delay
        self.now, self.order, self.sent = 0.0, 0, Counter()
        self.incarnation = dict.fromkeys(graph, 1)
        self.up = set(graph)
        self.peers = {name: self.make(name) for name in graph}
        self.queue, self.completed, self.failed = [], [], []
        self.contributions = Counter()

    @staticmethod
    def make(name):
        return CertificateEcho(name, LAM, K, F)

    def neighbours(self, name):
        return {other for other in self.graph[name] if other in self.up}

    def begin(self, name, model=(0.1, 0.2, 0.3)):
        actions = self.peers[name].begin(
            self.now, 1e9, self.incarnation[name], 10.0, np.array(model), b"s", self.neighbours(name), 7
        )
        self.do(name, actions)

    def do(self, name, actions):
        for action in actions:
            if isinstance(action, Tell):
                self.sent[type(action.message), getattr(action.message, "model", np.empty(0)).size] += 1
                for _ in range(1 + (self.rng.random() < self.duplication)):
                    if self.rng.random() >= self.loss:
                        self.put(self.rng.random() * self.delay, action.name, ("message", name, action.message))
            elif isinstance(action, ComputeSums):
                work = ("sums", self.incarnation[name], action.id, own_sums(name, action.model))
                self.put(self.rng.random() * self.delay, name, work)
            elif isinstance(action, Certified):
                self.completed.append(action)
            elif isinstance(action, Failed):
                self.failed.append((name, action))

    def put(self, delay, name, what):
        self.order += 1
        self.queue.append((self.now + delay, self.order, name, what))

    def step(self):
        """Deliver what comes next, or let time pass."""
        tick_at = np.floor(self.now) + 1.0
        self.queue.sort(key=lambda item: item[:2])
        if self.queue and self.queue[0][0] < tick_at:
            self.now, _, name, what = self.queue.pop(0)
            self.deliver(name, what)
            return
        self.now = tick_at
        for name in sorted(self.up):
            self.do(name, self.peers[name].tick(self.now, self.neighbours(name)))

    def deliver(self, name, what):
        if name not in self.up:
            return
        peer = self.peers[name]
        if what[0] == "sums":
            if what[1] == self.incarnation[name]:
                self.do(name, peer.sums_ready(what[2], what[3], self.now))
        elif what[1] in self.up:
            incarnation = self.incarnation[name]
            self.do(name, peer.receive(what[1], what[2], self.now, self.neighbours(name), incarnation, 10.0))

    def crash(self, name):
        self.up.discard(name)

    def restart(self, name):
        self.up.add(name)
        self.incarnation[name] += 1
        self.peers[name] = self.make(name)

    def run(self, seconds):
        end = self.now + seconds
        while self.now < end and not self.completed:
            self.step()

    def check(self, certified):
        """The bound is that of the sites that are listed, each of them once."""
        names = [site.name for site in certified.sites]
        assert len(names) == len(set(names))
        total = np.sum([own_sums(name, certified.model) for name in names], axis=0)
        bounds, duals, _ = bound_of(certified.model, total, LAM, K, F)
        np.testing.assert_allclose(certified.bounds, bounds, rtol=1e-12)
        np.testing.assert_allclose(certified.duals, duals, rtol=1e-12)
        return set(names)


@st.composite
def networks(draw, faults=True):
    n = draw(st.integers(1, 9))
    rng = Random(draw(st.integers(0, 10**6)))
    graph = nx.Graph()
    graph.add_nodes_from([f"p{i}" for i in range(n)])
    graph.add_edges_from((f"p{i}", f"p{rng.randrange(i)}") for i in range(1, n))
    graph.add_edges_from(tuple(rng.sample(sorted(graph), 2)) for _ in range(rng.randrange(n)) if n > 1)
    loss, duplication = (
        (draw(st.sampled_from([0.0, 0.1, 0.3])), draw(st.sampled_from([0.0, 0.3]))) if faults else (0, 0)
    )
    return Network(graph, rng, loss, duplication, draw(st.sampled_from([0.01, 0.5, 2.0])))


def test_one_peer_alone_certifies_itself():
    network = Network(nx.Graph({"p0": []}), Random(0))
    network.begin("p0")
    network.run(2)
    [certified] = network.completed
    assert network.check(certified) == {"p0"}
    assert certified.sites == (CoveredSite("p0", 1, 10.0),)
    assert (certified.id, certified.time, certified.ticks) == (CertificateId(1, "p0", 1), 1e9, 7)


@settings(max_examples=150, deadline=None)
@given(networks(faults=False))
def test_without_faults_all_take_part_and_each_vector_is_sent_as_rarely_as_can_be(network):
    network.delay = 0.05
    network.begin("p0")
    network.run(5)
    [certified] = network.completed
    assert network.check(certified) == set(network.graph)
    n, edges = len(network.graph), network.graph.number_of_edges()
    assert network.sent[CertificateSums, 0] == n - 1
    assert network.sent[CertificateProbe, F] <= 2 * edges - (n - 1)  # none with the model to a parent
    assert network.now < 2.0


@settings(max_examples=300, deadline=None)
@given(networks())
def test_whatever_is_lost_repeated_or_out_of_order_all_are_counted_once(network):
    for _ in range(10):
        network.begin("p0")
        network.run(STALL_TIMEOUT_S + 5)
        if network.completed:
            break
    [certified] = network.completed
    assert network.check(certified) == set(network.graph)


@settings(max_examples=300, deadline=None)
@given(networks(), st.lists(st.tuples(st.integers(1, 8), st.integers(0, 60), st.booleans()), max_size=4))
def test_crashes_and_restarts_never_make_a_wrong_bound_and_a_later_attempt_covers_all(network, faults):
    network.begin("p0")
    for number, steps, comes_back in faults:
        name = f"p{number % len(network.graph)}"
        if name == "p0":
            continue
        for _ in range(steps):
            network.step()
        network.crash(name)
        if comes_back:
            network.restart(name)
    network.run(2 * STALL_TIMEOUT_S)
    for certified in network.completed:
        assert network.check(certified) <= set(network.graph)
    network.completed.clear()
    for name in set(network.graph) - network.up:
        network.restart(name)
    for _ in range(20):
        network.begin("p0")
        network.run(STALL_TIMEOUT_S + 5)
        if network.completed and network.check(network.completed[0]) == set(network.graph):
            return
        network.completed.clear()
    raise AssertionError("no certificate of all")


@settings(max_examples=200, deadline=None)
@given(networks(), st.integers(0, 8), st.integers(0, 40))
def test_two_that_begin_at_once_never_both_cover_all(network, other, steps):
    """In a network nobody takes part after its own is complete; here both go on, so numbers decide."""
    network.begin("p0")
    for _ in range(steps):
        network.step()
    second = f"p{other % len(network.graph)}"
    network.begin(second)
    end = network.now + 2 * STALL_TIMEOUT_S
    while network.now < end:
        network.step()
    full = [c for c in network.completed if network.check(c) == set(network.graph)]
    numbers = [c.id.number for c in full]
    assert len(numbers) == len(set(numbers))


def test_a_neighbour_that_never_answers_is_left_out_once_it_is_gone():
    network = Network(nx.relabel_nodes(nx.path_graph(4), lambda i: f"p{i}"), Random(0))
    network.begin("p0")
    network.crash("p3")
    network.run(25)
    assert network.check(network.completed[0]) == {"p0", "p1", "p2"}


def test_a_child_that_dies_before_its_sums_makes_the_attempt_fail():
    network = Network(nx.relabel_nodes(nx.path_graph(3), lambda i: f"p{i}"), Random(0), delay=0.01)
    network.begin("p0")
    while network.peers["p1"]._attempt is None or network.peers["p1"]._attempt.others["p2"].parent is None:
        network.step()
    network.crash("p2")
    network.run(STALL_TIMEOUT_S + 5)
    assert not network.completed
    assert ("p1", "p2 is gone") in [(name, action.reason) for name, action in network.failed]
    assert "p0" in [name for name, _ in network.failed]


def test_half_of_all_messages_may_be_lost():
    """One attempt is enough: whoever is at work says so, and children keep their sums as long as they are asked."""
    completed = 0
    for seed in range(20):
        graph = nx.relabel_nodes(nx.random_regular_graph(4, 12, seed=seed), lambda i: f"p{i}")
        network = Network(graph, Random(seed), loss=0.5)
        network.begin("p0")
        network.run(300)
        completed += sum(network.check(certified) == set(graph) for certified in network.completed)
    assert completed >= 19


def test_an_attempt_that_a_peer_gives_up_fails_at_once():
    """Its parent hears of it, and that one's parent, up to the initiator."""
    network = Network(nx.relabel_nodes(nx.path_graph(5), lambda i: f"p{i}"), Random(0), delay=0.01)
    network.begin("p0")
    while network.peers["p3"]._attempt is None or network.peers["p3"]._attempt.others["p4"].parent is None:
        network.step()
    network.crash("p4")
    network.run(15)
    assert [name for name, _ in network.failed] == ["p3", "p2", "p1", "p0"]
    assert "p1 takes no part" in network.failed[-1][1].reason


def test_who_restarts_amid_an_attempt_is_not_counted_twice():
    """p2 sends its sums to p1, restarts, and joins the same attempt again by p3."""
    graph = nx.Graph([("p0", "p1"), ("p1", "p2"), ("p0", "p3"), ("p3", "p2")])
    results = Counter()
    for seed in range(300):
        network = Network(graph, Random(seed), loss=0.3, delay=2.0)
        network.begin("p0")
        for _ in range(seed % 25):
            network.step()
        network.restart("p2")  # its first probe to p3 may be lost, so that p3 asks again
        network.run(STALL_TIMEOUT_S + 5)
        results.update("complete" for _ in network.completed)
        results.update(action.reason for _, action in network.failed)
        for certified in network.completed:
            network.check(certified)
    assert results["a site was counted twice"] > 0
    assert results["complete"] > 0


def probe(number, initiator="b", model=(1.0, 2.0, 3.0), parent=None, incarnation=1):
    return CertificateProbe(
        CertificateId(number, initiator, incarnation), 1.0, b"s", np.array(model), parent or initiator
    )


def test_numbers_grow_and_an_unfinished_attempt_is_superseded_after_its_time_out_or_by_its_initiator():
    peer = CertificateEcho("p0", LAM, K, F)

    def joins(message, now, name="b"):
        actions = peer.receive(name, message, now, {"b", "c"}, 1, 10.0)
        return any(isinstance(action, ComputeSums) for action in actions)

    assert joins(probe(3), 0.0)
    assert not joins(probe(3, "c"), 0.0, "c")  # one of each number
    assert not joins(probe(4, "c"), 1.0, "c")  # another one is unfinished
    assert joins(probe(5), 2.0)  # its initiator has begun anew
    assert not joins(probe(4), 3.0)
    assert not joins(probe(6, "c"), 3.0, "c")
    assert joins(probe(6, "c"), 2.0 + STALL_TIMEOUT_S, "c")
    peer.adopted(9)
    assert not joins(probe(9), 100.0)
    assert not joins(probe(10, model=()), 100.0)
    assert joins(probe(10), 100.0)
    assert not peer.begin(100.0, 1e9, 1, 10.0, np.zeros(F), b"s", {"b"}, 0)
    peer.tick(100.0 + STALL_TIMEOUT_S, {"b"})
    assert peer.begin(140.0, 1e9, 1, 10.0, np.zeros(F), b"s", {"b"}, 0)
    assert peer._attempt.probe.id.number == 11


def test_what_is_not_finite_is_no_certificate():
    network = Network(nx.Graph({"p0": []}), Random(0))
    network.begin("p0", (np.inf, 0.0, 0.0))
    network.run(2)
    assert not network.completed
    assert "not finite" in network.failed[0][1].reason


def certificate(number=1, names="abc", bound=0.005, initiator="a", time=5.0):
    sites = tuple(CoveredSite(name, 1, 10.0) for name in names)
    return Certified(
        CertificateId(number, initiator, 1), time, b"s", np.arange(3.0), np.array([bound]), np.array([1.0]), sites, 9
    )


def test_the_label_tells_any_difference():
    one = certificate()
    others = [
        certificate(2), certificate(names="ab"), certificate(bound=0.004), certificate(initiator="b"),
        certificate(time=6.0), replace(one, model=np.arange(3.0) + 1e-15), replace(one, scale=b"t"),
        replace(one, ticks=1), replace(one, duals=np.array([1.1])),
    ]  # fmt: skip
    labels = [label(one), *map(label, others)]
    assert len(set(labels)) == len(labels)
    assert label(certificate()) == label(one)
    assert label(one).startswith("1-")
    assert len(label(one)) == 10
