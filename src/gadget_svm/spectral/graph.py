"""Connectivity, period and diameter: whether mass reaches every node, and in how many hops."""

from functools import reduce
from operator import or_

import numpy as np

from gadget_svm.core.network import Network

DIAMETER_MAX_NODES = 4_000


class TooLargeError(ValueError):
    """The network is too large for this number; the message names an alternative."""


def check_connected(network: Network) -> None:
    """Raise ValueError if the graph is not connected (strongly, if it is directed)."""
    count, label = network.components
    if count == 1:
        return
    sizes = np.bincount(label)
    hub = int(np.argmax(label == np.argmax(sizes)))
    cut = np.flatnonzero(label == (len(sizes) - 1 - np.argmin(sizes[::-1])))
    names = range(network.n) if network.labels is None else network.labels
    some = [repr(names[i]) for i in cut[:4].tolist()]
    others = f" (and {len(cut) - 1} more: {', '.join(some[1:])}{', ...' * (len(cut) > 4)})"
    node, middle = f"node {some[0]}{others if len(cut) > 1 else ''}", f"node {names[hub]!r}"
    forward = network.directed and network.hops(hub)[cut[0]] >= 0
    fault = f"{node} cannot reach {middle}" if forward else f"{node} cannot be reached from {middle}"
    largest = ", ".join(map(str, np.sort(sizes)[::-1][:5])) + (", ..." if count > 5 else "")
    strongly = "strongly " if network.directed else ""
    raise ValueError(
        f"the network {network.name!r} is not {strongly}connected: {fault}; its {count} components have "
        f"{largest} nodes. Add an edge between them or choose a connected topology such as 'ring'."
    )


def period(network: Network) -> int:
    """Return the greatest common divisor of the lengths of B's cycles, for a connected graph."""
    if np.any(network.self_share > 0):
        return 1
    depth = network.hops(0)
    # An edge u -> v closes cycles whose lengths differ by a multiple of depth[u] + 1 - depth[v].
    return int(np.gcd.reduce(depth[network.sources] + 1 - depth[network.indices]))


def check_diffusion(network: Network) -> None:
    """Raise ValueError if the diffusion form of Push-Sum does not converge on the network."""
    check_connected(network)
    p = period(network)
    if p > 1:
        kind = " (it is bipartite: mass swings between two halves)" if p == 2 else ""
        raise ValueError(
            f"the network {network.name!r} has period {p}{kind}, so diffusion with transition "
            f"{network.transition!r} never converges: use transition='lazy', which keeps half at each node"
        )


def diameter(network: Network) -> int:
    """Return the longest of all shortest paths, exactly; raises `TooLargeError` above 4,000 nodes."""
    if network.n > DIAMETER_MAX_NODES:
        limit = f"the exact diameter is computed up to {DIAMETER_MAX_NODES:,} nodes"
        raise TooLargeError(f"{limit} and {network.name!r} has {network.n:,}: use diameter_bound")
    check_connected(network)
    if network.n_edges == network.n * (network.n - 1):
        return min(network.n - 1, 1)
    if swept_bound(network) <= 64:
        return _flooding_rounds(network)
    return max(int(network.hops(source).max()) for source in range(network.n))


def diameter_bound(network: Network) -> int:
    """Return the diameter; above 4,000 nodes an upper bound from the longest shortest paths to and from one node."""
    if network.n <= DIAMETER_MAX_NODES:
        return diameter(network)
    check_connected(network)
    return swept_bound(network)


def swept_bound(network: Network) -> int:
    if network.directed:
        return int(network.hops(0).max() + network.hops(0, backward=True).max())
    # Two searches find a long path. No node is much further from its middle than half the diameter.
    end = int(network.hops(0).argmax())
    near = network.hops(end)
    far = network.hops(int(near.argmax()))
    middle = int(np.argmin(np.maximum(near, far)))
    return 2 * int(network.hops(middle).max())


def _flooding_rounds(network: Network) -> int:
    """Return the rounds until a message from every node has reached all nodes; a node keeps one bit per node."""
    neighbours = [near.tolist() for near in np.split(network.indices, network.indptr[1:-1])]
    reached, rounds = [1 << node for node in range(network.n)], 0
    while any(bits.bit_count() < network.n for bits in reached):
        reached = [reduce(or_, map(reached.__getitem__, near), reached[i]) for i, near in enumerate(neighbours)]
        rounds += 1
    return rounds
