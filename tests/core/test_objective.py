"""The objective against its formula: F(w) = lam/2 |w|^2 + (1/N) sum_r c_r max(0, 1 - y_r <w, x_r>)."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from gadget_svm.core import rows
from gadget_svm.core.rows import BATCH, Objective
from gadget_svm.kernels import ThreadTeam


def by_formula(X, label, cost, times, lam, model):
    """One model, outputs x features, in plain numpy."""
    K = len(model)
    scores = X @ model.T
    total = 0.0
    for c in range(K):
        y = np.where(label == (1 if K == 1 else c), 1.0, -1.0)
        hinge = np.maximum(0, 1 - y * scores[:, c])
        total += lam / 2 * model[c] @ model[c] + (times * cost * hinge).sum() / times.sum()
    answer = (scores[:, 0] > 0).astype(int) if K == 1 else scores.argmax(axis=1)
    return total, (times * (answer != label)).sum() / times.sum()


def problem(n, d, K, m, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    label = rng.integers(0, max(K, 2), n).astype(np.int32)
    return X, label, rng.random(n) + 0.5, rng.integers(1, 4, n).astype(float), rng.normal(size=(m, K, d))


@given(
    n=st.integers(1, 40), d=st.integers(1, 6), K=st.sampled_from([1, 3, 5]), m=st.integers(1, 5),
    lam=st.floats(1e-6, 10), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_it_is_the_formula(n, d, K, m, lam, seed):
    X, label, cost, times, models = problem(n, d, K, m, seed)
    scores = Objective(sp.csr_matrix(X), label, cost, times, lam, K)(models)
    for i in range(m):
        value, error = by_formula(X, label, cost, times, lam, models[i])
        assert scores.objective[i] == pytest.approx(value, rel=1e-12)
        assert scores.error[i] == pytest.approx(error, abs=1e-12)


@pytest.mark.parametrize("n", [63, 64, 65, 197])
def test_chunks_of_rows_and_batches_of_models_leave_nothing_out(n, monkeypatch):
    monkeypatch.setattr(rows, "CHUNK", 63 * 30)  # of ten models of three outputs: 64 rows
    X, label, cost, times, models = problem(n, 4, 3, BATCH + 3, 1)
    scores = Objective(sp.csr_matrix(X), label, cost, times, 0.1, 3)(models)
    for i in (0, BATCH // 3, BATCH, BATCH + 2):
        value, error = by_formula(X, label, cost, times, 0.1, models[i])
        assert scores.objective[i] == pytest.approx(value, rel=1e-12)
        assert scores.error[i] == pytest.approx(error, abs=1e-12)


def test_threads_do_not_change_a_bit(monkeypatch):
    monkeypatch.setattr(rows, "CHUNK", 700)
    X, label, cost, times, models = problem(512, 6, 1, 7, 2)
    team = ThreadTeam(3, worth_sharing=0)
    one, other = (Objective(sp.csr_matrix(X), label, cost, times, 0.1, 1, t)(models) for t in (ThreadTeam(), team))
    team.close()
    np.testing.assert_array_equal(one.objective, other.objective)
    np.testing.assert_array_equal(one.error, other.error)


def test_at_zero_it_is_the_mean_cost_of_every_output():
    X, label, cost, times, _ = problem(30, 4, 3, 1, 3)
    F = Objective(sp.csr_matrix(X), label, cost, times, 0.5, 3)
    assert F(np.zeros((1, 3, 4))).objective[0] == pytest.approx(3 * np.average(cost, weights=times))
