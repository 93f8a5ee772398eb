"""Time-varying graphs: only active edges carry messages.

The messages of learners along inactive edges stay with their senders; messages of certificates wait until the edge is
active. No mass is lost: the transition matrix of iteration t is B with the shares of inactive edges added to b_ii.
"""

from collections.abc import Callable

from gadget_svm.core.messages import Delivery, Exchange, MessageBatch
from gadget_svm.core.types import Flags, Ints
from gadget_svm.faults.base import bounced, clock


class ActiveEdges:
    """The edges that are active now.

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
        """Return the messages of learners, those along inactive edges addressed to their senders."""
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
