"""What several test files share: small graphs and problems, strategies that draw them, and optional real data."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings
from hypothesis import strategies as st

from gadget_svm import load_dataset
from gadget_svm.network import Network

settings.register_profile("patient", deadline=None)  # the first example may compile a kernel
settings.load_profile("patient")


@st.composite
def networks(draw, least=1, most=8, directed=None, transition="lazy"):
    """Any connected graph: a random tree (undirected) or a cycle (directed), and any further edges."""
    n = draw(st.integers(least, most))
    turned = draw(st.booleans()) if directed is None else directed
    A = np.zeros((n, n), dtype=int)
    for i in range(1, n):
        A[draw(st.integers(0, i - 1)), i] = 1
    if turned:
        A[:] = np.roll(np.eye(n, dtype=int), 1, axis=1)
    for a, b in draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=6)):
        A[a, b] = 1
    A = A if turned else A | A.T
    return Network.from_adjacency(sp.csr_array(A), directed=turned, transition=transition)


@pytest.fixture(scope="session")
def toy():
    """Sixty rows of five features, two classes and three, and the node that owns each row in shards of 30, 20, 10."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, 5))
    noise = rng.normal(size=60)
    y = (X[:, 0] - X[:, 1] + 0.5 * noise > 0).astype(int)
    three = np.digitize(X[:, 0] + 0.3 * noise, [-0.5, 0.5])
    return SimpleNamespace(X=X, y=y, three=three, sites=np.repeat([0, 1, 2], [30, 20, 10]), rng=rng)


@pytest.fixture(scope="session")
def adult():
    """The paper's Adult data, where it is at hand."""
    places = [os.environ.get("GADGET_DATA", ""), Path(__file__).parents[2] / "shared" / "data"]
    if not any(place and Path(place).is_dir() for place in places):
        pytest.skip("the paper's data sets are neither in GADGET_DATA nor in ../shared/data")
    try:
        return load_dataset("adult", download=False)
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
