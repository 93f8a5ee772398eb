"""The Network value: B is stochastic whatever the graph, and bad arrays are refused with a sentence."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm.core.network import Network, _portions
from gadget_svm.core.transitions import DOUBLY_STOCHASTIC, TRANSITIONS, WALKS
from gadget_svm.kernels.gossip import pick_edge


@st.composite
def symmetric_graphs(draw):
    n = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    upper = np.triu(rng.random((n, n)) < draw(st.floats(0, 1)), 1)
    return sp.csr_array((upper | upper.T).astype(float))


@settings(max_examples=60, deadline=None)
@given(symmetric_graphs(), st.sampled_from(sorted(TRANSITIONS)))
def test_rows_of_B_sum_to_one(graph, transition):
    network = Network.from_adjacency(graph, transition=transition)
    B = network.matrix().toarray()
    assert not network.directed
    assert (B >= 0).all()
    np.testing.assert_allclose(B.sum(axis=1), 1, atol=1e-14)
    assert ((B - np.diag(np.diag(B)) > 0) == (graph.toarray() > 0)).all()


@settings(max_examples=40, deadline=None)
@given(symmetric_graphs(), st.sampled_from(sorted(DOUBLY_STOCHASTIC)))
def test_metropolis_and_max_degree_are_doubly_stochastic(graph, transition):
    B = Network.from_adjacency(graph, transition=transition).matrix().toarray()
    np.testing.assert_array_equal(B, B.T)
    np.testing.assert_allclose(B.sum(axis=0), 1, atol=1e-14)


@settings(max_examples=60, deadline=None)
@given(symmetric_graphs(), st.sampled_from(sorted(DOUBLY_STOCHASTIC)))
def test_the_draw_table_holds_the_chances_and_what_is_left_is_silence(graph, transition):
    network = Network.from_adjacency(graph, transition=transition)
    for i in range(network.n):
        first, last = network.indptr[i], network.indptr[i + 1]
        row, share = network.draw_table[first:last], network.share[first:last]
        if len(row):
            assert (np.diff(row) > 0).all()
            assert row[0] > 0
            assert row[-1] == pytest.approx(1.0 - network.self_share[i], abs=1e-12)
            np.testing.assert_allclose(np.diff(row, prepend=0), share, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(symmetric_graphs(), st.sampled_from(sorted(WALKS)))
def test_a_walk_needs_no_table_and_never_is_silent(graph, transition):
    network = Network.from_adjacency(graph, transition=transition)
    assert len(network.draw_table) == 0
    for i in range(network.n):
        first, last = network.indptr[i], network.indptr[i + 1]
        if last > first:
            drawn = [pick_edge(network.draw_table, first, last, u) for u in np.linspace(0, 1, 997, endpoint=False)]
            assert pick_edge(network.draw_table, first, last, np.nextafter(1.0, 0.0)) == last - 1
            chance = np.bincount(np.array(drawn) - first, minlength=last - first) / 997
            np.testing.assert_allclose(chance, network.chances[first:last], atol=2 / 997)


def test_work_done_some_nodes_at_a_time_covers_every_node_once():
    indptr = np.array([0, 3, 3, 50, 51, 51, 53])
    for most in (1, 5, 60):
        parts = list(_portions(indptr, most))
        assert [i for part in parts for i in range(part.start, part.stop)] == list(range(6))
        assert all(indptr[part.stop] - indptr[part.start] <= most or part.stop == part.start + 1 for part in parts)


@settings(max_examples=40, deadline=None)
@given(symmetric_graphs(), st.sampled_from(["metropolis", "max-degree"]))
def test_a_doubly_stochastic_B_is_balanced_on_every_graph(graph, transition):
    assert Network.from_adjacency(graph, transition=transition).balanced


def test_a_star_is_not_balanced_under_a_walk():
    star = np.zeros((6, 6))
    star[0, 1:] = star[1:, 0] = 1
    assert not Network.from_adjacency(sp.csr_array(star)).balanced
    assert Network.from_adjacency(sp.csr_array(star), transition="metropolis").balanced


def test_self_loops_weights_zeros_and_duplicates_leave_the_same_graph():
    clean = Network.from_adjacency(sp.csr_array(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])))
    indptr, indices = [0, 3, 6, 8], [1, 1, 0, 2, 0, 1, 2, 1]
    data = [2.0, 3.0, 9.0, -1.0, 0.5, 4.0, 0.0, 7.0]
    messy = sp.csr_array((data, indices, indptr), shape=(3, 3))
    network = Network.from_adjacency(messy)
    np.testing.assert_array_equal(network.indices, clean.indices)
    np.testing.assert_array_equal(network.indptr, clean.indptr)
    np.testing.assert_array_equal(messy.indices, indices)  # the caller's matrix stays as it was


def test_direction_is_seen():
    assert Network.from_adjacency(sp.csr_array(np.array([[0, 1], [0, 0]]))).directed
    assert not Network.from_adjacency(sp.csr_array(np.array([[0, 5], [1, 0]]))).directed


def test_refusals_name_the_fix():
    one_way = sp.csr_array(np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]]))
    with pytest.raises(ValueError, match="'lazy' or 'random-walk'"):
        Network.from_adjacency(one_way, transition="metropolis")
    with pytest.raises(ValueError, match="Did you mean 'lazy'"):
        Network.from_adjacency(one_way, transition="lazzy")
    with pytest.raises(ValueError, match="2 x 3"):
        Network.from_adjacency(sp.csr_array(np.ones((2, 3))))


@pytest.mark.parametrize(
    ("indptr", "indices", "sentence"),
    [
        ([0, 2, 3, 4], [2, 1, 0, 0], "node 0"),  # not sorted
        ([0, 1, 3, 4], [1, 0, 0, 0], "node 1"),  # twice the same
        ([0, 1, 2, 3], [1, 0, 2], "node 2"),  # itself
        ([0, 1, 2, 3], [1, 0, 3], "node 2"),  # not a node
        ([0, 1, 2, 2], [1, 0, 1], "indptr"),
    ],
)
def test_from_csr_refuses_what_is_no_simple_graph(indptr, indices, sentence):
    with pytest.raises(ValueError, match=sentence):
        Network.from_csr(np.array(indptr), np.array(indices))


def test_hops_and_components_of_a_directed_path_into_a_cycle():
    # 0 -> 1 -> 2 -> 3 -> 1
    graph = sp.csr_array((np.ones(4), ([0, 1, 2, 3], [1, 2, 3, 1])), shape=(5, 5))
    network = Network.from_adjacency(graph)
    assert network.hops(0).tolist() == [0, 1, 2, 3, -1]
    assert network.hops(3, backward=True).tolist() == [3, 2, 1, 0, -1]
    count, label = network.components
    assert count == 3
    assert label[1] == label[2] == label[3]
    assert len({label[0], label[1], label[4]}) == 3
