"""From edges to sorted CSR arrays, and the parameters after a topology's colon; knows no topology by name."""

from dataclasses import dataclass

import numpy as np

from gadget_svm.core.types import Ints, NodeIds


@dataclass(frozen=True)
class Graph:
    """A simple graph as CSR arrays with sorted rows, before its edges are weighed."""

    indptr: Ints
    indices: NodeIds
    directed: bool = False


def from_pairs(n: int, u: Ints, v: Ints) -> Graph:
    """The undirected graph of the edges u[e] - v[e]; self-loops and repetitions are dropped."""
    return from_keys(n, np.unique(pair_keys(n, u, v)))


def pair_keys(n: int, u: Ints, v: Ints) -> Ints:
    """One number per undirected edge: the lower end times n plus the higher; -1 for a self-loop."""
    return np.where(u == v, -1, np.minimum(u, v) * n + np.maximum(u, v))


def from_keys(n: int, keys: Ints) -> Graph:
    """The undirected graph of distinct `pair_keys`."""
    low, high = np.divmod(keys[keys >= 0], n)
    both = np.concatenate([low * n + high, high * n + low])
    both.sort()
    degree = np.bincount(low, minlength=n) + np.bincount(high, minlength=n)
    return Graph(np.concatenate([[0], np.cumsum(degree)]), both % n)


def from_rows(neighbours: NodeIds, *, directed: bool) -> Graph:
    """The graph in which node i sends to row i of ``neighbours``; the rows are sorted where they lie."""
    neighbours.sort(axis=1)
    n, k = neighbours.shape
    return Graph(np.arange(0, n * k + 1, k, dtype=np.int64), neighbours.reshape(-1), directed)


def integer(name: str, text: str | None, default: int, least: int = 1) -> int:
    """A whole number after the colon, at least ``least``."""
    if text is None:
        return default
    value = int(text) if text.strip().isdecimal() else least - 1
    if value < least:
        raise ValueError(f"{name}:{text} needs a whole number of at least {least}, as in '{name}:{default}'")
    return value


def probability(name: str, text: str | None, default: float, *, zero: bool = False) -> float:
    """A number up to 1 after the colon, above 0 unless ``zero`` makes sense too."""
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (0 < value <= 1 or (zero and value == 0)):
        raise ValueError(f"{name}: {text!r} is no probability up to 1; {default:g} would be one")
    return value
