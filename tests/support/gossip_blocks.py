"""Blocks and rounds of gossip without any learning, for the tests of protocols and faults."""

from itertools import islice, pairwise

import numpy as np

from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.faults import FaultContext, wrap_all
from gadget_svm.gossip import averaging_block, rounds


def mass(block):
    """All sums and weights there are: at the nodes, and under way in running sums (sigma less what was seen)."""
    s, phi = block.s.sum(axis=0), block.phi.sum()
    if "sigma" in block.edge:
        s = s + block.edge["sigma"].sum(axis=0) - block.edge["seen"].sum(axis=0)
        phi = phi + block.edge["sigma_phi"].sum() - block.edge["seen_phi"].sum()
    return s, phi


def gossiped(protocol, block, steps, exchange=Delivery):
    """The block after each of so many rounds."""
    return islice(rounds(protocol, block, exchange), 1, steps + 1)


def some_block(network, width, seed, zeros=False):
    rng = np.random.default_rng(seed)
    n = rng.integers(0 if zeros else 1, 50, network.n).astype(float)
    n[0] = max(n[0], 1.0)
    return averaging_block(network, rng.normal(size=(network.n, width)) * 10, n, seed)


class Ledger:
    """An exchange that sums what was sent and has not arrived yet."""

    def __init__(self, exchange):
        self.exchange, self.vector, self.weight = exchange, 0.0, 0.0

    def __call__(self, messages):
        delivery = self.exchange(messages)
        self.vector = self.vector + messages.vector.sum(axis=0) - delivery.messages.vector.sum(axis=0)
        self.weight += messages.weight.sum() - delivery.messages.weight.sum()
        return delivery


def with_faults(faults, n, seed=0):
    """An exchange of n nodes with these faults."""
    return wrap_all(faults, FaultContext(n, seed))


def split(network, whole, parts):
    """The nodes of a block, in several blocks."""
    bounds = [network.n * p // parts for p in range(parts + 1)]
    made = []
    for first, last in pairwise(bounds):
        rows = whole.rows.of_nodes(first, last)
        block = type(whole).fresh(
            network, rows, whole.n[first:last], 1, whole.w.shape[2], seed=whole.seed, first=first, last=last
        )
        block.w[:] = whole.w[first:last]
        made.append(block)
    return made


def drive(gossip, blocks, rounds):
    """Run some rounds of several blocks; returns the bytes sent in each exchange."""
    sent = []
    for block in blocks:
        gossip.load_vectors(block, persist=True)
    for time in range(rounds):
        drive_rounds([gossip.round(block, time, 0) for block in blocks], sent)
    return sent


def drive_rounds(generators, sent):
    """Exchange messages between generators, which must all end after the same exchange."""
    outgoing = [next(generator) for generator in generators]
    while outgoing:
        messages = MessageBatch.merge(outgoing)
        sent.append(messages.nbytes)
        outgoing = [each for each in (_answer(g, Delivery(messages)) for g in generators) if each is not None]
        assert len(outgoing) in (0, len(generators))


def _answer(generator, delivery):
    try:
        return generator.send(delivery)
    except StopIteration:
        return None
