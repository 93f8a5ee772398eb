"""Mixing measures against closed forms and dense linear algebra, and their errors."""

import math

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm import spectral
from gadget_svm.core.network import Network
from gadget_svm.core.transitions import TRANSITIONS
from gadget_svm.spectral import eigen
from gadget_svm.spectral.graph import swept_bound
from gadget_svm.topologies import build


def lazy(eigenvalue):
    return (1 + eigenvalue) / 2


@pytest.mark.parametrize("n", [2, 3, 12, 299, 302])
def test_closed_forms_of_the_lazy_walk(n):
    def beta(name):
        return spectral.second_eigenvalue(build(name, n))

    assert beta("line") == pytest.approx(lazy(math.cos(math.pi / (n - 1))), abs=1e-10)
    assert beta("complete") == pytest.approx(lazy(-1 / (n - 1)), abs=1e-10)
    if n > 2:
        assert beta("ring") == pytest.approx(lazy(math.cos(2 * math.pi / n)), abs=1e-10)
        assert beta("star") == pytest.approx(0.5, abs=1e-10)


@pytest.mark.parametrize("dimension", [1, 2, 5, 8, 10])
def test_the_hypercube_has_gap_one_over_its_dimension(dimension):
    assert spectral.spectral_gap(build("hypercube", 2**dimension)) == pytest.approx(1 / dimension, abs=1e-10)


@pytest.mark.parametrize(("n", "transition"), [(10_000, "lazy"), (10_001, "random-walk"), (10_000, "metropolis")])
def test_the_tiny_gap_of_a_large_ring(n, transition):
    cosine = math.cos(2 * math.pi / n)
    beta = {
        "lazy": lazy(cosine),
        "random-walk": math.cos(math.pi / n),  # the eigenvalue next to -1
        "metropolis": (1 + 2 * cosine) / 3,
    }[transition]
    assert spectral.tau_mix(build("ring", n, transition=transition)) == pytest.approx(1 / (1 - beta), rel=1e-6)


@pytest.mark.parametrize("n", [5, 50, 301, 1000])
def test_the_directed_exponential_graph_is_a_circulant(n):
    row = np.zeros(n)
    hops = [2**k for k in range(20) if 2**k < n]
    row[hops] = 0.5 / len(hops)
    row[0] = 0.5
    expected = np.abs(np.fft.fft(row))[1:].max()
    network = build("exponential", n)
    assert spectral.second_eigenvalue(network) == pytest.approx(expected, abs=1e-9)
    assert spectral.contraction(network) == pytest.approx(expected, abs=1e-9)  # circulants are normal
    np.testing.assert_allclose(spectral.stationary(network), 1 / n, atol=1e-13)


def test_a_directed_cycle_mixes_slowly():
    n = 2000
    network = build(nx.cycle_graph(n, create_using=nx.DiGraph), n)
    assert spectral.second_eigenvalue(network) == pytest.approx(math.cos(math.pi / n), abs=1e-10)


@st.composite
def connected_networks(draw):
    """A connected random graph, directed or not: a random cycle and random chords."""
    n = draw(st.integers(2, 9))
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    order = rng.permutation(n)
    A = rng.random((n, n)) < draw(st.sampled_from([0.0, 0.1, 0.4]))
    A[order, np.roll(order, -1)] = True
    np.fill_diagonal(A, False)
    directed = draw(st.booleans())
    transitions = ["lazy", "random-walk"] if directed else sorted(TRANSITIONS)
    graph = sp.csr_array((A if directed else A | A.T).astype(float))
    return Network.from_adjacency(graph, transition=draw(st.sampled_from(transitions)))


@settings(max_examples=60, deadline=None)
@given(connected_networks())
def test_dense_linear_algebra_agrees(network):
    B = network.matrix().toarray()
    moduli = np.sort(np.abs(np.linalg.eigvals(B)))[::-1]
    pi = spectral.stationary(network)
    assert spectral.second_eigenvalue(network) == pytest.approx(moduli[1], abs=1e-6)
    np.testing.assert_allclose(pi @ B, pi, atol=1e-12)
    assert pi.sum() == pytest.approx(1)
    assert pi.min() > 0
    # B converges exactly if it has no period.
    settled = np.linalg.matrix_power(B, 5000)
    assert (spectral.period(network) == 1) == np.allclose(settled, pi, atol=1e-4)


@settings(max_examples=100, deadline=None)
@given(connected_networks(), st.integers(0, 60), st.integers(0, 100_000))
def test_the_measured_error_of_push_sum_never_exceeds_the_bound(network, t, seed):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 50, network.n) ** rng.integers(0, 3)
    x = rng.standard_cauchy(network.n)
    Bt = np.linalg.matrix_power(network.matrix().toarray(), t)
    total, phi = (weights * x) @ Bt, weights @ Bt
    factor = spectral.push_sum_error_factor(network, t)
    if factor == math.inf:
        return
    scale = (weights * np.abs(x)).sum() / weights.sum()
    error = np.abs(total / phi - (weights * x).sum() / weights.sum())
    assert error.max() <= factor * scale + 1e-12 * scale


@settings(max_examples=40, deadline=None)
@given(connected_networks(), st.sampled_from([0.5, 0.01, 1e-6]))
def test_rounds_to_is_the_first_round_within_gamma(network, gamma):
    if spectral.contraction(network) == 1:  # periodic, or directed and mixed by no single round
        assert network.transition == "random-walk"
        with pytest.raises(ValueError, match="transition='lazy'"):
            spectral.rounds_to(network, gamma)
        return
    t = spectral.rounds_to(network, gamma)
    assert spectral.push_sum_error_factor(network, t) <= gamma
    assert spectral.push_sum_error_factor(network, t - 1) > gamma


def test_rounds_of_a_complete_graph_by_hand():
    # B = J/n mixes in one round; one node has nothing to mix.
    assert spectral.rounds_to(build("complete", 6, transition="max-degree")) == 1
    assert spectral.rounds_to(build("ring", 1)) == 0
    assert spectral.push_sum_error_factor(build("ring", 1), 0) == 0
    # eps = 2^-t * 2 for two lazy nodes would need beta = 1/2; theirs is 0.
    assert spectral.second_eigenvalue(build("complete", 2)) == pytest.approx(0)


def test_the_randomised_form_waits_for_the_rarely_drawn():
    star, ring = build("star", 100), build("ring", 100)
    # A leaf is drawn once in 99 rounds, so all 99 are after 99 ln(99) on average: 455 rounds.
    assert spectral.randomised_rounds(star) > 455 > 10 * spectral.rounds_to(star)
    assert spectral.randomised_rounds(ring) == spectral.RANDOMISED_FACTOR * spectral.rounds_to(ring)


@pytest.mark.parametrize(("name", "n", "p"), [("ring", 6, 2), ("ring", 7, 1), ("hypercube", 8, 2), ("star", 5, 2)])
def test_the_period_of_the_random_walk(name, n, p):
    assert spectral.period(build(name, n, transition="random-walk")) == p
    assert spectral.period(build(name, n, transition="lazy")) == 1


@pytest.mark.parametrize("p", [3, 5])
def test_a_directed_cycle_has_its_length_as_period(p):
    cycle = build(nx.cycle_graph(p, create_using=nx.DiGraph), p, transition="random-walk")
    assert spectral.period(cycle) == p
    assert spectral.second_eigenvalue(cycle) == 1
    assert spectral.tau_mix(cycle) == math.inf
    with pytest.raises(ValueError, match=rf"period {p}.*transition='lazy'"):
        spectral.check_diffusion(cycle)


def test_a_bipartite_graph_is_called_so():
    with pytest.raises(ValueError, match=r"period 2 \(it is bipartite.*transition='lazy'"):
        spectral.check_diffusion(build("grid", 12, transition="random-walk"))
    spectral.check_diffusion(build("grid", 12))


def test_an_unconnected_graph_names_the_nodes_cut_off():
    network = build(nx.disjoint_union(nx.path_graph(7), nx.path_graph(3)), 10)
    with pytest.raises(
        ValueError, match=r"node 7 \(and 2 more: 8, 9\) cannot be reached from node 0; its 2 components.*7, 3 .*'ring'"
    ):
        spectral.check_connected(network)
    with pytest.raises(ValueError, match="node 7"):
        spectral.rounds_to(network)


def test_a_directed_graph_says_which_way_is_missing():
    no_way_back = build(nx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 3)]), 4)
    with pytest.raises(ValueError, match="not strongly connected: node 3 cannot reach node 0"):
        spectral.check_connected(no_way_back)
    no_way_there = build(nx.DiGraph([(0, 1), (1, 2), (2, 0), (3, 2)]), 4)
    with pytest.raises(ValueError, match="node 3 cannot be reached from node 0"):
        spectral.check_connected(no_way_there)


@settings(max_examples=40, deadline=None)
@given(connected_networks())
def test_the_diameter_is_the_longest_shortest_path(network):
    graph = nx.from_scipy_sparse_array(network.adjacency(), create_using=nx.DiGraph)
    exact = nx.diameter(graph)
    assert spectral.diameter(network) == exact
    assert spectral.diameter_bound(network) == exact
    assert exact <= swept_bound(network) <= 2 * exact


@pytest.mark.parametrize(
    ("name", "n", "d"),
    [("ring", 301, 150), ("line", 200, 199), ("complete", 130, 1), ("torus:20x30", 600, 25), ("hypercube", 512, 9)],
)
def test_known_diameters(name, n, d):
    assert spectral.diameter(build(name, n)) == d


def test_above_four_thousand_nodes_the_diameter_is_bounded():
    ring = build("ring", 4002)
    with pytest.raises(spectral.TooLargeError, match="diameter_bound"):
        spectral.diameter(ring)
    assert 2001 <= spectral.diameter_bound(ring) <= 4002
    assert spectral.diameter_bound(build("line", 5001)) == 5000


def test_above_a_hundred_thousand_nodes_nothing_costly_is_computed():
    network = build("exponential", 100_001)
    for measure in (spectral.second_eigenvalue, spectral.contraction, spectral.tau_mix, spectral.rounds_to):
        with pytest.raises(spectral.TooLargeError, match="100,001"):
            measure(network)
    found = spectral.summary(network)
    assert found["connected"] is True
    assert found["diameter_exact"] is False
    assert [found[key] for key in ("spectral_gap", "tau_mix", "rounds_diffusion", "rounds_randomised")] == [None] * 4


def test_the_summary_of_a_ring():
    found = spectral.summary(build("ring", 8))
    gap = (1 - math.cos(2 * math.pi / 8)) / 2
    assert found["edges"] == 8
    assert (found["degree_min"], found["degree_mean"], found["degree_max"]) == (2, 2.0, 2)
    assert (found["diameter"], found["diameter_exact"], found["period"]) == (4, True, 1)
    assert found["spectral_gap"] == pytest.approx(gap)
    assert found["rounds_diffusion"] == math.ceil(math.log(0.01 / 2.01 / 8) / math.log(1 - gap))


def test_the_summary_of_an_unconnected_graph():
    found = spectral.summary(Network.from_adjacency(sp.csr_array((3, 3))))
    assert found["connected"] is False
    assert found["period"] is found["diameter"] is found["tau_mix"] is found["rounds_diffusion"] is None


@pytest.mark.parametrize("gamma", [0, -1, math.nan])
def test_gamma_must_be_positive(gamma):
    with pytest.raises(ValueError, match="means one per cent"):
        spectral.rounds_to(build("ring", 4), gamma)


@settings(max_examples=60, deadline=None)
@given(connected_networks())
def test_contraction_is_one_where_a_round_mixes_nothing(network):
    root = np.sqrt(spectral.stationary(network))
    S = root[:, None] * network.matrix().toarray() / root
    second = np.linalg.svd(S, compute_uv=False)[1]
    found = spectral.contraction(network)
    assert found == pytest.approx(second, abs=1e-9)
    assert (found == 1) == (second > 1 - 1e-9)
    assert found >= spectral.second_eigenvalue(network) - 1e-9


@pytest.mark.parametrize("name", ["tree", "grid", "scale-free", "k-out", "line"])
def test_the_sparse_solvers_agree_with_the_dense_one(name, monkeypatch):
    network = build(name, 420, seed=5)
    measures = (spectral.contraction, spectral.second_eigenvalue)
    sparse = [measure(network) for measure in measures]
    monkeypatch.setattr(eigen, "DENSE_MAX_NODES", 10_000)
    # 1e-7 is what the directed solver is asked for.
    assert sparse == pytest.approx([measure(network) for measure in measures], abs=1e-7)


def test_without_convergence_there_is_an_error(monkeypatch):
    monkeypatch.setattr(eigen, "_lanczos", lambda *_: None)
    with pytest.raises(spectral.TooLargeError, match="give the number of rounds"):
        spectral.contraction(build("ring", 400))
