"""What a fault is: a value that wraps an exchange. Owns the contract and the draws they share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.messages import Exchange, MessageBatch
from gadget_svm.kernels.counter_rng import uniform


@dataclass(frozen=True)
class FaultContext:
    """What a fault may know: how many nodes there are, and the seed of its draws."""

    n_nodes: int
    seed: int


class Fault(Protocol):
    """Wraps an exchange; its parameters are plain values, its state lives in the wrapped function."""

    loses: bool
    """Whether messages may vanish for good (or their sender): then mass-conserving protocols go astray."""

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """The exchange with this fault."""


def chance(messages: MessageBatch, context: FaultContext, purpose: int) -> NDArray[np.float64]:
    """A draw per message, by its sender, receiver and sequence number, so that grouping does not change it."""
    pair = messages.sender * np.int64(context.n_nodes) + messages.receiver
    return uniform(context.seed, pair, messages.seq, purpose)


def probability(p: float, what: str) -> float:
    """``p`` if it is a probability."""
    if not 0 <= p <= 1:
        raise ValueError(f"{what} is a probability, between 0 and 1, got {p}")
    return p


def members(nodes: Sequence[int] | float, context: FaultContext) -> NDArray[np.bool_]:
    """Which nodes are meant by one number or several."""
    chosen = np.zeros(context.n_nodes, dtype=np.bool_)
    for node in np.atleast_1d(np.asarray(nodes)).tolist():
        if node not in range(context.n_nodes):
            raise ValueError(f"there is no node {node}: the nodes are 0 to {context.n_nodes - 1}")
        chosen[int(node)] = True
    return chosen


def bounced(messages: MessageBatch, which: NDArray[np.bool_]) -> MessageBatch:
    """The same mail with some messages returned to their senders: to oneself is where a bounced share belongs."""
    return messages._replace(receiver=np.where(which, messages.sender, messages.receiver)) if which.any() else messages
