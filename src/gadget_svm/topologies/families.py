"""Families of graphs: structured ones, and random ones that are drawn with the given generator.

`registry.build` draws a graph again if it is unconnected. networkx makes scale-free graphs and the smaller
random-regular ones. Array operations make all other graphs, so a million nodes take seconds.
"""

import math
from typing import Any

import numpy as np

from gadget_svm.core.types import Ints, NodeIds
from gadget_svm.topologies.base import Graph, from_keys, from_pairs, from_rows, integer, pair_keys, probability

COMPLETE_MAX_NODES = 20_000


def refuse_dense(n: int, edges: float, name: str) -> None:
    """Raise ValueError for a graph with more edges than fit into memory."""
    if edges > COMPLETE_MAX_NODES * (COMPLETE_MAX_NODES - 1) / 2:
        fewer = f"'k-out' mixes nearly as fast with {20 * n:,}"
        raise ValueError(f"{name!r} on {n:,} nodes has {edges:,.0f} edges, too many to hold: {fewer}")


def complete(n: int) -> Graph:
    """Connect every node to every other node."""
    refuse_dense(n, n * (n - 1) / 2, "complete")
    others = np.tile(np.arange(n - 1, dtype=np.int64), (n, 1))
    others += others >= np.arange(n)[:, None]
    return from_rows(others, directed=False)


def ring(n: int) -> Graph:
    """Connect each node to the next, and the last to the first."""
    node = np.arange(n)
    return from_pairs(n, node, (node + 1) % n)


def line(n: int) -> Graph:
    """Connect each node to the next."""
    return from_pairs(n, np.arange(n - 1), np.arange(1, n))


def star(n: int) -> Graph:
    """Connect node 0 to all others."""
    return from_pairs(n, np.zeros(n - 1, dtype=np.int64), np.arange(1, n))


def tree(n: int, text: str | None) -> Graph:
    """Return the complete tree with b children per node, filled level by level."""
    b, child = integer("tree", text, 2), np.arange(1, n)
    return from_pairs(n, (child - 1) // b, child)


def grid(n: int, text: str | None) -> Graph:
    """Arrange the nodes in rows and columns, as square as possible. The last row may be shorter than the others."""
    cols = _sides("grid", n, text)[1]
    node = np.arange(n)
    right = node[(node % cols < cols - 1) & (node < n - 1)]
    down = node[: max(n - cols, 0)]
    return from_pairs(n, np.concatenate([right, down]), np.concatenate([right + 1, down + cols]))


def torus(n: int, text: str | None) -> Graph:
    """Return a grid whose rows and columns are rings."""
    rows, cols = _sides("torus", n, text)
    if min(rows, cols) < 2 or rows * cols != n:
        near = min((m for m in (n - 1, n + 1, n + 2) if _factor(m) > 1), key=lambda m: abs(m - n))
        raise ValueError(f"a torus needs two sides of at least 2 and {n} has none: use {near} nodes, or 'ring'")
    node = np.arange(n)
    right = node - node % cols + (node + 1) % cols
    return from_pairs(n, np.concatenate([node, node]), np.concatenate([right, (node + cols) % n]))


def hypercube(n: int) -> Graph:
    """Connect two nodes if their binary numbers differ in one digit."""
    bits = n.bit_length() - 1
    if n != 1 << bits:
        raise ValueError(f"a hypercube has a power of two nodes, not {n}: use {1 << bits} or {2 << bits}")
    return from_rows(np.arange(n)[:, None] ^ (1 << np.arange(bits)), directed=False)


def exponential(n: int) -> Graph:
    """Directed: i sends to i + 1, i + 2, i + 4, ... mod n."""
    hops = 1 << np.arange((n - 1).bit_length())
    return from_rows((np.arange(n)[:, None] + hops) % n, directed=n > 3)  # up to 3 nodes this is complete


def _factor(n: int) -> int:
    """Return the largest divisor up to the square root."""
    return next((side for side in range(math.isqrt(max(n, 1)), 0, -1) if n % side == 0), 1)


def given_sides(name: str, text: str) -> tuple[int, int]:
    """Return the numbers of rows and columns that are written after the colon, such as "5x4"."""
    sides = [int(part) if part.isdecimal() else 0 for part in text.lower().split("x")]
    if len(sides) != 2 or min(sides) < 1:
        raise ValueError(f"{name}:{text} needs two sides, as in '{name}:5x4' for 20 nodes")
    return sides[0], sides[1]


def _sides(name: str, n: int, text: str | None) -> tuple[int, int]:
    """Return the numbers of rows and columns: those after the colon ("5x4"), or those that differ least."""
    if text is not None:
        rows, cols = given_sides(name, text)
        if rows * cols != n:
            raise ValueError(f"{name}:{text} needs sides whose product is the {n} nodes, as in '{name}:5x4' for 20")
        return rows, cols
    rows = _factor(n)
    if rows > 1:
        return rows, n // rows
    cols = math.isqrt(n - 1) + 1
    return -(-n // cols), cols


Rng = np.random.Generator
NETWORKX_MAX_NODES = 100_000
"""Above this many nodes, networkx takes seconds to minutes."""


def k_out(n: int, text: str | None, rng: Rng) -> Graph:
    """Directed: each node draws k distinct others, every set of k being equally likely."""
    k = integer("k-out", text, 20)
    if k >= n - 1:
        return complete(n)
    refuse_dense(n, n * k / 2, f"k-out:{k}")
    if 2 * k > n:  # drawing that many again would take too long: draw a permutation
        drawn = rng.random((n, n - 1)).argsort(axis=1)[:, :k].astype(np.int32)
    else:
        drawn = _distinct(rng.integers(0, n - 1, (n, k), dtype=np.int32), n - 1, rng)
    drawn += drawn >= np.arange(n, dtype=np.int32)[:, None]  # no node draws itself
    return from_rows(drawn, directed=True)


def _distinct(drawn: NodeIds, upper: int, rng: Rng) -> NodeIds:
    """Draw repetitions within a row again until there are none; returns sorted rows."""
    drawn.sort(axis=1)
    rows = np.flatnonzero((drawn[:, 1:] == drawn[:, :-1]).any(axis=1))
    while len(rows):
        part = drawn[rows]
        again = np.zeros(part.shape, dtype=bool)
        again[:, 1:] = part[:, 1:] == part[:, :-1]
        part[again] = rng.integers(0, upper, int(again.sum()))
        part.sort(axis=1)
        drawn[rows] = part
        rows = rows[(part[:, 1:] == part[:, :-1]).any(axis=1)]
    return drawn


def random_regular(n: int, text: str | None, rng: Rng) -> Graph:
    """Give every node the same number of neighbours. With too few nodes for that, return the complete graph."""
    degree = integer("random-regular", text, 4)
    if n <= degree + 1:
        return complete(n)
    if n * degree % 2:
        odd = f"no graph gives each of {n} nodes {degree} neighbours, since {n} x {degree} is odd"
        raise ValueError(f"{odd}: use 'random-regular:{degree + 1}' or {n + 1} nodes")
    if degree == 2 or n > NETWORKX_MAX_NODES:
        return from_keys(n, _regular_keys(n, degree, rng))
    import networkx as nx

    return _from_networkx(nx.random_regular_graph(degree, n, seed=int(rng.integers(2**31))))


def _regular_keys(n: int, degree: int, rng: Rng) -> Ints:
    """Return random Hamiltonian cycles, and a perfect matching if the degree is odd, made simple by swaps."""
    orders = [rng.permutation(n) for _ in range(-(-degree // 2))]
    steps = [np.stack([order, np.roll(order, -1)]) for order in orders]
    if degree % 2:
        steps[-1] = orders[-1].reshape(2, -1)
    u, v = np.concatenate(steps, axis=1)
    for _ in range(1000):
        keys = pair_keys(n, u, v)
        bad = _repeated(keys)
        if len(bad) == 0:
            return keys
        # u1-v1, u2-v2 become u1-v2, u2-v1: degrees stay the same, and a new repetition is unlikely.
        other = rng.permutation(len(u))[: len(bad)]
        swap = ~np.isin(other, bad)
        a, b = bad[swap], other[swap]
        v[a], v[b] = v[b], v[a]
    raise ValueError(f"no simple graph of degree {degree} on {n} nodes was found: choose a lower degree")


def _repeated(keys: Ints) -> Ints:
    """Return the positions of self-loops, and of every repeated key except one occurrence."""
    ranked = np.sort(keys)  # sorting values is several times faster than sorting positions
    twice = np.unique(ranked[1:][ranked[1:] == ranked[:-1]])
    suspects = np.flatnonzero(np.isin(keys, twice))
    first = np.unique(keys[suspects], return_index=True)[1]
    return np.union1d(np.delete(suspects, first), np.flatnonzero(keys < 0))


def erdos_renyi(n: int, text: str | None, rng: Rng) -> Graph:
    """Connect each pair of nodes with probability p."""
    p = probability("erdos-renyi", text, min(1.0, 2 * math.log(n) / n))
    pairs = n * (n - 1) // 2
    refuse_dense(n, p * pairs, "erdos-renyi")
    place = _hits(pairs, p, rng)
    # Pair number v(v-1)/2 + u stands for u < v; the square root may be off by one either way.
    v = ((1 + np.sqrt(1 + 8 * place.astype(np.float64))) / 2).astype(np.int64)
    v -= v * (v - 1) // 2 > place
    v += v * (v + 1) // 2 <= place
    return from_keys(n, (place - v * (v - 1) // 2) * n + v)


def _hits(total: int, p: float, rng: Rng) -> Ints:
    """Return which of ``total`` independent trials succeed, by drawing the gaps between successes."""
    size = int(total * p + 6 * math.sqrt(total * p) + 10)
    found = np.empty(0, dtype=np.int64)
    last = -1
    while last < total:
        gaps = np.minimum(rng.geometric(p, size), total + 1)
        found = np.concatenate([found, last + np.cumsum(gaps)])
        last = int(found[-1])
    return found[found < total]


def small_world(n: int, text: str | None, rng: Rng) -> Graph:
    """Watts-Strogatz: a ring with k neighbours per node; the far end of each edge is redrawn with probability p."""
    degree, _, chance = (text or "").partition(",")
    k = integer("small-world", degree or None, 4, least=2)
    p = probability("small-world", chance or None, 0.1, zero=True)
    if k % 2:
        raise ValueError(f"small-world:{text} needs an even number of neighbours: use {k - 1} or {k + 1}")
    if n < 3:
        return line(n)
    half = min(k // 2, (n - 1) // 2)
    u = np.repeat(np.arange(n, dtype=np.int64), half)
    v = (u + np.tile(np.arange(1, half + 1), n)) % n
    moving = np.flatnonzero(rng.random(len(u)) < p)
    for _ in range(20):  # an edge all of whose draws exist already stays, as in a complete graph
        moving = _rewired(n, u, v, moving, rng)
    return from_pairs(n, u, v)


def _rewired(n: int, u: Ints, v: Ints, moving: Ints, rng: Rng) -> Ints:
    """Redraw the far ends of edges ``moving``; returns those whose draw is a self-loop or exists already."""
    drawn = rng.integers(0, n, len(moving))
    keys = np.concatenate([pair_keys(n, u, v), pair_keys(n, u[moving], drawn)])
    taken = np.zeros(len(keys), dtype=bool)
    taken[_repeated(keys)] = True
    again = taken[len(u) :]
    v[moving[~again]] = drawn[~again]
    return moving[again]


def scale_free(n: int, text: str | None, rng: Rng) -> Graph:
    """Barabasi-Albert: each new node links to m earlier ones, with probabilities proportional to their degrees."""
    import networkx as nx

    m = min(integer("scale-free", text, 2), n - 1)
    return _from_networkx(nx.barabasi_albert_graph(n, m, seed=int(rng.integers(2**31))))


def _from_networkx(graph: Any) -> Graph:
    """Return an undirected networkx graph whose nodes are 0..n-1, as arrays."""
    n = len(graph)
    ends = np.fromiter((end for edge in graph.edges() for end in edge), np.int64)
    return from_pairs(n, ends[::2], ends[1::2])
