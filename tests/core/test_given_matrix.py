"""A transition matrix B that the user gives: used as it is, or refused."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from gadget_svm import Gadget, GadgetSVC, average, build_network
from gadget_svm.core.network import Network
from gadget_svm.gossip import Diffusion, PushSum, RunningSum
from gadget_svm.spectral import second_eigenvalue
from gadget_svm.spectral.eigen import stationary

QUICK = {"max_iter": 20, "stopping": None, "lam": 0.05, "random_state": 0}
B = np.array([[0.5, 0.3, 0.2, 0], [0.1, 0.6, 0, 0.3], [0.25, 0, 0.5, 0.25], [0, 0.1, 0.2, 0.7]])  # not reversible
LABELS = ["a", "b", "c", "d"]
WEIGHTED = nx.DiGraph([(LABELS[i], LABELS[j], {"weight": B[i, j]}) for i, j in np.argwhere(B)[::-1]])
FORMS = {
    "array": B,
    "sparse": sp.csr_array(B),
    "networkx": WEIGHTED,
    "network": Network.from_matrix(B),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_given_matrix_is_the_one_used(toy, form):
    network = build_network(FORMS[form], 4)
    np.testing.assert_allclose(network.matrix().toarray(), B, rtol=1e-15)
    assert not network.directed
    values = np.array([1.0, -2.0, 5.0, 0.5])
    expected = (values @ B) / (np.ones(4) @ B)  # one round of diffusion
    np.testing.assert_allclose(average(values, network, Diffusion(), 1), expected, rtol=1e-14)
    model = GadgetSVC(topology=FORMS[form], algorithm=Gadget(gossip="diffusion"), **QUICK).fit(toy.X, toy.y)
    np.testing.assert_array_equal(model.network_.matrix().toarray(), network.matrix().toarray())
    other = GadgetSVC(topology=B != 0, algorithm=Gadget(gossip="diffusion"), **QUICK).fit(toy.X, toy.y)
    assert not np.array_equal(model.node_coef_, other.node_coef_)


def test_networkx_weights_keep_the_labels_and_self_loops_are_what_stays():
    network = build_network(WEIGHTED, 4)
    assert network.labels == tuple(LABELS)
    np.testing.assert_allclose(network.self_share, np.diag(B), rtol=1e-15)
    symmetric = nx.Graph([(0, 1, {"weight": 0.25}), (1, 2, {"weight": 0.25})])
    symmetric.add_weighted_edges_from([(0, 0, 0.75), (1, 1, 0.5), (2, 2, 0.75)])
    np.testing.assert_array_equal(
        build_network(symmetric, 3).matrix().toarray(), [[0.75, 0.25, 0], [0.25, 0.5, 0.25], [0, 0.25, 0.75]]
    )


@pytest.mark.parametrize("protocol", [PushSum(), Diffusion(), RunningSum()])
def test_the_average_is_right_without_double_stochasticity(protocol):
    values, weights = np.array([1.0, -2.0, 5.0, 0.5]), np.array([3.0, 1.0, 2.0, 1.0])
    found = average(values, Network.from_matrix(B), protocol, 400, weights=weights)
    np.testing.assert_allclose(found, np.average(values, weights=weights), rtol=1e-9)


def test_the_randomised_form_draws_by_the_matrix():
    network = Network.from_matrix(B)
    np.testing.assert_allclose(network.chances, B[~np.eye(4, dtype=bool) & (B > 0)])
    ends = network.draw_table[network.indptr[1:] - 1]  # a draw above a row's last entry sends nothing
    np.testing.assert_allclose(1 - ends, np.diag(B))


def test_rows_are_scaled_to_one_and_rounding_is_forgiven():
    network = Network.from_matrix(B.astype(np.float32))
    np.testing.assert_allclose(network.matrix().sum(axis=1), 1, rtol=1e-15)


def test_eigenvalues_of_a_matrix_that_is_not_reversible():
    network = Network.from_matrix(B)
    moduli = np.sort(np.abs(np.linalg.eigvals(B)))
    assert second_eigenvalue(network) == pytest.approx(moduli[-2], rel=1e-9)
    np.testing.assert_allclose(stationary(network) @ B, stationary(network), rtol=1e-9)


@pytest.mark.parametrize(
    ("topology", "sentence"),
    [
        (2.0 * (B > 0), r"rows, b_ii included, sum to one: row 0 sums to 6.* give A != 0"),
        (nx.Graph([("x", "y", {"weight": 7.0}), ("y", "z")]), r"row 0 sums to 7.*networkx\.Graph\(graph\.edges\)"),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), "negative entry, -0.5"),
        (np.array([[0.5, np.nan], [0.5, 0.5]]), "row 0 sums to nan"),
    ],
    ids=["weights", "networkx weights", "negative", "nan"],
)
def test_weights_that_are_no_transition_matrix_are_refused(toy, topology, sentence):
    with pytest.raises(ValueError, match=sentence):
        GadgetSVC(topology=topology, algorithm="gadget", **QUICK).fit(toy.X, toy.y)


@pytest.mark.parametrize("given", [B, Network.from_matrix(B)], ids=["array", "network"])
def test_algorithms_without_a_matrix_refuse_one(toy, given):
    for name, says in (("pdmm", "PDMM"), ("mom-dsvm", "MoM-DSVM")):
        with pytest.raises(ValueError, match=f"{says} uses the edges .* the given B would be ignored"):
            GadgetSVC(topology=given, algorithm=name, **QUICK).fit(toy.X, toy.y)
    assert isinstance(GadgetSVC(topology=given, **QUICK).fit(toy.X, toy.y).algorithm_, Gadget)


def test_two_matrices_at_once_are_refused(toy):
    with pytest.raises(ValueError, match="transition='metropolis' asks for another"):
        GadgetSVC(topology=B, algorithm=Gadget(transition="metropolis"), **QUICK).fit(toy.X, toy.y)
    with pytest.raises(ValueError, match="transition='random-walk' asks for another"):
        build_network(B, 4, transition="random-walk")
