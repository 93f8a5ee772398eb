"""Sites whose rows follow rules of their own, and how far a model is from the optimum of some of them."""

import numpy as np
import scipy.sparse as sp

from gadget_svm.reproduction.baselines.optimum import certified_optimum

LAM = 0.01
APART = 0.03


def site(name, n=60, d=12):
    """Rows of a rule of the site's own: who takes part makes a difference."""
    rng = np.random.default_rng([13, ord(name)])
    X = rng.normal(size=(n, d)) + 0.3 * rng.normal(size=d)
    y = np.where(X @ rng.normal(size=d) + 0.3 * rng.normal(size=n) > 0, 1, -1)
    y[:2] = (-1, 1)
    return sp.csr_matrix(X), y


SITES = {name: site(name) for name in "abcd"}
_best: dict[str, float] = {}


def pooled(names):
    X = sp.vstack([SITES[name][0] for name in names])
    return sp.csr_matrix(sp.hstack([X, np.ones((X.shape[0], 1))])), np.concatenate([SITES[name][1] for name in names])


def excess(names, w):
    """How far a model is above the optimum of the rows of ``names``, as a part of it."""
    X, y = pooled(names)
    if names not in _best:
        _best[names] = certified_optimum(X, y, LAM, 1e-5).bound
    return float(0.5 * LAM * w @ w + np.maximum(0.0, 1.0 - y * (X @ w)).mean()) / _best[names] - 1.0


def above(names, others):
    """How far the optimum of others' rows is above that of ``names``, on these: what a peer gone astray would show."""
    return excess(names, certified_optimum(*pooled(others), LAM, 1e-5).w)


def apart(*groups):
    """The optimum of each group of sites is no good for any of the others: else a test could not fail."""
    for some in groups:
        for other in groups:
            assert some == other or above(some, other) > APART
