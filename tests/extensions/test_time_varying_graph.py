"""A time-varying graph from outside the package: a ring of which even and odd edges are active in turn."""

import networkx as nx
import numpy as np
import pytest

from gadget_svm import Gadget, GadgetSVC, average, build_network
from gadget_svm.topologies import TOPOLOGIES, Topology
from support.entry_points import offer


class AlternatingRing(Topology):
    """Edge i - (i + 1) is active when t + i is even: at no time is the graph connected."""

    name = "alternating-ring"
    time_varying = True

    def build(self, n, rng):  # noqa: ARG002
        return nx.cycle_graph(n)

    def active(self, t, sender, receiver):
        low = np.where(abs(sender - receiver) > 1, np.maximum(sender, receiver), np.minimum(sender, receiver))
        return (low + t) % 2 == 0


class Never(AlternatingRing):
    """No edge is ever active."""

    def active(self, t, sender, receiver):  # noqa: ARG002
        return np.zeros(len(sender), dtype=bool)


def fitted(toy, topology, **settings):
    settings = {"max_iter": 200, "stopping": None, "lam": 0.05, "random_state": 0, **settings}
    return GadgetSVC(6, topology=topology, **settings).fit(toy.X, toy.y)


@pytest.mark.parametrize("algorithm", ["gadget", "asgd", "pdmm", "mom-dsvm", Gadget(gossip="diffusion")], ids=str)
def test_the_nodes_learn_together(toy, algorithm):
    together, alone = (fitted(toy, graph, algorithm=algorithm) for graph in (AlternatingRing(), Never()))
    assert together.history_[-1]["disagreement"] < 0.5 * alone.history_[-1]["disagreement"]
    assert together.history_[-1]["worst_objective"] < alone.history_[-1]["worst_objective"]


def test_only_active_edges_carry_messages(toy):
    """Diffusion sends along every edge: of twelve, six are active at a time."""
    model = fitted(toy, AlternatingRing(), algorithm=Gadget(gossip="diffusion"), max_iter=10)
    last = model.history_[-1]
    assert last["messages"] == 10 * 6
    assert last["bytes"] == last["messages"] * (24 + 8 * 7)
    assert fitted(toy, Never(), algorithm="gadget", max_iter=5).history_[-1]["messages"] == 0


def test_a_model_is_certified(toy):
    model = fitted(toy, AlternatingRing(), stopping="gap", max_iter=2000)
    assert model.converged_
    assert model.gap_bound_ < np.inf


def test_blocks_agree_bit_for_bit(toy):
    one, two = (fitted(toy, AlternatingRing(), engine_options={"blocks": b}, faults="delay=2") for b in (1, 2))
    np.testing.assert_array_equal(one.node_coef_, two.node_coef_)


def test_where_it_is_not_supported_the_message_says_what_is(toy):
    with pytest.raises(ValueError, match="engine='local'"):
        fitted(toy, AlternatingRing(), engine="ray")
    with pytest.raises(ValueError, match=r"'diameter' .* time-varying graph: use a fixed number"):
        fitted(toy, AlternatingRing(), algorithm=Gadget(gossip="diffusion", gossip_rounds="diameter"))
    with pytest.raises(ValueError, match="all edges"):
        average(np.ones(6), build_network(AlternatingRing(), 6), "push-sum", 3)


def test_an_entry_point_makes_it_known_by_name(toy, monkeypatch):
    offer(monkeypatch, TOPOLOGIES, alternating_ring=AlternatingRing)
    by_name, given = (fitted(toy, each, max_iter=20) for each in ("alternating-ring", AlternatingRing()))
    np.testing.assert_array_equal(by_name.node_coef_, given.node_coef_)


class TwoCliques(Topology):
    """Drawn until it is connected: two cliques, joined by an edge with probability 1/2."""

    name = "two-cliques"
    drawn = True

    def build(self, n, rng):
        graph = nx.disjoint_union(nx.complete_graph(n // 2), nx.complete_graph(n - n // 2))
        graph.add_edges_from([(0, n - 1)] if rng.random() < 0.5 else [])
        return graph


def test_a_random_topology_is_drawn_again_until_it_is_connected():
    edges = {build_network(TwoCliques(), 8, seed=seed).n_edges for seed in range(6)}
    assert edges == {2 * (6 + 6 + 1)}
