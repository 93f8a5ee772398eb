"""The paper's data sets: each of ten nodes classifies the test set well. Skipped if the files are missing."""

import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning

from gadget_svm import GadgetSVC, load_dataset

FLOOR = {"adult": 0.84, "reuters": 0.96, "ccat": 0.92, "usps": 0.97, "mnist": 0.985}
ITERATIONS = {"ccat": 800}  # its vectors are long, and few iterations suffice


@pytest.mark.parametrize("name", FLOOR)
def test_every_node_classifies(name):
    """GADGET with averaged iterates and the paper's lambda, ten nodes, no intercept."""
    try:
        d = load_dataset(name, download=False)
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    model = GadgetSVC(
        n_nodes=10, lam=d.lam, algorithm="gadget", fit_intercept=False, random_state=0,
        max_iter=ITERATIONS.get(name, 10_000), record_every=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(d.X, d.y)
    worst = min(model.node(i).score(d.X_test, d.y_test) for i in range(10))
    assert worst >= FLOOR[name]
