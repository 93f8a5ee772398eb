"""Faults of nodes: nodes crash, leave for a while, leave and return again and again, or skip iterations.

A node that is away neither sends nor receives: messages from and to it come back to their senders. It keeps its rows
and its state, and continues with them when it returns. Messages to a node that is idle wait for it. Time counts
iterations, and the exchanges of certificates (see `clock`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gadget_svm.core.messages import Delivery, Exchange, MessageBatch
from gadget_svm.core.types import Flags, Floats
from gadget_svm.faults.base import Clock, Fault, FaultContext, bounced, clock, node_mask, probability
from gadget_svm.kernels.counter_rng import CHURN, WAKE, uniform


@dataclass(frozen=True)
class Crash(Fault):
    """Some nodes stop, and may return.

    Parameters
    ----------
    nodes : int or list of int, default (0,)
        The nodes.
    at : int, default 1
        The iteration in which they stop.
    back : int or None, default None
        The iteration in which they return; None: never.
    """

    nodes: Sequence[int] = (0,)
    at: int = 1
    back: int | None = None
    loses = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """Return the exchange with this fault."""
        chosen = node_mask(self.nodes, context)

        def away(time: int, before: Flags) -> Flags:  # noqa: ARG001
            return chosen & (time >= self.at and (self.back is None or time < self.back))

        return _with_absences(exchange, context, away, lambda messages: messages.time)


@dataclass(frozen=True)
class Churn(Fault):
    """Nodes leave and return at random.

    Parameters
    ----------
    leave : float, default 0.01
        The probability that a live node leaves, in each iteration.
    join : float, default 0.1
        The probability that a node that is away returns.
    """

    leave: float = 0.01
    join: float = 0.1
    loses = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """Return the exchange with this fault."""
        leave, join = probability(self.leave, "leave"), probability(self.join, "join")

        def away(time: int, before: Flags) -> Flags:
            u = _draws(context, time, CHURN)
            return np.where(before, u >= join, u < leave)

        return _with_absences(exchange, context, away, clock())


@dataclass(frozen=True)
class Flapping(Fault):
    """Some nodes leave and return again and again: ``period`` iterations away, then as many back.

    Parameters
    ----------
    nodes : int or list of int, default (0,)
        The nodes.
    period : int, default 5
        How many iterations each absence lasts, and how many are between two absences.
    """

    nodes: Sequence[int] = (0,)
    period: int = 5
    loses = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """Return the exchange with this fault."""
        chosen, period = node_mask(self.nodes, context), int(self.period)
        if period < 1:
            raise ValueError(f"a flapping node is away for a number of iterations, at least 1; got {self.period}")
        return _with_absences(exchange, context, lambda time, _: chosen & (time // period % 2 == 1), clock())


@dataclass(frozen=True)
class Slow(Fault):
    """Some nodes act only in every n-th iteration. Messages wait for them.

    Parameters
    ----------
    every : int, default 2
        The number n.
    nodes : int or list of int, default (0,)
        The nodes.
    """

    every: float = 2
    nodes: Sequence[int] = (0,)
    loses = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """Return the exchange with this fault."""
        every, chosen = int(self.every), node_mask(self.nodes, context)
        if every < 1:
            raise ValueError(f"a slow node acts in every n-th iteration, n >= 1; got {self.every}")
        return _with_idle(exchange, context, lambda time: chosen & (time % every != 0))


@dataclass(frozen=True)
class Asynchronous(Fault):
    """Each node takes part in an iteration with probability ``p``. Messages to the other nodes wait for them.

    Parameters
    ----------
    p : float, default 0.3
        The probability.
    """

    p: float = 0.3
    loses = False

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """Return the exchange with this fault."""
        p = probability(self.p, "async")
        return _with_idle(exchange, context, lambda time: _draws(context, time, WAKE) >= p)


def _draws(context: FaultContext, time: int, purpose: int) -> Floats:
    return uniform(context.seed, np.arange(context.n_nodes), np.full(context.n_nodes, time), purpose)


def _with_absences(
    exchange: Exchange, context: FaultContext, away: Callable[[int, Flags], Flags], now: Clock
) -> Exchange:
    """Return the exchange with nodes that are away. ``away(time, before)`` is called once per iteration.

    Who is away is asked when messages meet this fault, not when they arrive. If `Delay` is given before it, a late
    message to a node that has left meanwhile comes back to its sender. If `Delay` is given after it, the message is
    delivered. See `registry.wrap_all` for the order.
    """
    gone, time = np.zeros(context.n_nodes, dtype=np.bool_), -1

    def exchange_with_absences(messages: MessageBatch) -> Delivery:
        nonlocal gone, time
        before, at = gone, now(messages)
        if at != time:  # an iteration may have several exchanges
            gone, time = away(at, gone), at
        inner = exchange(bounced(messages, gone[messages.receiver] | gone[messages.sender]))
        joined, left = np.flatnonzero(before & ~gone), np.flatnonzero(gone & ~before)
        return inner._replace(joined=(*inner.joined, *joined.tolist()), left=(*inner.left, *left.tolist()))

    return exchange_with_absences


def _with_idle(exchange: Exchange, context: FaultContext, idle_at: Callable[[int], Flags]) -> Exchange:
    """Return the exchange with nodes that skip some iterations; messages wait for them."""
    idle, time, now = np.zeros(context.n_nodes, dtype=np.bool_), -1, clock()
    kept: list[MessageBatch] = []

    def exchange_with_idle(messages: MessageBatch) -> Delivery:
        nonlocal idle, time, kept
        at = now(messages)
        if at != time:
            idle, time = idle_at(at), at
        messages = MessageBatch.merge([messages, *kept])
        waits = idle[messages.receiver]
        kept = [messages.select(waits)] if waits.any() else []
        inner = exchange(messages.select(~waits))
        return inner._replace(idle=(*inner.idle, *np.flatnonzero(idle).tolist()))

    return exchange_with_idle
