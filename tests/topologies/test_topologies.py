"""Single topologies, graphs that users give, and errors; what all do is in test_topology_conformance.py."""

import math

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm.core.network import Network
from gadget_svm.topologies import TOPOLOGIES, Topology, build, families

REFERENCES = {
    ("complete", 9): nx.complete_graph(9),
    ("ring", 9): nx.cycle_graph(9),
    ("line", 9): nx.path_graph(9),
    ("star", 9): nx.star_graph(8),
    ("tree", 13): nx.full_rary_tree(2, 13),
    ("tree:3", 14): nx.full_rary_tree(3, 14),
    ("grid", 12): nx.grid_2d_graph(3, 4),
    ("grid:6x2", 12): nx.grid_2d_graph(6, 2),
    ("torus", 12): nx.grid_2d_graph(3, 4, periodic=True),
    ("torus:2x6", 12): nx.grid_2d_graph(2, 6, periodic=True),
    ("hypercube", 16): nx.from_dict_of_lists({i: [i ^ 1, i ^ 2, i ^ 4, i ^ 8] for i in range(16)}),
    ("exponential", 11): nx.from_dict_of_lists(
        {i: [(i + 1) % 11, (i + 2) % 11, (i + 4) % 11, (i + 8) % 11] for i in range(11)}, nx.DiGraph
    ),
}


@pytest.mark.parametrize(("name", "n"), REFERENCES)
def test_structured_graphs_are_the_textbook_ones(name, n):
    graph = REFERENCES[name, n]
    expected = nx.to_numpy_array(graph, nodelist=sorted(graph), weight=None)
    np.testing.assert_array_equal(build(name, n).adjacency().toarray(), expected)


def test_a_grid_that_is_no_rectangle_has_a_short_last_row():
    # 7 nodes: rows 0 1 2 / 3 4 5 / 6
    edges = nx.Graph([(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5), (3, 6)])
    expected = nx.to_numpy_array(edges, nodelist=range(7))
    np.testing.assert_array_equal(build("grid", 7).adjacency().toarray(), expected)


@pytest.mark.parametrize(("n", "k"), [(50, 3), (50, 20), (50, 30), (50, 48)])
def test_k_out_gives_each_node_k_others(n, k):
    graph = families.k_out(n, str(k), np.random.default_rng(0))
    assert (np.diff(graph.indptr) == k).all()
    rows = graph.indices.reshape(n, k)
    assert (np.diff(rows, axis=1) > 0).all()
    assert not (rows == np.arange(n)[:, None]).any()


def test_k_out_draws_every_other_node_equally_often():
    graph = families.k_out(2000, "100", np.random.default_rng(1))
    received = np.bincount(graph.indices, minlength=2000)
    # Binomial(1999, 100/1999): mean 100, standard deviation 9.7; 6 of them is one chance in 10^6 for 2000 nodes.
    assert abs(received - 100).max() < 60
    assert 85 < received.var() < 106


def test_k_out_with_few_nodes_is_complete():
    network = build("k-out", 6)
    assert (network.degree == 5).all()
    assert not network.directed


@pytest.mark.parametrize(("n", "degree"), [(30, 3), (31, 4), (200, 2), (8, 7), (1000, 6)])
def test_random_regular_has_one_degree(n, degree):
    network = build(f"random-regular:{degree}", n, seed=1)
    assert (network.degree == degree).all()
    assert not network.directed


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 14), st.integers(2, 9), st.integers(0, 10_000))
def test_the_large_regular_generator_repairs_every_repetition(half, degree, seed):
    n = 2 * half
    if degree > half:  # denser graphs need no repair by swaps: they are drawn another way
        return
    keys = families._regular_keys(n, degree, np.random.default_rng(seed))
    low, high = np.divmod(keys, n)
    assert len(np.unique(keys)) == len(keys) == n * degree // 2
    assert (low < high).all()
    assert (np.bincount(np.concatenate([low, high]), minlength=n) == degree).all()


def test_random_regular_above_the_networkx_limit():
    network = build("random-regular:5", 100_002, seed=0)
    assert (network.degree == 5).all()
    assert network.components[0] == 1


@pytest.mark.parametrize("p", [0.05, 0.5, 1.0])
def test_erdos_renyi_has_the_binomial_number_of_edges(p):
    n, draws = 60, 40
    pairs = n * (n - 1) / 2
    counts = [len(families.erdos_renyi(n, str(p), np.random.default_rng(seed)).indices) / 2 for seed in range(draws)]
    assert abs(np.mean(counts) - p * pairs) <= 5 * math.sqrt(p * (1 - p) * pairs / draws)


def test_erdos_renyi_favours_no_pair():
    rngs = map(np.random.default_rng, range(3000))
    seen = sum(_dense(families.erdos_renyi(7, "0.3", rng)) for rng in rngs)
    pairs = seen[np.triu_indices(7, 1)] / 3000
    assert abs(pairs - 0.3).max() < 5 * math.sqrt(0.3 * 0.7 / 3000)


def _dense(graph):
    return Network.from_csr(graph.indptr, graph.indices).adjacency().toarray()


def test_small_world_keeps_its_edges_and_rewires_a_share():
    n = 2000
    lattice, rewired = build("small-world:6,0", n), build("small-world:6,0.25", n)
    assert (lattice.degree == 6).all()
    assert lattice.n_edges == rewired.n_edges
    kept = lattice.adjacency().multiply(rewired.adjacency()).sum() / lattice.n_edges
    assert abs(kept - 0.75) < 0.04


def test_scale_free_has_hubs():
    network = build("scale-free:3", 2000)
    assert network.n_edges == 2 * 3 * (2000 - 3)
    assert network.degree.max() > 10 * network.degree.mean()


def test_a_networkx_graph_is_numbered_by_its_sorted_labels():
    graph = nx.Graph([("hospital", "clinic"), ("clinic", "lab")])
    network = build(graph, 3)
    assert network.labels == ("clinic", "hospital", "lab")
    np.testing.assert_array_equal(network.adjacency().toarray(), [[0, 1, 1], [1, 0, 0], [1, 0, 0]])
    assert network.with_transition("metropolis").labels == network.labels
    mixed = build(nx.Graph([("b", 1), (1, "a")]), 3)  # these cannot be sorted: as they are listed
    assert mixed.labels == ("b", 1, "a")


def test_matrices_and_networks_are_taken_as_they_are():
    ring = build("ring", 5, transition="metropolis")
    A = ring.adjacency()
    for given_graph in (A, sp.coo_matrix(A.toarray()), A.toarray(), A.toarray().astype(bool)):
        np.testing.assert_array_equal(build(given_graph, 5).adjacency().toarray(), A.toarray())
    assert build(ring, 5) is ring
    assert build(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), 3).directed


@pytest.mark.parametrize(
    ("topology", "n", "sentence"),
    [
        ("rign", 5, "Did you mean 'ring'"),
        ("ring:3", 5, "takes no parameter"),
        ("k-out:none", 5, "'k-out:20'"),
        ("k-out:0", 5, "at least 1"),
        ("erdos-renyi:2", 5, "needs a probability"),
        ("small-world:3", 9, "use 2 or 4"),
        ("grid:3x4", 13, "13 nodes"),
        ("torus", 13, "use 12 nodes"),
        ("torus", 3, "use 4 nodes"),
        ("hypercube", 20, "use 16 or 32"),
        ("random-regular:3", 7, "'random-regular:4' or 8 nodes"),
        ("complete", 20_001, "200,010,000 edges.*'k-out'"),
        ("random-regular:1", 6, "draws.*more neighbours"),
        ("erdos-renyi:0.001", 50, "draws.*more neighbours"),
        ("ring", 0, "at least one node"),
        (nx.path_graph(4), 5, "4 nodes and 5"),
        (np.ones(3), 3, "two dimensions"),
    ],
)
def test_refusals_name_the_fix(topology, n, sentence):
    with pytest.raises(ValueError, match=sentence):
        build(topology, n)


def test_what_is_no_graph_is_refused():
    with pytest.raises(TypeError, match="not int"):
        build(7, 7)


@pytest.mark.parametrize(
    ("name", "says"), [("plain:5", "does not take the parameter '5': write 'plain'"), ("sized", "write 'sized:VALUE'")]
)
def test_a_topology_of_another_package_with_a_wrong_parameter_names_the_fix(name, says, monkeypatch):
    class Plain(Topology):
        name = "plain"

    class Sized(Topology):
        def __init__(self, size):
            self.size = size

    monkeypatch.setattr(TOPOLOGIES, "_members", {**TOPOLOGIES.builtin, "plain": Plain, "sized": Sized})
    with pytest.raises(ValueError, match=says):
        build(name, 5)
