"""Robust mixing: nodes average vectors although some of their neighbours lie.

Push-Sum carries mass, so a node that lies about its share can move the average of all nodes arbitrarily far. Here every
node sends its whole vector to all neighbours, and moves towards their vectors by a bounded step. Owns the protocol; its
arithmetic is `kernels.gossip.mix_robustly`.
"""

from dataclasses import dataclass

import numpy as np

from gadget_svm import spectral
from gadget_svm.core.block import Block, Links
from gadget_svm.core.lookup import lookup
from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.core.network import Network
from gadget_svm.core.types import Ints
from gadget_svm.gossip.base import Gossip, Round, make_messages, message_order
from gadget_svm.kernels import gossip as kernels

TRIMS = {"clip": False, "trim": True}
"""The kinds of robust mixing, and whether they drop the farthest neighbours (True) or clip differences (False)."""


@dataclass(frozen=True)
class RobustMixing(Gossip):
    """Mix bounded differences: w_i <- w_i + sum_j b_ij T(w_j - w_i), over the neighbours j heard in this round.

    A message holds the sender's vector w_j and the number a_j = n_j / (d_j + 1), where n_j counts its rows and d_j is
    its degree. With c_ij = min(a_i, a_j), the same at both ends, b_ij = c_ij / n_i. So n_i b_ij = n_j b_ji, nodes count
    by their rows, and the b_ij of a node sum to less than one. A node needs only the number a_j from its neighbour, and
    a false one can never make b_ij larger than 1 / (d_i + 1), whatever number of rows the neighbour claims.

    T bounds what liars can do. "clip" shortens every difference to at most the (m - 2 liars)-th smallest distance among
    the m neighbours heard: at least ``liars`` + 1 honest neighbours are as far or farther. "trim" drops the ``liars``
    farthest neighbours: a liar stays only if an honest neighbour is farther. Vectors that are not finite count as the
    farthest, and are never mixed.

    The sum of n_i w_i is conserved while no difference is clipped or dropped, which is always so with ``liars=0``.
    Otherwise the two ends of an edge may move by different amounts, and the average moves. Without learning between
    rounds, "clip" may stop before all nodes agree: a node does not move once m - 2 liars neighbours have its own
    vector.

    Parameters
    ----------
    kind : "clip" or "trim", default "clip"
        How differences are bounded.
    liars : int, default 1
        How many neighbours of a node may lie. Every node needs more than twice this number of neighbours.
    lazy : bool, default False
        Halve every b_ij. No eigenvalue of the mixing is then below 0, so that one round after every step is stable
        also if steps have momentum.

    Examples
    --------
    >>> from gadget_svm import Gadget, GadgetSVC
    >>> from gadget_svm.gossip import RobustMixing
    >>> model = GadgetSVC(4, topology="complete", algorithm=Gadget(gossip=RobustMixing("trim", liars=1)), max_iter=3,
    ...                   stopping=None, random_state=0)
    >>> model.fit([[0.0], [1.0]] * 8, [0, 1] * 8).gossip_
    'robust-mixing'
    """

    kind: str = "clip"
    liars: int = 1
    lazy: bool = False

    name = "robust-mixing"
    conserves_mass = False  # there is no mass: every vector has weight one, and is counted by its node's rows

    def check(self, network: Network) -> None:
        """Raise ValueError if the parameters or the network do not allow robust mixing."""
        lookup("kind of robust mixing", self.kind, TRIMS)
        if isinstance(self.liars, bool) or not isinstance(self.liars, int | np.integer) or self.liars < 0:
            raise ValueError(f"liars is how many neighbours of a node may lie, a whole number; got {self.liars!r}")
        if network.directed:
            raise ValueError(
                f"robust mixing needs messages in both directions of an edge, and {network.name!r} is directed: use an "
                "undirected topology such as 'random-regular:8', or leave robust out"
            )
        if network.weights is not None:
            raise ValueError(
                "robust mixing uses the edges of the graph and no transition matrix, so the given B would be ignored: "
                "give the graph alone (A != 0), or leave robust out"
            )
        spectral.check_connected(network)
        lowest, needed = int(network.degree.min()), 2 * self.liars + 1
        if lowest < needed and self.liars:
            raise ValueError(
                f"liars={self.liars} needs at least {needed} neighbours at every node, more than twice as many as may "
                f"lie; a node of {network.name!r} has {lowest}: use a denser topology, such as "
                f"'random-regular:{needed + 1}' or 'complete', or fewer liars"
            )

    def rounds_to_mix(self, network: Network, gamma: float = 0.01) -> int:  # noqa: ARG002
        """Raise ValueError: how fast differences shrink depends on what is clipped."""
        raise ValueError("the rounds of robust mixing cannot be computed from B: use a fixed gossip_rounds, such as 1")

    def load_vectors(self, block: Block, persist: bool) -> None:  # noqa: ARG002 - there is no mass to persist
        """Use the vectors themselves as sums, all of weight one."""
        block.phi[:] = 1.0
        block.s[block.alive] = block.flat[block.alive]

    def set_neighbours(self, block: Block, neighbours: Ints) -> None:
        """Change the neighbours of a block of one node: edges have no state."""
        block.links = Links.alone(neighbours.astype(np.int32))

    def reset_edge(self, block: Block, other: int) -> None:
        """Do nothing: edges have no state."""

    def round(self, block: Block, time: int, since: int) -> Round:
        """Send every node's vector to all its neighbours, and move towards theirs. A lost message is left out."""
        self.mix(block, (yield self.messages(block, time)), since)

    def messages(self, block: Block, time: int) -> MessageBatch:
        """Return the messages of a round: every node's vector to all its neighbours."""
        degree = np.diff(block.links.indptr)
        senders: Ints = np.repeat(np.arange(block.k), degree)
        edges = np.where(block.alive[senders], np.arange(len(senders)), -1)
        claims = block.n / (degree + 1)
        return make_messages(block, time, senders + block.first, edges, block.s[senders], claims[senders])

    def mix(self, block: Block, delivery: Delivery, since: int) -> None:
        """Move every node's vector towards those that arrived."""
        trims = lookup("kind of robust mixing", self.kind, TRIMS)
        degree = np.diff(block.links.indptr)
        claims, most = block.n / (degree + 1), (0.5 if self.lazy else 1.0) / (degree + 1.0)
        block.note_presence(delivery)
        messages = delivery.messages
        order, start = message_order(block, messages)
        block.team.run(
            kernels.mix_robustly, block.k, block.s.shape[1], order, start, messages.sender, messages.seq, since,
            messages.vector, messages.weight, block.first, block.n, most, claims, int(self.liars), trims, block.s,
        )  # fmt: skip
