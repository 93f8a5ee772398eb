"""One against one beside one against the rest: the same problems as scikit-learn's, in every algorithm and engine."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_classification
from sklearn.multiclass import OneVsOneClassifier
from sklearn.svm import LinearSVC
from typer.testing import CliRunner

from gadget_svm import GadgetSVC, Pdmm, load_model, save_model
from gadget_svm.cli.app import app
from gadget_svm.core.rows import Objective
from gadget_svm.estimator.problem import outputs_of
from gadget_svm.estimator.validation import check_memory

QUICK = {"multi_class": "ovo", "random_state": 0, "record_every": 0}


@pytest.fixture(scope="module")
def four():
    return make_classification(240, 6, n_informative=5, n_redundant=0, n_classes=4, random_state=3)


def one_vs_one(C, **options):
    return OneVsOneClassifier(LinearSVC(loss="hinge", C=C, tol=1e-10, max_iter=10**6, **options))


@pytest.fixture(scope="module")
def theirs(four):
    return one_vs_one(0.05).fit(*four)


@pytest.fixture(scope="module")
def ours(four):
    return GadgetSVC(4, C=0.05, tol=1e-7, stopping="gap", **QUICK).fit(*four)


def stacked(classifier):
    return np.vstack([np.r_[e.coef_[0], e.intercept_] for e in classifier.estimators_])


def test_it_is_the_problem_of_one_vs_one_classifier(four, ours, theirs):
    X, y = four
    np.testing.assert_allclose(np.hstack([ours.coef_, ours.intercept_[:, None]]), stacked(theirs), atol=1e-4)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-3)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.coef_.shape == (6, 6)
    assert ours.node_coef_.shape == (4, 6, 6)
    assert ours.decision_function(X).shape == (240, 4)
    assert ours.history_[-1]["error"] == pytest.approx(1 - ours.score(X, y))


def test_every_output_has_its_bound(four, ours):
    X, y = four
    assert ours.gap_bound_ <= 1e-7
    assert ours.output_gap_bounds_.shape == (6,)
    assert (ours.output_gap_bounds_ >= 0).all()
    rough = GadgetSVC(4, C=0.05, tol=0.03, stopping="gap", **QUICK).fit(X, y)
    best = np.hstack([ours.coef_, ours.intercept_[:, None]])
    for c, (a, b) in enumerate((i, j) for i in range(4) for j in range(i + 1, 4)):
        seen = (y == a) | (y == b)

        def objective(w, seen=seen, b=b):
            return 0.5 * w @ w + 0.05 * np.maximum(0, 1 - np.where(y == b, 1, -1) * (X @ w[:-1] + w[-1]))[seen].sum()

        w = np.r_[rough.coef_[c], rough.intercept_[c]]
        assert objective(w) / objective(best[c]) - 1 <= rough.output_gap_bounds_[c] + 1e-6


@pytest.mark.parametrize(
    ("algorithm", "iterations", "close"),
    [("mom-dsvm", 300, 0.001), ("asgd", 400, 0.02), ("gadget", 20_000, 0.1), ("gadget-2ps", 6_000, 0.3)],
)
def test_every_algorithm_learns_pairs(four, algorithm, iterations, close):
    X, y = four
    model = GadgetSVC(4, lam=0.05, algorithm=algorithm, max_iter=iterations, stopping=None, **QUICK).fit(X, y)
    best = GadgetSVC(4, lam=0.05, tol=1e-6, stopping="gap", **QUICK).fit(X, y)
    assert model.history_[-1]["objective"] < (1 + close) * best.history_[-1]["objective"]


def test_a_row_of_another_class_does_not_move_a_pair(four):
    X, y = four
    other = X.copy()
    other[y == 3] *= -1.0  # as long as before: the unit of the intercept depends on the length of all rows
    settings = {"lam": 0.05, "algorithm": Pdmm(penalty=1.0), "max_iter": 20, "stopping": None} | QUICK
    sites = np.arange(240) % 4
    one, two = (GadgetSVC(**settings).fit(rows, y, sites=sites) for rows in (X, other))
    np.testing.assert_array_equal(one.node_coef_[:, [0, 1, 3]], two.node_coef_[:, [0, 1, 3]])  # without class 3
    assert (one.node_coef_[:, [2, 4, 5]] != two.node_coef_[:, [2, 4, 5]]).any(axis=2).all()


@pytest.mark.parametrize("algorithm", ["auto", "gadget", "mom-dsvm"])
def test_blocks_threads_and_sparse_rows_give_the_same_bits(four, algorithm):
    X, y = four
    settings = {"algorithm": algorithm, "lam": 0.01, "max_iter": 12, "stopping": None} | QUICK
    one = GadgetSVC(6, n_jobs=1, **settings).fit(X, y)
    other = GadgetSVC(6, n_jobs=2, engine_options={"blocks": 3}, **settings).fit(sp.csr_matrix(X), y)
    np.testing.assert_array_equal(one.node_coef_, other.node_coef_)


def test_two_classes_are_one_output_either_way(four):
    X, y = four
    settings = {"lam": 0.01, "max_iter": 12, "stopping": None, "random_state": 0}
    one, two = (GadgetSVC(4, multi_class=kind, **settings).fit(X, y > 1) for kind in ("ovr", "ovo"))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert two.decision_function(X).shape == (240,)


def test_nodes_and_model_files_keep_it(four, ours, tmp_path):
    X, _ = four
    read = load_model(save_model(ours, tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(read.decision_function(X), ours.decision_function(X))
    np.testing.assert_array_equal(read.node(2).predict(X), ours.predict(X))
    assert ours.set_params(multi_class="ovr").predict(X).shape == (240,)  # the fitted model is as it was
    ours.set_params(multi_class="ovo")


def test_batches_learn_pairs(four):
    X, y = four
    model = GadgetSVC(4, lam=0.01, multi_class="ovo", random_state=0)
    for _ in range(20):
        model.partial_fit(X, y, classes=np.arange(4))
    assert model.coef_.shape == (6, 6)
    assert model.score(X, y) > one_vs_one(1 / (0.01 * 240)).fit(X, y).score(X, y) - 0.1


def test_the_objective_counts_votes_as_scikit_learn_does(four):
    X, y = four
    (_, pairs), rng = outputs_of(4, "ovo"), np.random.default_rng(0)
    model = GadgetSVC(2, **QUICK, max_iter=1, stopping=None, fit_intercept=False).fit(X, y)
    models = rng.normal(size=(5, 6, 6))
    ones = np.ones(240)
    scores = Objective(sp.csr_matrix(X), y.astype(np.int32), ones, ones, 0.0, 6, pairs=pairs)(models)
    for k in range(5):
        model.coef_ = models[k]
        assert scores.error[k] == pytest.approx(1 - model.score(X, y))
        hinge = sum(
            np.maximum(0, 1 - np.where(y == a, 1, -1) * (X @ models[k, c]))[(y == a) | (y == b)].sum()
            for c, (a, b) in enumerate(pairs.tolist())
        )
        assert scores.objective[k] == pytest.approx(hinge / 240)


def test_overlapping_classes_warn_and_one_against_one_helps():
    X, y = make_classification(1500, 40, n_informative=20, n_classes=10, random_state=0)
    with pytest.warns(UserWarning, match="every output answers 'rest'.*use multi_class='ovo'"):
        rest = GadgetSVC(random_state=0, record_every=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pairs = GadgetSVC(lam=1e-2, **QUICK).fit(X, y)
    assert rest.score(X, y) < 0.2
    assert pairs.score(X, y) > 0.35


def test_classes_that_can_be_told_apart_do_not_warn():
    X, y = load_digits(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GadgetSVC(lam=1e-3, random_state=0, record_every=0).fit(X / 16, y)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="multi_class='ovr'"):
        check_memory(ends=40, nodes=10, outputs=500_000, features=1_000_000, rows=10_000)
    check_memory(ends=40, nodes=10, outputs=45, features=1000, rows=10_000)


def test_an_unknown_name_says_which_is_nearest(four):
    with pytest.raises(ValueError, match="Did you mean 'ovo'"):
        GadgetSVC(4, multi_class="ovoo").fit(*four)


def test_the_command_takes_it(tmp_path):
    X, y = make_classification(60, 4, n_informative=4, n_redundant=0, n_classes=4, n_clusters_per_class=1)
    np.savetxt(tmp_path / "rows.csv", np.c_[X, y], delimiter=",", header="a,b,c,d,label", comments="", fmt="%g")
    command = ["train", str(tmp_path / "rows.csv"), "--multi-class", "ovo", "--nodes", "2", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    assert load_model(tmp_path / "model.safetensors").coef_.shape == (6, 4)
    refused = CliRunner().invoke(app, [*command, "--multi-class", "ovoo"])
    assert (refused.exit_code, "is not one of 'ovr', 'ovo'" in " ".join(refused.output.split())) == (2, True)
