"""Every row of a site that learns with exact rows can be recovered by a neighbour, and by a budget none."""

import numpy as np
import pytest
import scipy.sparse as sp

from gadget_svm.algorithms.private_gradient import PrivateGradientRun
from gadget_svm.attacks import ExactSites, closeness, extract_rows
from gadget_svm.attacks.private_extraction import permitted_share
from gadget_svm.privacy import DifferentialPrivacy


def some_rows(n, seed, d=12):
    rng = np.random.default_rng([seed, n])
    X = rng.normal(size=(n, d))
    return X, (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(np.int32)


def worst_cosine(X, found):
    """Return the cosine of the row that was recovered worst, and the class that its best match was given."""
    cosines = (X @ found.rows.T) / np.linalg.norm(X, axis=1)[:, None] / np.linalg.norm(found.rows, axis=1)
    return cosines.max(axis=1).min(), found.y[cosines.argmax(axis=1)]


@pytest.mark.parametrize("n", [10, 25])
def test_all_rows_of_a_site_are_recovered_with_their_classes(n):
    X, label = some_rows(n, 0)
    site = ExactSites([(sp.csr_matrix(X), label)])
    found = extract_rows(site, X.shape[1], n)
    worst, y = worst_cosine(X, found)
    assert worst > 0.999
    np.testing.assert_array_equal(y, 2 * label - 1)
    assert found.rows.shape == X.shape
    assert found.queries <= 2 * n + 10
    assert site.ticks == found.queries * site.hold


def test_a_third_site_only_makes_the_answers_sums_over_both():
    shards = [some_rows(10, seed) for seed in (1, 2)]
    sites = ExactSites([(sp.csr_matrix(X), label) for X, label in shards])
    X = np.vstack([X for X, _ in shards])
    found = extract_rows(sites, X.shape[1], len(X))
    assert worst_cosine(X, found)[0] > 0.999


def test_equal_rows_are_recovered_together():
    X, label = some_rows(10, 3)
    X[4] = X[7]
    found = extract_rows(ExactSites([(sp.csr_matrix(X), label)]), X.shape[1], 10)
    assert worst_cosine(X, found)[0] > 0.999
    assert (found.y == 0).sum() == 2


def test_a_wrong_number_of_rows_is_refused():
    X, label = some_rows(10, 0)
    with pytest.raises(ValueError, match="check how many rows the site has"):
        extract_rows(ExactSites([(sp.csr_matrix(X), label)]), X.shape[1], 11)


@pytest.fixture(scope="module")
def unit_rows():
    """Rows on the unit sphere, drawn by a seed."""

    def rows(n, *seed):
        X = np.random.default_rng(seed).normal(size=(n, 10))
        return 0.9 * X / np.linalg.norm(X, axis=1)[:, None]

    return rows


def attacked(rows, copies):
    X = rows(200, 0)
    label = (X[:, 0] > 0).astype(int)
    return closeness(X, label, rows(200, 1), rows(5000, 2), DifferentialPrivacy(1.0, noise="seeded"), copies=copies)


def test_rows_of_a_private_site_are_no_closer_than_fresh_rows(unit_rows):
    found = attacked(unit_rows, 100)
    assert found.guesses == 2800
    assert found.share < found.permitted < 0.7
    assert abs(found.share - 0.5) < 0.05
    assert abs(found.site - found.fresh) < 0.01


def test_the_same_questions_recover_rows_without_noise(unit_rows, monkeypatch):
    monkeypatch.setattr(PrivateGradientRun, "sensitivity", lambda _, block: np.zeros(block.k))
    found = attacked(unit_rows, 1)
    assert found.share > 0.75
    assert found.site > found.fresh + 0.1


def test_permitted_share():
    assert permitted_share(1e-9, 200) == pytest.approx(0.5, abs=1e-3)
    assert 0.5 < permitted_share(0.1, 200) < permitted_share(0.5, 200) < 1.0
