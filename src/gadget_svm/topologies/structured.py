"""Graphs without randomness, connected by construction and built by array operations at any size."""

import math

import numpy as np

from gadget_svm.topologies.base import Graph, from_pairs, from_rows, integer

COMPLETE_MAX_NODES = 20_000


def refuse_dense(n: int, edges: float, name: str) -> None:
    """Raise ValueError for a graph with more edges than fit into memory."""
    if edges > COMPLETE_MAX_NODES * (COMPLETE_MAX_NODES - 1) / 2:
        fewer = f"'k-out' mixes nearly as fast with {20 * n:,}"
        raise ValueError(f"{name!r} on {n:,} nodes has {edges:,.0f} edges, too many to hold: {fewer}")


def complete(n: int) -> Graph:
    """Every node with every other."""
    refuse_dense(n, n * (n - 1) / 2, "complete")
    others = np.tile(np.arange(n - 1, dtype=np.int64), (n, 1))
    others += others >= np.arange(n)[:, None]
    return from_rows(others, directed=False)


def ring(n: int) -> Graph:
    """Each node with the next, the last with the first."""
    node = np.arange(n)
    return from_pairs(n, node, (node + 1) % n)


def line(n: int) -> Graph:
    """Each node with the next."""
    node = np.arange(n)
    return from_pairs(n, node[:-1], node[1:])


def star(n: int) -> Graph:
    """Node 0 with all others."""
    node = np.arange(n)
    return from_pairs(n, np.zeros(n - 1, dtype=np.int64), node[1:])


def tree(n: int, text: str | None) -> Graph:
    """The complete tree with b children per node, filled level by level."""
    b = integer("tree", text, 2)
    child = np.arange(n)[1:]
    return from_pairs(n, (child - 1) // b, child)


def grid(n: int, text: str | None) -> Graph:
    """Rows and columns, as square as possible. The last row is shorter if n is not a product of the sides."""
    cols = _sides("grid", n, text)[1]
    node = np.arange(n)
    right = node[(node % cols < cols - 1) & (node < n - 1)]
    down = node[: max(n - cols, 0)]
    return from_pairs(n, np.concatenate([right, down]), np.concatenate([right + 1, down + cols]))


def torus(n: int, text: str | None) -> Graph:
    """A grid whose rows and columns are rings."""
    rows, cols = _sides("torus", n, text)
    if min(rows, cols) < 2 or rows * cols != n:
        near = min((m for m in (n - 1, n + 1, n + 2) if _factor(m) > 1), key=lambda m: abs(m - n))
        raise ValueError(f"a torus needs two sides of at least 2 and {n} has none: use {near} nodes, or 'ring'")
    node = np.arange(n)
    right = node - node % cols + (node + 1) % cols
    return from_pairs(n, np.concatenate([node, node]), np.concatenate([right, (node + cols) % n]))


def hypercube(n: int) -> Graph:
    """An edge between two nodes whose binary numbers differ in one digit."""
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
    """Rows and columns as written after the colon, such as "5x4"."""
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
