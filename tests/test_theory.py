"""The theorems' formulas against measured runs, wherever a run could contradict them."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from gadget_svm import theory
from gadget_svm.algorithms import Gadget
from gadget_svm.data.partition import partition_evenly
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.estimator.problem import Problem
from gadget_svm.gossip import Diffusion, average
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation.engine import LocalRuntime
from gadget_svm.simulation.trainer import network_mean
from gadget_svm.topologies import build

LAM = 0.05


def toy(seed=0, rows=120, features=6):
    """Overlapping classes, every row of length one, so R = 1."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(rows) < 0.5, 1, -1)
    X = rng.normal(size=(rows, features)) + 0.5 * y[:, None]
    return sp.csr_matrix(X / np.linalg.norm(X, axis=1, keepdims=True)), y


def objective(X, y, w, lam=LAM):
    return 0.5 * lam * w @ w + np.maximum(0, 1 - y * (X @ w)).mean()


def optimum(X, y, lam=LAM):
    model = LinearSVC(loss="hinge", C=1 / (lam * len(y)), fit_intercept=False, tol=1e-10, max_iter=1_000_000)
    return objective(X, y, model.fit(X, y).coef_[0])


def iterates(X, y, T, seed, n_nodes=6):
    """w_i(1) .. w_i(T) of every node, unprojected, on a regular graph with a doubly stochastic B."""
    label = (y > 0).astype(np.int32)
    shares = partition_evenly(X, label, n_nodes, seed)
    problem = Problem(X, label, None, shares, list(range(n_nodes)), 1)
    network = build("ring", n_nodes, transition="metropolis")
    run = Gadget(gossip="diffusion", project=False).bind(network, LAM, theory.radius(LAM))
    runtime = LocalRuntime(run, make_blocks(problem, network, seed, 1, ThreadTeam()))
    out = np.empty((T, n_nodes, X.shape[1]))
    for t in range(T):
        out[t] = runtime.weights()[:, 0]
        runtime.advance(1)
    return out


def test_corrected_bound_holds_in_the_mean_over_runs():
    """algorithms.md's bound: with the network error measured, the averaged iterate's gap stays below it."""
    X, y = toy()
    best, T = optimum(X, y), 400
    gaps, bounds = [], []
    for seed in range(8):
        w = iterates(X, y, T, seed)
        mean = w.mean(axis=1)  # even shards: n_i/N is 1/m
        errors = np.linalg.norm(w - mean[:, None], axis=2).max(axis=1)
        c = 1.0 + LAM * np.linalg.norm(w, axis=2).max()  # |L| <= R = 1
        gaps.append(max(objective(X, y, w[:, i].mean(axis=0)) - best for i in range(w.shape[1])))
        bounds.append(theory.corrected_bound(c, LAM, T, errors))
    assert 0 < np.mean(gaps) <= np.mean(bounds)
    assert np.mean(bounds) < theory.largest_gap(LAM, 1.0), "a bound that could not fail would prove nothing"


def test_corrected_bound_tightens_with_T():
    """The first term falls like ln(T)/T; without disagreement nothing else is left."""
    bounds = [theory.corrected_bound(1.0, LAM, T, np.zeros(T)) for T in (10, 100, 1000)]
    assert bounds[0] > bounds[1] > bounds[2]
    assert bounds[2] == pytest.approx((1 + np.log(1000)) / (2 * LAM * 1000))
    with pytest.raises(ValueError, match="10 numbers"):
        theory.corrected_bound(1.0, LAM, 10, np.zeros(9))


@given(lam=st.floats(1e-6, 10), R=st.floats(1e-3, 1e3), T=st.integers(1, 10**7), gamma=st.floats(0, 1))
def test_second_theorem_is_vacuous(lam, R, T, gamma):
    """As printed it exceeds every gap there can be: c is at least R, and the sub-gradient of the regulariser adds."""
    c = R + lam * theory.radius(lam)
    assert theory.printed_bound(c, lam, T, gamma, R) > theory.largest_gap(lam, R)


def test_second_theorem_on_adult_is_about_1350():
    """algorithms.md: "its first term 2c/sqrt(lambda) (about 1350 on Adult)"; a row of Adult has 14 ones."""
    lam, R = 3.07e-5, np.sqrt(14)
    first = theory.printed_bound(R, lam, 1, 0.0, R)
    assert first == pytest.approx(1350, rel=0.01)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), t=st.integers(0, 40), lam=st.floats(0.01, 1))
def test_first_theorem_where_nodes_agree(seed, t, lam):
    """Theorem 1 with epsilon = 0: two Push-Sums, for n_i w and for the loss vectors, leave at most this error."""
    rng = np.random.default_rng(seed)
    network = build("random-regular", 8, seed=seed)
    n = rng.integers(1, 20, size=8).astype(float)
    N, step = int(n.sum()), 5
    w = rng.normal(size=4)
    w *= theory.radius(lam) * rng.random() / np.linalg.norm(w)
    L = rng.normal(size=(8, 4))
    L *= (n / np.linalg.norm(L, axis=1))[:, None]  # n_i rows of length at most R = 1, summed
    weights = average(np.tile(w, (8, 1)), network, Diffusion(), t, weights=n)
    losses = average(L / n[:, None], network, Diffusion(), t, weights=n)
    alpha = theory.learning_rate(lam, step)
    node = (1 - lam * alpha) * weights + alpha * losses
    truth = (1 - lam * alpha) * w + alpha * L.sum(axis=0) / N
    measured = np.linalg.norm(node - truth, axis=1).max()
    error = theory.push_sum_error_bound(network, t, np.ones(8))
    if np.isfinite(error):
        bound = theory.network_error_bound(lam, step, 0.0, error, error, 1.0, N)
        assert measured <= bound + 1e-12


def test_loss_vector_is_not_lipschitz():
    """Why Theorem 1 is not claimed for epsilon > 0: at a margin of 1 the loss vector jumps, however near w is."""
    x, near = np.array([1.0]), 1e-9
    loss_vector = [x if w @ x < 1 else 0 * x for w in (np.array([1 - near]), np.array([1 + near]))]
    assert np.linalg.norm(loss_vector[0] - loss_vector[1]) > 1.0 * 2 * near


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["ring", "star", "line", "complete", "scale-free"]),
    t=st.integers(0, 60),
)
def test_push_sum_error_bound_holds(seed, name, t):
    """Lemma 2, with the constant worked out: no node's estimate is farther from the weighted mean than this."""
    rng = np.random.default_rng(seed)
    network = build(name, int(rng.integers(3, 12)), seed=seed)
    n, x = rng.integers(1, 9, size=network.n).astype(float), rng.normal(size=(network.n, 3))
    estimates = average(x, network, Diffusion(), t, weights=n)
    error = np.linalg.norm(estimates - (n @ x) / n.sum(), axis=1).max()
    assert error <= theory.push_sum_error_bound(network, t, x, n) + 1e-12


def test_two_nodes_mix_in_one_lazy_round():
    """tau_mix of the lazy walk on two nodes is 1: the second eigenvalue is 0."""
    assert theory.tau_mix(build("complete", 2)) == pytest.approx(1.0)


def test_papers_stopping_rule_waits_1e8_iterations_on_adult():
    """algorithms.md: "so about 1e8 iterations on Adult"."""
    assert theory.iterations_until_still(3.07e-5, np.sqrt(14)) == pytest.approx(1.2e8, rel=0.05)


def test_network_mean_is_weighted_by_rows():
    """The paper's w is sum_i n_i w_i / N."""
    models = np.array([[[0.0]], [[4.0]]])
    assert network_mean(models, np.array([3.0, 1.0])) == pytest.approx(1.0)
