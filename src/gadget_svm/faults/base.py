"""The interface of faults, and the random draws, checks and clock that they share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from gadget_svm.core.messages import Exchange, MessageBatch
from gadget_svm.core.types import Flags, Floats
from gadget_svm.kernels.counter_rng import uniform

Clock = Callable[[MessageBatch], int]


@dataclass(frozen=True)
class FaultContext:
    """What a fault knows about the run.

    Attributes
    ----------
    n_nodes : int
        How many nodes there are.
    seed : int
        The seed of the fault's draws.
    """

    n_nodes: int
    seed: int


@runtime_checkable
class Fault(Protocol):
    """Wraps an exchange. Derive from this class, declare `loses`, and write `wrap`.

    Its parameters are plain values; its state lives in the wrapped function.

    Attributes
    ----------
    loses : bool
        Whether messages, and the mass in them, may vanish. Gossip protocols that cannot recover them are then avoided
        or warned about. It has no default.

    Examples
    --------
    >>> from gadget_svm import GadgetSVC
    >>> from gadget_svm.faults import Fault
    >>> class LoseEveryThird(Fault):
    ...     loses = True
    ...     def wrap(self, exchange, context):
    ...         return lambda messages: exchange(messages.select(messages.seq % 3 > 0))
    >>> model = GadgetSVC(4, faults=[LoseEveryThird()], max_iter=3, stopping=None, random_state=0)
    >>> model.fit([[0.0], [1.0]] * 8, [0, 1] * 8).n_iter_
    3
    """

    @property
    def loses(self) -> bool:
        """Return whether messages may vanish."""
        raise TypeError(
            f"the fault {type(self).__name__} does not declare whether messages may be lost: give the class an "
            "attribute 'loses', True if messages can vanish and False if all arrive in the end or come back"
        )

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """Return the exchange with this fault.

        Parameters
        ----------
        exchange : callable
            Takes the messages that the nodes send (`MessageBatch`), and returns what reaches them (`Delivery`).
        context : FaultContext
            The number of nodes, and a seed.
        """


def chance(messages: MessageBatch, context: FaultContext, purpose: int) -> Floats:
    """Return a uniform draw per message, which depends only on its sender, receiver and sequence number."""
    pair = messages.sender * np.int64(context.n_nodes) + messages.receiver
    return uniform(context.seed, pair, messages.seq, purpose)


def probability(p: float, what: str) -> float:
    """Return ``p`` if it is a probability."""
    if not 0 <= p <= 1:
        raise ValueError(f"{what} is a probability, between 0 and 1, got {p}")
    return p


def node_mask(nodes: Sequence[int] | float, context: FaultContext) -> Flags:
    """Return a mask of one node or several."""
    chosen = np.zeros(context.n_nodes, dtype=np.bool_)
    for node in np.atleast_1d(np.asarray(nodes)).tolist():
        if node not in range(context.n_nodes):
            raise ValueError(f"there is no node {node}: the nodes are 0 to {context.n_nodes - 1}")
        chosen[int(node)] = True
    return chosen


def bounced(messages: MessageBatch, which: Flags) -> MessageBatch:
    """Return the messages; those in ``which`` are addressed to their senders, which keep the content."""
    return messages._replace(receiver=np.where(which, messages.sender, messages.receiver)) if which.any() else messages


def clock() -> Clock:
    """Return a function that tells the time of a batch: iterations, plus exchanges of certificates.

    Messages of certificates have negative numbers. Their exchanges count as time, so that faults also change during a
    certificate.
    """
    certifying = 0

    def now(messages: MessageBatch) -> int:
        nonlocal certifying
        certifying += bool(messages.n_messages and messages.seq[0] < 0)
        return messages.time + certifying

    return now
