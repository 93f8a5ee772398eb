"""Private gradient descent: what a row can change is bounded, noise has the planned size, and models are good."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_classification
from sklearn.svm import LinearSVC

pytest.importorskip("dp_accounting")
from gadget_svm import DifferentialPrivacy, GadgetSVC, load_dataset
from gadget_svm.algorithms import PrivateGradient
from gadget_svm.algorithms.private_gradient import mean_slopes
from gadget_svm.core.rows import Rows, Shares

SEEDED = DifferentialPrivacy(2.0, noise="seeded")


def slopes_of(X, label, w, cost=None):
    n = X.shape[0]
    shares = Shares(np.arange(n, dtype=np.int64), np.array([0, n], dtype=np.int64), np.empty(0))
    rows = Rows.of(sp.csr_matrix(X), np.asarray(label, np.int32), np.ones(n) if cost is None else cost, shares)
    slopes = np.empty((1, *w.shape))
    mean_slopes(0, 1, np.ones(1, dtype=bool), w[None].copy(), rows, slopes)
    return slopes[0]


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("seed", range(10))
def test_a_replaced_row_moves_the_mean_slope_by_at_most_the_sensitivity(outputs, seed):
    rng = np.random.default_rng(seed)
    n, d = 12, 5
    X = rng.standard_normal((n, d)) * rng.choice([0.1, 1.0, 100.0], size=(n, 1))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))  # clip 1
    label = rng.integers(0, max(2, outputs), n)
    cost, w = rng.choice([0.0, 0.5, 1.0, 50.0], n), rng.standard_normal((outputs, d)) * rng.choice([0.1, 10.0])
    before = slopes_of(X, label, w, cost)
    X[3] = rng.standard_normal(d)
    X[3] /= np.linalg.norm(X[3])
    label[3], cost[3] = rng.integers(0, max(2, outputs)), 1000.0
    assert np.linalg.norm(slopes_of(X, label, w, cost) - before) <= 2.0 / n + 1e-12


def test_slopes_are_those_of_the_smoothed_hinge():
    rng = np.random.default_rng(0)
    X, label, w = rng.standard_normal((30, 4)) / 4, rng.integers(0, 2, 30), rng.standard_normal((1, 4))

    def loss(w):
        m = np.where(label == 1, 1.0, -1.0) * (X @ w[0])
        return np.where(m > 1, 0, np.where(m > 0, (1 - m) ** 2 / 2, 0.5 - m)).mean()

    step, found = 1e-6, slopes_of(X, label, w)
    numeric = [(loss(w + step * e) - loss(w - step * e)) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(found[0], numeric, atol=1e-6)


@pytest.mark.parametrize("noise", ["secret", "seeded"])
def test_noise_has_the_planned_deviation(noise):
    """Rows that are all zero have no slopes: what a node adds to its model in the first round is noise alone."""
    X, y = sp.csr_matrix((400, 300)), np.arange(400) % 2
    privacy = DifferentialPrivacy(1.0, noise=noise)
    model = GadgetSVC(
        2, topology="complete", privacy=privacy, fit_intercept=False, max_iter=1, stopping=None, random_state=3,
        algorithm=PrivateGradient(gossip_rounds=1),
    ).fit(X, y)  # fmt: skip
    plan = privacy.plan(2, 400, 300)
    each = plan.step_size * plan.noise_multiplier * 2.0 / 200  # of a node's own noise
    found = model.coef_[0].std()  # of the mean of two
    assert found == pytest.approx(each / np.sqrt(2), rel=0.2)


def test_a_step_size_that_is_given_replaces_the_planned_one():
    X, y = sp.csr_matrix((400, 300)), np.arange(400) % 2

    def first_step(step_size):
        return GadgetSVC(
            2, topology="complete", privacy=SEEDED, fit_intercept=False, max_iter=1, stopping=None, random_state=3,
            algorithm=PrivateGradient(gossip_rounds=1, step_size=step_size),
        ).fit(X, y).coef_  # fmt: skip

    planned = SEEDED.plan(2, 400, 300).step_size
    np.testing.assert_allclose(first_step(planned), first_step(None))
    np.testing.assert_allclose(first_step(2 * planned), 2 * first_step(None))
    with pytest.raises(ValueError, match="step_size must be a positive number"):
        first_step(0.0)


def test_seeded_noise_repeats_and_secret_noise_does_not():
    X, y = make_classification(300, 6, random_state=0)

    def fit(noise):
        return GadgetSVC(3, privacy=DifferentialPrivacy(1.0, noise=noise), random_state=0).fit(X, y).coef_

    assert np.array_equal(fit("seeded"), fit("seeded"))
    assert not np.array_equal(fit("secret"), fit("secret"))


def test_every_split_over_blocks_gives_the_same_bits():
    X, y = make_classification(300, 6, random_state=0)
    models = [
        GadgetSVC(7, privacy=SEEDED, random_state=0, engine_options={"blocks": blocks}, n_jobs=jobs).fit(X, y)
        for blocks, jobs in ((1, 1), (3, 1), (1, 2))
    ]
    assert all(np.array_equal(models[0].node_coef_, model.node_coef_) for model in models[1:])


@pytest.mark.parametrize("faults", [None, "loss=0.2", {"loss": 0.1, "delay": 2}])
def test_nodes_are_near_the_pooled_model(faults):
    d = load_dataset("digits")
    X, y = np.vstack([d.X.toarray()] * 6), np.concatenate([d.y == 0] * 6)  # the rows of a larger study
    pooled = LinearSVC(loss="hinge", C=1.0).fit(X, y).score(d.X_test, d.y_test == 0)
    privacy = DifferentialPrivacy(4.0, noise="seeded")
    model = GadgetSVC(5, privacy=privacy, random_state=0, faults=faults).fit(X, y)
    worst = min(model.node(i).score(d.X_test, d.y_test == 0) for i in range(5))
    assert worst > pooled - 0.04
    assert model.converged_
    assert model.stopping_ == "rounds"


def test_label_skewed_sites_agree():
    X, y = load_digits(return_X_y=True)
    X, y = np.vstack([X / 16] * 6), np.concatenate([y < 5] * 6)
    model = GadgetSVC(privacy=DifferentialPrivacy(8.0, noise="seeded"), random_state=0).fit(
        X, y, sites=np.where(y, "a", "b")
    )
    even = GadgetSVC(2, privacy=DifferentialPrivacy(8.0, noise="seeded"), random_state=0).fit(X, y)
    assert min(model.node(site).score(X, y) for site in "ab") > even.score(X, y) - 0.02


def test_all_outputs_share_one_budget():
    X, y = load_digits(return_X_y=True)
    model = GadgetSVC(3, privacy=SEEDED, random_state=0).fit(X / 16, y)
    assert model.privacy_["epsilon"] == pytest.approx(2.0)
    assert model.coef_.shape == (10, 64)


def test_robust_mixing_of_private_nodes():
    X, y = make_classification(6000, 8, class_sep=2.0, flip_y=0, random_state=0)
    privacy = DifferentialPrivacy(4.0, noise="seeded")

    def worst(algorithm):
        model = GadgetSVC(7, topology="complete", algorithm=algorithm, privacy=privacy, random_state=0,
                          faults={"constant": [0]}).fit(X, y)  # fmt: skip
        return min(model.node(i).score(X, y) for i in range(1, 7))

    assert worst(PrivateGradient(robust="trim", liars=1)) > 0.95
    assert worst(PrivateGradient()) < 0.8
