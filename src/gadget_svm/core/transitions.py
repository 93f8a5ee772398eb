"""The transition matrix B of a graph: four ways to compute it from the edges, and the check of a B from the user."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.lookup import lookup
from gadget_svm.core.types import Floats, Ints, NodeIds

EdgeWeights = tuple[Floats, Floats]  # b_ij of every edge, b_ii of every node

GIVEN = "given"
"""The value of ``Network.transition`` if the user gave B."""
ROW_SUM_TOLERANCE = 1e-5
"""How much the row sums of a given B may differ from one; the rows are then scaled to sum to one exactly."""


def given_weights(B: sp.csr_array) -> EdgeWeights:
    """Check a B that the user gives, and return its weights, edge by edge in the order of sorted columns."""
    total = np.asarray(B.sum(axis=1), dtype=np.float64).ravel()
    wrong = ~(np.abs(total - 1) <= ROW_SUM_TOLERANCE)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            "numbers other than 0 and 1 are taken as the transition matrix B, whose rows, b_ii included, sum to one: "
            f"row {row} sums to {total[row]:g}. To use the edges alone, give A != 0 in place of the matrix A, or "
            "networkx.Graph(graph.edges) in place of a networkx graph with weights"
        )
    if not (B.data >= 0).all():
        raise ValueError(f"the transition matrix B has a negative entry, {B.data.min():g}: its entries are shares")
    off = sp.csr_array(B - sp.diags_array(B.diagonal()))
    off.eliminate_zeros()
    off.sort_indices()
    share = off.data / np.repeat(total, np.diff(off.indptr))
    return np.asarray(share, dtype=np.float64), np.asarray(B.diagonal() / total, dtype=np.float64)


def check_transition(transition: str, directed: bool) -> None:
    """Raise ValueError for an unknown name, and for one that does not suit a directed graph."""
    lookup("transition", transition, TRANSITIONS)
    if directed and transition in DOUBLY_STOCHASTIC:
        raise ValueError(
            f"transition {transition!r} is doubly stochastic only on an undirected graph: "
            "use 'lazy' or 'random-walk', or make the graph symmetric (A + A.T)"
        )


def _metropolis(indptr: Ints, indices: NodeIds, degree: Ints) -> EdgeWeights:
    """b_ij = 1/(1 + max(deg i, deg j)): symmetric, so doubly stochastic."""
    share = 1.0 / (1.0 + np.maximum(np.repeat(degree, degree), degree[indices]))
    return share, 1.0 - _row_sums(share, indptr, indices)


def _max_degree(indptr: Ints, indices: NodeIds, degree: Ints) -> EdgeWeights:
    """b_ij = 1/(1 + max degree), the same on every edge: symmetric, so doubly stochastic."""
    share = np.full(len(indices), 1.0 / (1.0 + max(int(degree.max(initial=0)), 1)))
    return share, 1.0 - _row_sums(share, indptr, indices)


def _row_sums(share: Floats, indptr: Ints, indices: NodeIds) -> Floats:
    # Row by row, since differences of one cumulative sum lose digits on millions of edges.
    n = len(indptr) - 1
    return np.asarray(sp.csr_array((share, indices, indptr), shape=(n, n)) @ np.ones(n), dtype=np.float64)


WALKS = {"lazy": 0.5, "random-walk": 0.0}
"""The share b_ii that a node keeps; its neighbours get the rest in equal parts. The random walk, b_ij = 1/deg(i), is
the paper's "obvious choice"; the lazy one is aperiodic on every graph. A node without neighbours keeps everything."""
Weighing = Callable[[Ints, NodeIds, Ints], EdgeWeights]
DOUBLY_STOCHASTIC: dict[str, Weighing] = {"metropolis": _metropolis, "max-degree": _max_degree}
TRANSITIONS: dict[str, Any] = {**WALKS, **DOUBLY_STOCHASTIC}
