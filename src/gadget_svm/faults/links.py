"""Faults of links: messages are lost, come back to their senders, are late, or cannot cross between groups of nodes.

`ActiveEdges` is for graphs that change with time: messages travel only on edges that are active.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gadget_svm.core.messages import Delivery, Exchange, MessageBatch
from gadget_svm.core.types import Flags, Ints
from gadget_svm.faults.base import Fault, FaultContext, bounced, chance, clock, node_mask, probability
from gadget_svm.kernels.counter_rng import BOUNCE, DELAY, LOSS


@dataclass(frozen=True)
class Loss(Fault):
    """Each message is lost with probability p. Its content is lost too: the sender does not get it back.

    Parameters
    ----------
    p : float
        The probability.
    """

    p: float
    loses = True

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """Return the exchange with this fault."""
        p = probability(self.p, "loss")
        return lambda messages: exchange(messages.select(chance(messages, context, LOSS) >= p))


@dataclass(frozen=True)
class Bounce(Fault):
    """Each message fails with probability p. Its sender notices that, and keeps the content.

    Parameters
    ----------
    p : float
        The probability.
    """

    p: float
    loses = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """Return the exchange with this fault."""
        p = probability(self.p, "bounce")
        return lambda messages: exchange(bounced(messages, chance(messages, context, BOUNCE) < p))


@dataclass(frozen=True)
class Delay(Fault):
    """Each message is late by a number of exchanges that is drawn uniformly from ``least`` to ``most``.

    Messages that are still on their way when the training ends are dropped.

    Parameters
    ----------
    most : int
        The longest delay, in exchanges.
    least : int, default 0
        The shortest one.
    """

    most: float
    least: float = 0
    loses = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """Return the exchange with this fault."""
        least, most = int(self.least), int(self.most)
        if not 0 <= least <= most:
            raise ValueError(f"a delay is a number of exchanges, 0 <= least <= most; got {self.least} to {self.most}")
        waiting: dict[int, list[MessageBatch]] = {}
        now = 0

        def delayed(messages: MessageBatch) -> Delivery:
            nonlocal now
            lag = least + np.floor(chance(messages, context, DELAY) * (most - least + 1)).astype(np.int64)
            for wait in np.unique(lag):
                waiting.setdefault(now + int(wait), []).append(messages.select(lag == wait))
            due = waiting.pop(now, [messages.select(np.zeros(messages.n_messages, dtype=np.bool_))])
            now += 1
            return exchange(MessageBatch.merge(due)._replace(time=messages.time))

        return delayed


@dataclass(frozen=True)
class Partition(Fault):
    """From iteration ``at`` until ``heal`` no message crosses between groups of nodes.

    Parameters
    ----------
    at : int, default 1
        The first iteration.
    heal : int or None, default None
        The iteration in which the partition ends; None: never.
    groups : list of lists of int, or None, default None
        The nodes of each group. Nodes that are not listed form one more group. None: two halves of the nodes.
    lost : bool, default False
        True: messages that would cross are lost. False: they come back to their senders.
    """

    at: float = 1
    heal: float | None = None
    groups: Sequence[Sequence[int]] | None = None
    lost: bool = False

    @property
    def loses(self) -> bool:
        """Whether crossing messages are lost."""
        return self.lost

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """Return the exchange with this fault."""
        side = (np.arange(context.n_nodes) >= context.n_nodes // 2).astype(np.int64)
        if self.groups is not None:
            side[:] = -1
        for number, group in enumerate(self.groups or []):
            side[node_mask(group, context)] = number

        def cut(messages: MessageBatch) -> Delivery:
            if messages.time < self.at or (self.heal is not None and messages.time >= self.heal):
                return exchange(messages)
            crossing = side[messages.sender] != side[messages.receiver]
            return exchange(messages.select(~crossing) if self.lost else bounced(messages, crossing))

        return cut


class ActiveEdges:
    """The edges of a time-varying graph that are active now: only these carry messages.

    The messages of learners along inactive edges stay with their senders; messages of certificates wait until the edge
    is active. No mass is lost: the transition matrix of iteration t is B with the shares of inactive edges added to
    b_ii.

    Parameters
    ----------
    schedule : callable
        ``schedule(t, sender, receiver)`` returns which edges are active in iteration t, see `Topology.active`.
    """

    def __init__(self, schedule: Callable[[int, Ints, Ints], Flags]) -> None:
        self.schedule = schedule
        self._clock = clock()

    def _active(self, messages: MessageBatch) -> Flags:
        return self.schedule(self._clock(messages), messages.sender, messages.receiver)

    def readdress(self, messages: MessageBatch) -> MessageBatch:
        """Return the messages of learners. Those along inactive edges are addressed to their senders."""
        return bounced(messages, ~self._active(messages))

    def wrap(self, exchange: Exchange) -> Exchange:
        """Return the exchange in which certificates' messages wait while their edge is inactive."""
        waiting: list[MessageBatch] = []

        def exchange_when_active(messages: MessageBatch) -> Delivery:
            nonlocal waiting
            if messages.n_messages and messages.seq[0] >= 0:
                return exchange(messages)
            messages = MessageBatch.merge([messages, *waiting])
            active = self._active(messages)
            waiting = [] if active.all() else [messages.select(~active)]
            return exchange(messages.select(active))

        return exchange_when_active
