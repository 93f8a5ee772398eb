"""Rows that change over time: what `window` forgets, and what is left as it was."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from gadget_svm import Gadget, GadgetSVC
from gadget_svm.algorithms import Auto
from gadget_svm.algorithms.gadget import UNLIMITED, project_and_average


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def after_drift(algorithm, X, y, **options):
    """Ten passes, then six over the same rows with flipped labels: the scores of both."""
    model = GadgetSVC(10, algorithm=algorithm, lam=1e-3, random_state=0, record_every=0, **options)
    for _ in range(10):
        model.partial_fit(X, y, classes=[0, 1])
    before = model.score(X, y)
    for _ in range(6):
        model.partial_fit(X, 1 - y)
    return before, model.score(X, 1 - y), model


@pytest.mark.parametrize("algorithm", [Auto, Gadget])
def test_a_window_follows_flipped_labels(cancer, algorithm):
    still, stuck, _ = after_drift(algorithm(), *cancer)
    assert stuck < 0.2  # without a window the old rows go on counting
    before, after, model = after_drift(algorithm(window=120), *cancer)
    assert before > still - 0.02
    assert after > 0.95
    assert min(model.node(i).score(cancer[0], 1 - cancer[1]) for i in range(10)) > 0.9


def test_a_model_fitted_to_all_rows_follows_too(cancer):
    X, y = cancer
    model = GadgetSVC(10, algorithm=Auto(window=60), lam=1e-3, random_state=0).fit(X, y)
    for _ in range(6):
        model.partial_fit(X, 1 - y)
    assert model.score(X, 1 - y) > 0.9


def test_blocks_and_threads_agree_with_a_window(cancer):
    algorithm = Gadget(window=25, local_steps=3, batch_size=2)
    models = [
        after_drift(algorithm, *cancer, **options)[2]
        for options in ({}, {"engine_options": {"blocks": 3}}, {"n_jobs": 1})
    ]
    for other in models[1:]:
        np.testing.assert_array_equal(models[0].node_coef_, other.node_coef_)


@pytest.mark.parametrize("held", [0, 3, 9])
def test_the_average_is_exponential_beyond_the_window(held):
    """Also where the sum holds more iterates than the window has room for."""
    rng, most = np.random.default_rng(0), 4
    w_sum, iterates = held * np.ones((1, 1, 2)), np.array([held])
    mean = np.ones(2)
    for t in range(12):
        w = rng.normal(size=(1, 1, 2))
        project_and_average(0, 1, np.array([True]), w, w_sum, iterates, np.inf, True, most)
        part = 1 / min(held + t + 1, most)
        mean = (1 - part) * mean + part * w[0, 0]
        np.testing.assert_allclose(w_sum[0, 0] / iterates[0], mean, rtol=1e-12)
    assert iterates[0] == most


def test_a_window_no_run_reaches_changes_no_bit(toy):
    ends = [
        GadgetSVC(4, algorithm=Gadget(window=window), max_iter=200, stopping=None, random_state=0).fit(toy.X, toy.y)
        for window in (None, 10**6, UNLIMITED)
    ]
    for other in ends[1:]:
        np.testing.assert_array_equal(ends[0].node_coef_, other.node_coef_)


@pytest.mark.parametrize("window", [0, -3, 1.5, "all"])
def test_a_window_is_a_whole_number(toy, window):
    with pytest.raises(ValueError, match="window must be a whole number of at least 1"):
        GadgetSVC(4, algorithm=Gadget(window=window)).fit(toy.X, toy.y)
