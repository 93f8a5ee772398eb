"""Faults of nodes: those that stop, those that come and go, those that are slow or wake at random.

A node that is away takes no step and sends nothing. Mail to it bounces, for a connection that is refused is
noticed; what the node holds is out of the game until it returns. An idle node is here, and mail waits for it.

Time is counted in iterations of learning. For nodes that come and go or sit out at random, and for slow ones, every
exchange of a certificate counts as well: they do not stand still while one is made.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gadget_svm.core.messages import Delivery, Exchange, MessageBatch
from gadget_svm.core.types import Flags
from gadget_svm.faults.base import FaultContext, bounced, members, probability
from gadget_svm.kernels.counter_rng import CHURN, WAKE, uniform


@dataclass(frozen=True)
class Crash:
    """``nodes`` stop at iteration ``at``, and return at ``back`` if that is given."""

    nodes: Sequence[int] = (0,)
    at: int = 1
    back: int | None = None
    loses: bool = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """The exchange with this fault."""
        chosen = members(self.nodes, context)

        def away(time: int, before: Flags) -> Flags:  # noqa: ARG001
            down = time >= self.at and (self.back is None or time < self.back)
            return chosen & down

        return _absences(exchange, context, away, lambda messages: messages.time)


@dataclass(frozen=True)
class Churn:
    """In every iteration each node leaves with probability ``leave``, and an absent one returns with ``join``."""

    leave: float = 0.01
    join: float = 0.1
    loses: bool = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """The exchange with this fault."""
        leave, join = probability(self.leave, "leave"), probability(self.join, "join")
        nodes = np.arange(context.n_nodes)

        def away(time: int, before: Flags) -> Flags:
            u = uniform(context.seed, nodes, np.full(context.n_nodes, time), CHURN)
            return np.where(before, u >= join, u < leave)

        return _absences(exchange, context, away, _clock())


@dataclass(frozen=True)
class Slow:
    """``nodes`` act only in every ``every``-th iteration; mail waits for them meanwhile."""

    every: float = 2
    nodes: Sequence[int] = (0,)
    loses: bool = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """The exchange with this fault."""
        every = int(self.every)
        if every < 1:
            raise ValueError(f"a slow node acts in every n-th iteration, n >= 1; got {self.every}")
        chosen = members(self.nodes, context)

        return _idling(exchange, context, lambda time: chosen & (time % every != 0))


@dataclass(frozen=True)
class Asynchronous:
    """Each node takes part in an iteration with probability ``p``; mail waits for those that do not."""

    p: float = 0.3
    loses: bool = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """The exchange with this fault."""
        p, nodes = probability(self.p, "async"), np.arange(context.n_nodes)
        return _idling(
            exchange, context, lambda time: uniform(context.seed, nodes, np.full(context.n_nodes, time), WAKE) >= p
        )


def _clock() -> Callable[[MessageBatch], int]:
    """The time of mail: iterations, and exchanges of certificates, whose mail is numbered below zero."""
    certifying = 0

    def now(messages: MessageBatch) -> int:
        nonlocal certifying
        certifying += bool(messages.n_messages and messages.seq[0] < 0)
        return messages.time + certifying

    return now


def _absences(
    exchange: Exchange, context: FaultContext, away: Callable[[int, Flags], Flags], clock: Callable[[MessageBatch], int]
) -> Exchange:
    """The exchange under absences: asked once per iteration who is away in the next one."""
    gone, time = np.zeros(context.n_nodes, dtype=np.bool_), -1

    def absent(messages: MessageBatch) -> Delivery:
        nonlocal gone, time
        before, now = gone, clock(messages)
        if now != time:  # several exchanges may belong to one iteration
            gone, time = away(now, gone), now
        inner = exchange(bounced(messages, gone[messages.receiver] | gone[messages.sender]))
        joined, left = np.flatnonzero(before & ~gone), np.flatnonzero(gone & ~before)
        return inner._replace(joined=(*inner.joined, *joined.tolist()), left=(*inner.left, *left.tolist()))

    return absent


def _idling(exchange: Exchange, context: FaultContext, sits_out: Callable[[int], Flags]) -> Exchange:
    """The exchange with nodes that sit out some iterations: mail waits for them."""
    idle, time, clock = np.zeros(context.n_nodes, dtype=np.bool_), -1, _clock()
    kept: list[MessageBatch] = []

    def idling(messages: MessageBatch) -> Delivery:
        nonlocal idle, time, kept
        now = clock(messages)
        if now != time:
            idle, time = sits_out(now), now
        messages = MessageBatch.merge([messages, *kept])
        waits = idle[messages.receiver]
        kept = [messages.select(waits)] if waits.any() else []
        inner = exchange(messages.select(~waits))
        return inner._replace(idle=(*inner.idle, *np.flatnonzero(idle).tolist()))

    return idling
