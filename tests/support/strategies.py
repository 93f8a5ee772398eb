"""Strategies of hypothesis that several test files draw from."""

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from gadget_svm.core.network import Network


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
