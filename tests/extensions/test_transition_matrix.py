"""A transition matrix from outside the package: Sinkhorn's doubly stochastic B with more weight on reliable links."""

import numpy as np
import pytest

from gadget_svm import Gadget, GadgetSVC, average, build_network


def sinkhorn(reliability, rounds=500):
    """Scale rows and columns of a symmetric positive matrix until both sum to one."""
    B = np.asarray(reliability, dtype=float)
    for _ in range(rounds):
        B = B / B.sum(axis=1, keepdims=True)
        B = (B + B.T) / 2
    return B / B.sum(axis=1, keepdims=True)


RELIABILITY = np.array([[4, 3, 0, 1], [3, 4, 1, 0], [0, 1, 4, 2], [1, 0, 2, 4]])
B = sinkhorn(RELIABILITY)


def test_it_is_the_matrix_that_is_used(toy):
    model = GadgetSVC(topology=B, algorithm=Gadget(gossip="diffusion"), lam=0.05, max_iter=50, random_state=0)
    model.fit(toy.X, toy.y)
    np.testing.assert_allclose(model.network_.matrix().toarray(), B, rtol=1e-12)
    np.testing.assert_allclose(model.network_.matrix().sum(axis=0), 1, atol=1e-9)
    other = GadgetSVC(topology=B > 0, algorithm=Gadget(gossip="diffusion"), lam=0.05, max_iter=50, random_state=0)
    assert not np.array_equal(model.node_coef_, other.fit(toy.X, toy.y).node_coef_)


def test_it_averages_by_its_shares():
    x = np.array([1.0, 2.0, 3.0, 6.0])
    network = build_network(B, 4)
    np.testing.assert_allclose(average(x, network, "diffusion", 1), B.T @ x / B.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(average(x, network, "push-sum", 300), 3.0, rtol=1e-9)


def test_an_algorithm_without_a_matrix_refuses_it(toy):
    with pytest.raises(ValueError, match="the given B would be ignored"):
        GadgetSVC(topology=B, algorithm="pdmm").fit(toy.X, toy.y)
