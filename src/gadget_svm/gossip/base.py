"""The interface of gossip protocols, and the steps that they share.

A protocol averages vectors over the network and does not know what they mean. It keeps no state of its own: all of it
is in the block, so one protocol object serves any number of blocks.
"""

from collections.abc import Generator
from typing import Protocol, runtime_checkable

import numpy as np

from gadget_svm import spectral
from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.core.network import Network
from gadget_svm.core.types import Floats, Ints
from gadget_svm.kernels import ThreadTeam
from gadget_svm.kernels import gossip as kernels

Round = Generator[MessageBatch, Delivery, None]
"""One round of gossip, as a generator: it yields the messages of a block and receives a delivery, once or several
times."""


def resume(iteration: Round, delivery: Delivery) -> MessageBatch | None:
    """Hand an iteration what arrived; return what it sends next, or None at its end."""
    try:
        return iteration.send(delivery)
    except StopIteration:
        return None


@runtime_checkable
class Gossip(Protocol):
    """A gossip protocol. Derive from this class, write `round`, and declare what differs from the defaults.

    Attributes
    ----------
    name : str, default "custom"
        The name in `GadgetSVC.gossip_` and in tables.
    loss_proof : bool, default False
        Whether the average stays correct if messages are lost.
    conserves_mass : bool, default True
        Whether ``block.phi`` is mass counted in rows, whose total over all nodes is the same after every round.
    weighted : bool, default True
        Whether nodes count by their rows n_i. False: all nodes count the same.
    restartable : bool, default True
        Whether every iteration may start from new sums (``persist=False``).
    floods_flag : bool, default False
        Whether every node sends ``block.edge["flag"]`` to all its neighbours as the messages' note. Required for
        ``gossip_rounds="diameter"``.
    fused_in_gadget, fused_in_average : bool, default False
        Whether compiled code computes the same rounds, in GADGET's fused iterations or by `average_fused`. A class that
        overrides `round` does not inherit these.

    Examples
    --------
    >>> from gadget_svm import GadgetSVC, Gadget
    >>> from gadget_svm.gossip import Gossip, PushSum
    >>> class NoisyPushSum(Gossip):
    ...     name = "noisy"
    ...     def round(self, block, time, since):
    ...         block.s += 1e-9
    ...         yield from PushSum().round(block, time, since)
    >>> model = GadgetSVC(4, algorithm=Gadget(gossip=NoisyPushSum()), max_iter=3, stopping=None, random_state=0)
    >>> model.fit([[0.0], [1.0]] * 8, [0, 1] * 8).gossip_
    'noisy'
    """

    name: str = "custom"
    loss_proof: bool = False
    conserves_mass: bool = True
    weighted: bool = True
    restartable: bool = True
    floods_flag: bool = False
    fused_in_gadget: bool = False
    fused_in_average: bool = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "round" in vars(cls):  # the parent's compiled code does not compute this round
            for flag in ("fused_in_gadget", "fused_in_average"):
                setattr(cls, flag, vars(cls).get(flag, False))

    def round(self, block: Block, time: int, since: int) -> Round:
        """Send messages and absorb what is delivered.

        Parameters
        ----------
        block : Block
            The nodes. ``block.s`` and ``block.phi`` are their sums and weights; `draw_edges`, `make_messages` and
            `absorb` are the usual steps.
        time : int
            The iteration, for the messages.
        since : int
            Messages with a lower sequence number are from an earlier iteration and out of date.
        """
        raise NotImplementedError

    def load_vectors(self, block: Block, persist: bool) -> None:
        """Enter the vectors ``block.w`` into the sums.

        Parameters
        ----------
        block : Block
            The nodes.
        persist : bool
            True: the sums keep their mass, and the step n (w - s/phi) is added. False: s = n w, phi = n.
        """
        if not (persist or self.restartable):
            raise ValueError(
                f"gossip={self.name!r} keeps its mass from one iteration to the next and cannot restart: "
                "use mass='persistent', or gossip='push-sum'"
            )
        block.team.run(
            kernels.load_vectors, block.k, block.s.shape[1], block.alive, block.n, block.flat, block.s, block.phi,
            block.held, persist,
        )  # fmt: skip

    def check(self, network: Network) -> None:
        """Raise ValueError if the protocol does not converge on the network."""
        spectral.check_connected(network)

    def rounds_to_mix(self, network: Network, gamma: float = 0.01) -> int:
        """Return how many rounds bring the relative error down to ``gamma``."""
        return spectral.randomised_rounds(network, gamma)

    def average_fused(self, network: Network, state: Floats, n_rounds: int, seed: int, team: ThreadTeam) -> Floats:
        """Return the state (sums, and weights in the last column) after compiled rounds without messages."""
        message = f"gossip={self.name!r} declares no compiled rounds"
        raise NotImplementedError(message)  # a body of one line would make the method abstract

    def set_neighbours(self, block: Block, neighbours: Ints) -> None:  # noqa: ARG002
        """Change the neighbours of a block of one node, between two rounds."""
        raise ValueError(f"gossip={self.name!r} cannot change neighbours during a run: use gossip='running-sum'")

    def reset_edge(self, block: Block, other: int) -> None:  # noqa: ARG002
        """Note that a neighbour restarted and lost its state."""
        raise ValueError(f"gossip={self.name!r} cannot continue after a neighbour restarts: use gossip='running-sum'")


def estimate(block: Block) -> None:
    """Set w = s/phi at every node that has mass."""
    block.team.run(kernels.estimate, block.k, block.s.shape[1], block.alive, block.s, block.phi, block.flat)


def draw_edges(block: Block) -> Ints:
    """Return the out-edge that each node draws for its next message, by b_ij; -1 for none."""
    links = block.links
    return kernels.draw_edges(block.alive, block.first, links.indptr, links.table, block.seed, block.exchanges)


def make_messages(
    block: Block, time: int, senders: Ints | None, edges: Ints, vector: Floats, weight: Floats,
    note: Floats | None = None,
) -> MessageBatch:  # fmt: skip
    """Return messages along ``edges``, numbered by the block's exchanges.

    Parameters
    ----------
    block : Block
        The nodes that send.
    time : int
        The iteration.
    senders : array of int or None
        The sender of each message. None: one message per node, in order.
    edges : array of int
        The edge of each row of ``vector``; -1 sends nothing.
    vector, weight, note : arrays
        What is sent, see `MessageBatch`.
    """
    if senders is None:
        senders = np.arange(block.first, block.first + block.k, dtype=np.int64)
    seq = np.full(len(edges), block.exchanges, dtype=np.int64)
    block.exchanges += 1
    receivers = block.links.target[edges].astype(np.int64) if len(block.links.target) else edges
    messages = MessageBatch(time, senders, receivers, seq, vector, weight, note)
    return messages if len(edges) == 0 or edges.min() >= 0 else messages.select(edges >= 0)


def message_order(block: Block, messages: MessageBatch) -> tuple[Ints, Ints]:
    """Return the block's messages in the fixed order of absorption, and where each receiver's begin in it."""
    return kernels.order_messages(messages.receiver, messages.sender, messages.seq, block.first, block.k)


def absorb(block: Block, messages: MessageBatch, since: int) -> None:
    """Add the vectors and weights that were sent to each node to its sums."""
    order, start = message_order(block, messages)
    block.team.run(
        kernels.absorb, block.k, block.s.shape[1], order, start, messages.seq, since, messages.vector, messages.weight,
        block.s, block.phi,
    )  # fmt: skip
    if messages.note is not None:
        receivers = np.repeat(np.arange(block.k), np.diff(start))
        np.maximum.at(block.edge["flag"], receivers, messages.note[order])


def until_converged(gossip: Gossip, block: Block, time: int, diameter: int, gamma: float, max_rounds: int) -> Round:
    """Run rounds until no node's estimate changed by more than a relative ``gamma`` in ``diameter`` rounds.

    The technique of Kempe, Dobra and Gehrke (2003) that the paper mentions: no node needs to know tau_mix. During every
    ``diameter`` rounds each node sends on the largest change that it knows of, from the ``diameter`` rounds before. At
    the end of these rounds all nodes know the largest change of all nodes, so they stop in the same round. There are at
    most ``max_rounds`` rounds.
    """
    length, since = max(1, diameter), block.exchanges
    change = np.full(block.k, np.inf)
    for _ in range(max(2, max_rounds // length)):
        before = _estimates(block)
        block.edge["flag"] = change.copy()
        for _ in range(length):
            yield from gossip.round(block, time, since)
        if np.all(block.edge["flag"] <= gamma):
            break
        after = _estimates(block)
        change = np.linalg.norm(after - before, axis=1) / np.maximum(np.linalg.norm(after, axis=1), 1e-300)
    del block.edge["flag"]


def _estimates(block: Block) -> Floats:
    return np.asarray(block.s / np.where(block.phi > 0, block.phi, 1.0)[:, None], dtype=np.float64)
