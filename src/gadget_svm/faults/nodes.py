"""Faults of nodes: those that stop, those that come and go, those that are slow.

A node that is away takes no step and sends nothing. Mail to it bounces, for a connection that is refused is
noticed; what the node holds is out of the game until it returns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gadget_svm.faults.wrapping import World, bounced, members, probability
from gadget_svm.kernels.draws import CHURN, uniform
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

        return _absences(exchange, world, away)


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

        return _absences(exchange, world, away)


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

        def away(time: int, before: Flags) -> Flags:  # noqa: ARG001
            return chosen & (time % every != 0)

        return _absences(exchange, world, away, hold=True)


def _absences(exchange: Exchange, world: World, away: Callable[[int, Flags], Flags], hold: bool = False) -> Exchange:
    """The exchange under absences: asked once per iteration who is away in the next one."""
    gone, clock = np.zeros(world.n_nodes, dtype=np.bool_), -1
    kept: list[Mail] = []

    def absent(mail: Mail) -> Delivery:
        nonlocal gone, clock, kept
        before = gone
        if mail.time != clock:  # several exchanges may belong to one iteration
            gone, clock = away(mail.time, gone), mail.time
        mail, kept = Mail.merge([mail, *kept]) if kept else mail, []
        to_absent = gone[mail.receiver]
        if hold:
            kept = [mail.select(to_absent)] if to_absent.any() else []
            mail = mail.select(~to_absent)
        else:
            mail = bounced(mail, to_absent | gone[mail.sender])
        inner = exchange(mail)
        joined, left = np.flatnonzero(before & ~gone), np.flatnonzero(gone & ~before)
        return Delivery(inner.mail, (*inner.joined, *joined.tolist()), (*inner.left, *left.tolist()))

    return absent
