"""What a neighbour that follows the protocol learns of a site's own sum v_i = sum alpha y x, from PDMM's messages.

There are two estimates. `edge_estimate` needs the last message of one edge, and how many neighbours the site has.
`replay` needs all messages to a node that is a neighbour of all others: it repeats what the others do to their edges.

`start_at_random` begins the edge variables at random vectors instead of 0 (subspace perturbation), which changes
neither the optimum nor the algorithm. It is an experiment: see benchmarks/results/attacks.md for what it hides.
"""

from collections.abc import Sequence

import numpy as np

from gadget_svm.algorithms.pdmm import PdmmRun
from gadget_svm.core.block import Block
from gadget_svm.core.messages import MessageBatch
from gadget_svm.core.types import Floats
from gadget_svm.simulation.engine import LocalRuntime


def true_sums(run: PdmmRun, block: Block) -> Floats:
    """Return v_i of every node, nodes x features, of a run with one output."""
    rows, width = block.rows, block.s.shape[1]
    X = rows.matrix(width)[rows.order]
    pulls = X.multiply((np.where(rows.label[rows.order] == 1, 1.0, -1.0) * run.duals(block)[0])[:, None]).tocsr()
    return np.array([
        np.asarray(pulls[lo:hi].sum(axis=0)).ravel() for lo, hi in zip(rows.start[:-1], rows.start[1:], strict=True)
    ])  # fmt: skip


def edge_estimate(block: Block, node: int, neighbour: int) -> Floats:
    """Estimate v of a node from what its neighbour knows: the edge between them, the model, and the node's degree.

    When nodes agree on w, n lam w - v is the sum of the pulls of all edges, and the neighbour knows the pull of one.
    Edges that began at 0 pull in about the same direction.
    """
    links, edge = block.links, block.edge
    ends = slice(links.indptr[node], links.indptr[node + 1])
    e = int(links.indptr[node]) + int(np.flatnonzero(links.target[ends] == neighbour)[0])
    w, sign = block.flat[node], 1.0 if node < neighbour else -1.0
    pull = sign * edge["z"][e] + edge["rho"][e] * w
    return np.asarray(edge["n_lam"][node] * w + (ends.stop - ends.start) * pull)


def replay(batches: Sequence[MessageBatch], attacker: int, rho: float, theta: float, n_lam: Floats) -> Floats:
    """Estimate v of every node after every tick, ticks x nodes x features, from what one node sends and receives.

    The network is a complete graph with a fixed penalty, and nodes push to all neighbours in every tick. The attacker
    works out every node's w from the node's push, and with it repeats how all edges change. It assumes that they began
    at 0; if they did not, its estimates are wrong by a vector that soon becomes constant, and only their differences
    between ticks are right.

    Parameters
    ----------
    batches : sequence of MessageBatch
        The messages of every tick. Only those from and to the attacker are used.
    attacker : int
    rho, theta : float
        The parameters of the run.
    n_lam : array
        n_i lam of every node.

    Returns
    -------
    array, ticks x nodes x features
        NaN for the attacker itself.
    """
    nodes, width = len(n_lam), batches[0].vector.shape[1]
    sign = np.sign(np.arange(nodes)[None, :] - np.arange(nodes)[:, None]).astype(np.float64)[:, :, None]  # A_ij
    z, sums = np.zeros((nodes, nodes, width)), np.zeros((len(batches), nodes, width))
    known = np.zeros((nodes, width))  # z of the others' edges to the attacker, which are what it pushed
    for t, batch in enumerate(batches):
        told, sent = np.zeros((nodes, width)), np.zeros((nodes, width))
        arrives, leaves = batch.receiver == attacker, batch.sender == attacker
        told[batch.sender[arrives]], sent[batch.receiver[leaves]] = batch.vector[arrives], batch.vector[leaves]
        w = sign[:, attacker] * (told - known) / (2.0 * rho)
        z[:, attacker] = known
        sums[t] = (n_lam + (nodes - 1) * rho)[:, None] * w + (sign * z).sum(axis=1)
        pushed = z + 2.0 * rho * sign * w[:, None, :]
        z = (1.0 - theta) * z + theta * pushed.transpose(1, 0, 2)
        known = (1.0 - theta) * known + theta * sent
    sums[:, attacker] = np.nan
    return sums


def start_at_random(runtime: LocalRuntime, size: float, seed: int = 0) -> None:
    """Set all edge variables to random vectors, before the first tick of a run in one block.

    Parameters
    ----------
    runtime : LocalRuntime
        A runtime with PDMM that has not done a tick.
    size : float
        The length of the vectors, as a multiple of the site's number of rows.
    seed : int, default 0
        Each vector is drawn by (seed, node, neighbour).
    """
    (block,) = runtime.blocks
    runtime.run.advance_fused(block, 0)  # creates the state
    z, target, width = block.edge["z"], block.links.target.tolist(), block.s.shape[1]
    for i in range(block.k):
        total = np.zeros(width)
        for e in range(block.links.indptr[i], block.links.indptr[i + 1]):
            drawn = np.random.default_rng([seed, i, target[e]]).normal(size=width)
            z[e] += (change := size * block.n[i] * drawn / np.linalg.norm(drawn))
            total += change if i < target[e] else -change
        block.flat[i] -= total / (block.edge["n_lam"][i] + block.edge["R"][i])  # kappa w = v - sum A z


def cosine(a: Floats, b: Floats) -> float:
    """Return the cosine of two vectors; 0 if one of them is 0."""
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length > 0 else 0.0
