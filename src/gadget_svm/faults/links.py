"""Faults of links: messages that vanish, come back, come late, or cannot cross."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gadget_svm.core.messages import Delivery, Exchange, MessageBatch
from gadget_svm.faults.base import FaultContext, bounced, chance, members, probability
from gadget_svm.kernels.counter_rng import BOUNCE, DELAY, LOSS


@dataclass(frozen=True)
class Loss:
    """Each message vanishes with probability p, and what it carried with it."""

    p: float
    loses: bool = True

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """The exchange with this fault."""
        p = probability(self.p, "loss")
        return lambda messages: exchange(messages.select(chance(messages, context, LOSS) >= p))


@dataclass(frozen=True)
class Bounce:
    """Each message fails with probability p, the sender notices, and keeps what it carried."""

    p: float
    loses: bool = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """The exchange with this fault."""
        p = probability(self.p, "bounce")
        return lambda messages: exchange(bounced(messages, chance(messages, context, BOUNCE) < p))


@dataclass(frozen=True)
class Delay:
    """Each message takes between ``least`` and ``most`` exchanges longer, drawn evenly."""

    most: float
    least: float = 0
    loses: bool = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """The exchange with this fault."""
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
class Partition:
    """From iteration ``at`` until ``heal`` no mail crosses between groups: it bounces, or is lost.

    ``groups`` lists the nodes of each group, and those not listed are one more; by default the network falls into
    two halves.
    """

    at: float = 1
    heal: float | None = None
    groups: Sequence[Sequence[int]] | None = None
    lost: bool = False

    @property
    def loses(self) -> bool:
        """Only if crossing mail is lost."""
        return self.lost

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """The exchange with this fault."""
        side = (np.arange(context.n_nodes) >= context.n_nodes // 2).astype(np.int64)
        if self.groups is not None:
            side[:] = -1
        for number, group in enumerate(self.groups or []):
            side[members(group, context)] = number

        def cut(messages: MessageBatch) -> Delivery:
            if messages.time < self.at or (self.heal is not None and messages.time >= self.heal):
                return exchange(messages)
            crossing = side[messages.sender] != side[messages.receiver]
            return exchange(messages.select(~crossing) if self.lost else bounced(messages, crossing))

        return cut
