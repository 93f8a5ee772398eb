"""Many iterations of GADGET in one compiled call, for blocks so small that Python would take most of the time.

The same kernels in the same order as in `GadgetRun.iteration`, where no message is lost or delayed; a test compares the
two bit for bit. Owns no mathematics.
"""

import numpy as np

from gadget_svm.algorithms.gadget import local_steps, project_and_average
from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.kernels import compiled
from gadget_svm.kernels.gossip import absorb, draw_edges, estimate, halve, load_vectors, order_messages


@compiled
def advance_fused(
    count: int, exchanges: int, rounds: int, persist: bool, n_steps: int, batch: int, implicit: bool,
    lam: float, inner: float, outer: float, average: bool, window: int, most: int, seed: int,
    alive: Flags, n: Floats, indptr: Ints, target: Ints, table: Floats, rows: Rows, w: Floats,
    flat: Floats, s: Floats, phi: Floats, held: Floats, w_sum: Floats, iterates: Ints, steps: Ints,
) -> int:  # fmt: skip
    """Run ``count`` iterations of all nodes, with randomised Push-Sum; return how many messages were sent."""
    k, sent = len(n), 0
    vector, weight, senders, seq = np.empty_like(s), np.empty(k), np.arange(k), np.zeros(k, dtype=np.int64)
    receivers = np.empty(k, dtype=np.int64)
    for _ in range(count):
        local_steps(0, k, alive, 0, w, rows, steps, n_steps, batch, implicit, lam, inner, seed, window)  # (a)-(f)
        load_vectors(0, k, alive, n, flat, s, phi, held, persist)
        for _ in range(rounds):  # (g)
            edges = draw_edges(alive, 0, indptr, table, seed, exchanges)
            exchanges += 1
            halve(0, k, edges, s, phi, vector, weight)
            for i in range(k):
                receivers[i] = target[edges[i]] if edges[i] >= 0 else -1
                sent += edges[i] >= 0
            order, start = order_messages(receivers, senders, seq, 0, k)
            absorb(0, k, order, start, seq, 0, vector, weight, s, phi)
        estimate(0, k, alive, s, phi, flat)
        project_and_average(0, k, alive, w, w_sum, iterates, outer, average, most)  # (h)
    return sent
