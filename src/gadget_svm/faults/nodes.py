"""Faults of nodes: those that stop, those that come and go, those that are slow or wake at random.

A node that is away takes no step and sends nothing. Mail to it bounces, for a connection that is refused is
noticed; what the node holds is out of the game until it returns. An idle node is here, and mail waits for it.

Time is counted in iterations of learning. For nodes that come and go or sit out at random, and for slow ones, every
exchange of a certificate counts as well: they do not stand still while one is made.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gadget_svm.faults.wrapping import World, bounced, members, probability
from gadget_svm.kernels.draws import CHURN, WAKE, uniform
from gadget_svm.mail import Delivery, Exchange, Mail

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Crash:
    """``nodes`` stop at iteration ``at``, and return at ``back`` if that is given."""

    nodes: Sequence[int] = (0,)
    at: int = 1
    back: int | None = None
    loses: bool = False

    def wrap(self, exchange: Exchange, world: World) -> Exchange:
        """The exchange with this fault."""
        chosen = members(self.nodes, world)

        def away(time: int, before: Flags) -> Flags:  # noqa: ARG001
            down = time >= self.at and (self.back is None or time < self.back)
            return chosen & down

        return _absences(exchange, world, away, lambda mail: mail.time)


@dataclass(frozen=True)
class Churn:
    """In every iteration each node leaves with probability ``leave``, and an absent one returns with ``join``."""

    leave: float = 0.01
    join: float = 0.1
    loses: bool = False

    def wrap(self, exchange: Exchange, world: World) -> Exchange:
        """The exchange with this fault."""
        leave, join = probability(self.leave, "leave"), probability(self.join, "join")
        nodes = np.arange(world.n_nodes)

        def away(time: int, before: Flags) -> Flags:
            u = uniform(world.seed, nodes, np.full(world.n_nodes, time), CHURN)
            return np.where(before, u >= join, u < leave)

        return _absences(exchange, world, away, _clock())


@dataclass(frozen=True)
class Slow:
    """``nodes`` act only in every ``every``-th iteration; mail waits for them meanwhile."""

    every: float = 2
    nodes: Sequence[int] = (0,)
    loses: bool = False

    def wrap(self, exchange: Exchange, world: World) -> Exchange:
        """The exchange with this fault."""
        every = int(self.every)
        if every < 1:
            raise ValueError(f"a slow node acts in every n-th iteration, n >= 1; got {self.every}")
        chosen = members(self.nodes, world)

        return _idling(exchange, world, lambda time: chosen & (time % every != 0))


@dataclass(frozen=True)
class Asynchronous:
    """Each node takes part in an iteration with probability ``p``; mail waits for those that do not."""

    p: float = 0.3
    loses: bool = False

    def wrap(self, exchange: Exchange, world: World) -> Exchange:
        """The exchange with this fault."""
        p, nodes = probability(self.p, "async"), np.arange(world.n_nodes)
        return _idling(
            exchange, world, lambda time: uniform(world.seed, nodes, np.full(world.n_nodes, time), WAKE) >= p
        )


def _clock() -> Callable[[Mail], int]:
    """The time of mail: iterations, and exchanges of certificates, whose mail is numbered below zero."""
    certifying = 0

    def now(mail: Mail) -> int:
        nonlocal certifying
        certifying += bool(mail.n_messages and mail.seq[0] < 0)
        return mail.time + certifying

    return now


def _absences(
    exchange: Exchange, world: World, away: Callable[[int, Flags], Flags], clock: Callable[[Mail], int]
) -> Exchange:
    """The exchange under absences: asked once per iteration who is away in the next one."""
    gone, time = np.zeros(world.n_nodes, dtype=np.bool_), -1

    def absent(mail: Mail) -> Delivery:
        nonlocal gone, time
        before, now = gone, clock(mail)
        if now != time:  # several exchanges may belong to one iteration
            gone, time = away(now, gone), now
        inner = exchange(bounced(mail, gone[mail.receiver] | gone[mail.sender]))
        joined, left = np.flatnonzero(before & ~gone), np.flatnonzero(gone & ~before)
        return inner._replace(joined=(*inner.joined, *joined.tolist()), left=(*inner.left, *left.tolist()))

    return absent


def _idling(exchange: Exchange, world: World, sits_out: Callable[[int], Flags]) -> Exchange:
    """The exchange with nodes that sit out some iterations: mail waits for them."""
    idle, time, clock = np.zeros(world.n_nodes, dtype=np.bool_), -1, _clock()
    kept: list[Mail] = []

    def idling(mail: Mail) -> Delivery:
        nonlocal idle, time, kept
        now = clock(mail)
        if now != time:
            idle, time = sits_out(now), now
        mail = Mail.merge([mail, *kept])
        waits = idle[mail.receiver]
        kept = [mail.select(waits)] if waits.any() else []
        inner = exchange(mail.select(~waits))
        return inner._replace(idle=(*inner.idle, *np.flatnonzero(idle).tolist()))

    return idling
