"""Class weights and sample weights have one meaning, and C is LinearSVC's.

F(w) = lam/2 |w|^2 + sum_r s_r c_r hinge_r(w) / sum_r s_r c_r, with s_r the sample weight and c_r the class weight.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_sample_weight

from gadget_svm import GadgetSVC

PER_CLASS = {0: 0.3, 1: 2.5}
CLOSE = {"tol": 1e-9, "stopping": "gap", "random_state": 0, "record_every": 0}


@pytest.fixture(scope="module")
def noisy():
    return make_classification(200, 6, n_informative=4, flip_y=0.2, weights=[0.7], random_state=3)


def times_of(y):
    return np.where(y == 1, PER_CLASS[1], PER_CLASS[0])


def linear_svc(**options):
    return LinearSVC(loss="hinge", tol=1e-10, max_iter=10**6, **options)


@pytest.mark.parametrize("algorithm", ["auto", "gadget", "gadget-2ps", "asgd", "mom-dsvm"])
@pytest.mark.parametrize("sites", [False, True])
def test_a_class_weight_is_a_sample_weight_to_the_last_bit(noisy, algorithm, sites):
    X, y = noisy
    settings = {"algorithm": algorithm, "lam": 0.01, "max_iter": 15, "stopping": None, "random_state": 0}
    given = {"sites": np.arange(200) % 4} if sites else {}
    one = GadgetSVC(4, class_weight=PER_CLASS, **settings).fit(X, y, **given)
    other = GadgetSVC(4, **settings).fit(X, y, sample_weight=times_of(y), **given)
    np.testing.assert_array_equal(one.node_coef_, other.node_coef_)
    np.testing.assert_array_equal(one.node_intercept_, other.node_intercept_)
    assert one.history_[-1]["objective"] == other.history_[-1]["objective"]


def test_weights_of_both_kinds_multiply(noisy):
    X, y = noisy
    s = np.linspace(0.5, 2, 200)
    settings = {"lam": 0.01, "max_iter": 15, "stopping": None, "random_state": 0}
    one = GadgetSVC(4, class_weight=PER_CLASS, **settings).fit(X, y, sample_weight=s)
    other = GadgetSVC(4, **settings).fit(X, y, sample_weight=s * times_of(y))
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-12)


def test_a_class_of_weight_3_is_each_of_its_rows_three_times(noisy):
    X, y = noisy
    settings = {"lam": 0.01, "max_iter": 15, "stopping": None, "random_state": 0}
    three = np.repeat(np.arange(200), np.where(y == 1, 3, 1))
    one = GadgetSVC(4, class_weight={0: 1, 1: 3}, **settings).fit(X, y)
    other = GadgetSVC(4, **settings).fit(X[three], y[three])
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9)


def test_only_the_ratio_of_weights_counts_with_lam(noisy):
    X, y = noisy
    one = GadgetSVC(4, lam=0.01, class_weight={0: 1, 1: 4}, **CLOSE).fit(X, y)
    other = GadgetSVC(4, lam=0.01, class_weight={0: 0.25, 1: 1}, **CLOSE).fit(X, y)
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-3)


def test_batches_take_class_weights_the_same_way(noisy):
    X, y = noisy
    settings = {"lam": 0.01, "random_state": 0}
    one, other = GadgetSVC(4, class_weight=PER_CLASS, **settings), GadgetSVC(4, **settings)
    for part in (slice(0, 100), slice(100, 200)):
        one.partial_fit(X[part], y[part], classes=[0, 1])
        other.partial_fit(X[part], y[part], classes=[0, 1], sample_weight=times_of(y[part]))
    np.testing.assert_array_equal(one.node_coef_, other.node_coef_)


@pytest.mark.parametrize("class_weight", [None, PER_CLASS, "balanced"])
@pytest.mark.parametrize("weighted", [False, True])
def test_c_is_that_of_linear_svc(noisy, class_weight, weighted):
    """The same optimum of the same objective, with the intercept as a regularised constant feature."""
    X, y = noisy
    s = np.linspace(0.2, 3, 200) if weighted else np.ones(200)
    c = compute_sample_weight(class_weight, y) if not weighted or class_weight != "balanced" else None
    ours = GadgetSVC(4, C=0.05, class_weight=class_weight, **CLOSE).fit(X, y, sample_weight=s if weighted else None)
    theirs = linear_svc(C=0.05, class_weight=class_weight).fit(X, y, sample_weight=s)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    if c is not None:
        w = np.r_[theirs.coef_[0], theirs.intercept_]
        hinge = np.maximum(0, 1 - np.where(y == 1, 1, -1) * (X @ w[:-1] + w[-1]))
        wanted = 0.5 * w @ w + 0.05 * (s * c) @ hinge
        assert ours.history_[-1]["objective"] / ours.lam_ == pytest.approx(wanted, rel=1e-6)
        assert ours.lam_ == pytest.approx(1 / (0.05 * (s * c).sum()))
    assert ours.gap_bound_ <= 1e-9


def test_lam_with_weights_is_linear_svc_with_the_sum_of_weights(noisy):
    X, y = noisy
    ours = GadgetSVC(4, lam=0.02, class_weight=PER_CLASS, **CLOSE).fit(X, y)
    theirs = linear_svc(C=1 / (0.02 * times_of(y).sum()), class_weight=PER_CLASS).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)


def test_c_works_with_sparse_rows_shards_and_several_classes(noisy):
    X, _ = noisy
    y = np.arange(200) % 3
    parts = [(sp.csr_matrix(X[i::4]), y[i::4]) for i in range(4)]
    ours = GadgetSVC(C=0.05, **CLOSE).fit_shards(parts)
    theirs = linear_svc(C=0.05).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"C": 1.0, "lam": 0.1}, "both set the regularisation: give one of them"),
        ({"C": 0.0}, "C must be a positive number"),
        ({"C": "1"}, "C must be a positive number"),
        ({"C": 1e-90}, "C=1e-90 is out of the range"),
        ({"class_weight": {0: 0, 1: 1}}, "only one class of positive weight, 1"),
    ],
)
def test_wrong_settings_are_named(noisy, options, words):
    with pytest.raises(ValueError, match=words):
        GadgetSVC(4, **options).fit(*noisy)


def test_batches_refuse_c(noisy):
    with pytest.raises(ValueError, match="give partial_fit lam"):
        GadgetSVC(4, C=1.0).partial_fit(*noisy, classes=[0, 1])


def test_the_command_takes_c(tmp_path):
    import json

    from typer.testing import CliRunner

    from gadget_svm.cli.app import app

    (tmp_path / "rows.csv").write_text("a,b,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(40)))
    command = ["train", str(tmp_path / "rows.csv"), "--nodes", "2", "--C", "0.5", "--max-iter", "5"]
    result = CliRunner().invoke(app, [*command, "--stopping", "none", "--json"])
    assert result.exit_code == 0, result.output
    settings = json.loads(result.stdout)["parameters"]
    assert (settings["C"], settings["lam"]) == (0.5, pytest.approx(1 / (0.5 * 40)))
    refused = CliRunner().invoke(app, [*command, "--lam", "0.1"])
    assert refused.exit_code == 2
    assert "give one of them" in " ".join(refused.output.split())
