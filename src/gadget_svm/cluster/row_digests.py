"""What rows every node has, in a few letters each: enough to see whether they are still the same. Owns no row."""

import hashlib
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.rows import Rows

SHOWN = 3
"""Nodes that are named; of more, how many."""


def digests(rows: Rows) -> list[str]:
    """Of every node, over its rows in their order: features, labels, costs and weights."""
    width = int(rows.indices.max(initial=-1)) + 1
    X = sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(len(rows.label), width))
    return [_digest(rows, X, lo, hi) for lo, hi in zip(rows.start[:-1], rows.start[1:], strict=True)]


def _digest(rows: Rows, X: sp.csr_matrix, lo: int, hi: int) -> str:
    own = rows.order[lo:hi]
    mine, said = X[own], hashlib.blake2b(digest_size=8)
    for whole in (np.diff(mine.indptr), mine.indices, rows.label[own], rows.pairs):
        said.update(np.ascontiguousarray(whole, dtype=np.int64).tobytes())
    for real in (mine.data, rows.cost[own], rows.mass[lo:hi]):
        said.update(np.ascontiguousarray(real, dtype=np.float64).tobytes())
    return said.hexdigest()


def changed(before: Sequence[str], now: Sequence[str], first: int = 0) -> list[int]:
    """The nodes, from ``first`` on, whose rows are not what they were."""
    return [first + i for i, (old, new) in enumerate(zip(before, now, strict=True)) if old != new]


def named(nodes: Sequence[int], names: Sequence[str]) -> str:
    """These nodes, and where their rows are read if they have names: "node 3 (part-3.svm)"."""
    some = [f"node {node} ({names[node]})" if names else f"node {node}" for node in nodes[:SHOWN]]
    more = len(nodes) - len(some)
    return ", ".join(some) + (f" and {more:,} more" if more else "")
