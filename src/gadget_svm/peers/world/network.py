"""The simulated network: links between machines, and what happens to messages on them.

Owns addresses, dials, links, latency, bandwidth, loss, duplicates, reordering, cuts, resets and the traffic's count.
A link is one stream for both directions, as the process host's. It keeps the order of its messages, unless reordering
is on. A cut swallows messages without a word; after KEEPALIVE_S of it both ends see the link go down. The network does
not know what messages mean, except for the hello: a host delivers nothing on a link before the other end's hello.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from gadget_svm.peers.events import DialFailed, Event, LinkDown, LinkUp, Received, Rejected
from gadget_svm.peers.wire.messages import Hello, Message
from gadget_svm.peers.world.event_queue import EventQueue
from gadget_svm.peers.world.message_size import message_bytes
from gadget_svm.peers.world.randomness import generator, within
from gadget_svm.peers.world.scenario import LinkPlan

CONNECT_TIMEOUT_S = 5.0
HELLO_TIMEOUT_S = 10.0
KEEPALIVE_S = 15.0
MAX_BACKLOG_S = 20.0
"""A link whose sender has more than this to transmit is closed."""


class RefusedMessageError(AssertionError):
    """A message that no host would accept."""


class Machine(Protocol):
    """What the network asks of a machine."""

    name: str
    identity: str  # of its certificates; that of another machine, if a peer runs twice
    address: str  # where it accepts connections; empty if it accepts none

    @property
    def running(self) -> bool:
        """Whether a process answers on it."""

    @property
    def life(self) -> int:
        """A number that grows with every start of its process."""

    def refuses(self, identity: str) -> bool:
        """Whether this machine's certificates are no good to the process, or revoked."""

    def deliver(self, event: Event) -> None:
        """Hand an event to the process."""


@dataclass(eq=False, slots=True)
class End:
    """One end of a link. ``number`` is what its process calls the link."""

    machine: Machine
    life: int
    number: int
    dialled: str | None
    is_open: bool = True
    greeted: bool = False  # whether the other end's hello was delivered
    busy_until: float = 0.0  # when the last message of this end has arrived
    other: "End" = field(init=False)


@dataclass
class Traffic:
    """What was sent, on all links together."""

    messages: int = 0
    nbytes: int = 0
    lost: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)


class SimulatedNetwork:
    """All machines' links. Link numbers are never used twice."""

    def __init__(self, queue: EventQueue, plan: LinkPlan, seed: int) -> None:
        self.queue, self.plan, self.seed = queue, plan, seed
        self.transcode: Callable[[Message], Message] | None = None  # encodes and decodes a message
        self.hostile: frozenset[str] = frozenset()  # machines whose messages need not be well-formed
        self.rng = generator(seed, "network")
        self.loss, self.duplicate = within(self.rng, plan.loss), within(self.rng, plan.duplicate)
        self.reorder, self.resets = within(self.rng, plan.reorder), within(self.rng, plan.resets)
        self.traffic = Traffic()
        self.machines: dict[str, Machine] = {}  # by address
        self.ends: dict[str, dict[int, End]] = {}  # open ends by machine and number
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._cut_since: dict[tuple[str, str], float] = {}
        self._latency: dict[tuple[str, str], float] = {}
        self._uplink: dict[str, float] = {}  # when a machine's connection is free
        self._numbers = 0
        if self.resets:
            queue.after(self.rng.expovariate(self.resets), self._reset_one)

    def attach(self, machine: Machine) -> None:
        """Connect a machine."""
        self.ends[machine.name] = {}
        if machine.address:
            self.machines[machine.address] = machine

    def calm(self) -> None:
        """End loss, duplicates, reordering and resets."""
        self.loss = self.duplicate = self.reorder = self.resets = 0.0

    # Cuts

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Swallow all that is sent from the first to the second machine of each pair. Cuts add up."""
        for pair in pairs:
            self._cuts[pair] += 1
            if self._cuts[pair] == 1:
                self._cut_since[pair] = self.queue.now
                self.queue.after(KEEPALIVE_S, self._keepalive, pair, self.queue.now)

    def heal(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Undo `cut`."""
        for pair in pairs:
            self._cuts[pair] -= 1
            if not self._cuts[pair]:
                del self._cuts[pair], self._cut_since[pair]

    def is_cut(self, sender: str, receiver: str) -> bool:
        """Return whether nothing gets from one machine to another."""
        return (sender, receiver) in self._cut_since

    def _keepalive(self, pair: tuple[str, str], since: float) -> None:
        if self._cut_since.get(pair) == since:
            for end in [end for end in self.ends[pair[0]].values() if end.other.machine.name == pair[1]]:
                self._break(end, "keepalive timed out")

    # Links

    def dial(self, dialler: Machine, address: str, name: str | None) -> None:
        """Try to open a link; the dialler hears of it in every case."""
        target = self.machines.get(address)
        back = self.latency(dialler.name, target.name) if target else 0.0
        if target is None or self._blocked(dialler.name, target.name):
            self.queue.after(CONNECT_TIMEOUT_S, self._dial_failed, dialler, dialler.life, address, "timed out")
        else:
            self.queue.after(3 * back, self._connect, dialler, dialler.life, target, address, name)

    def _blocked(self, a: str, b: str) -> bool:
        return self.is_cut(a, b) or self.is_cut(b, a)

    def _connect(self, dialler: Machine, life: int, target: Machine, address: str, name: str | None) -> None:
        if dialler.life != life:
            return
        reason = ""
        if self._blocked(dialler.name, target.name):
            reason = "timed out"
        elif not target.running:
            reason = "connection refused"
        elif name is not None and name != target.identity:
            reason = f"the other end is {target.identity}, not {name}"
        elif dialler.refuses(target.identity) or target.refuses(dialler.identity):
            reason = "certificate revoked"
        if reason:
            self.queue.after(self.latency(dialler.name, target.name), self._dial_failed, dialler, life, address, reason)
            return
        self._numbers += 2
        near = End(dialler, life, self._numbers, address)
        far = End(target, target.life, self._numbers + 1, None)
        near.other, far.other = far, near
        for end in (far, near):
            self.ends[end.machine.name][end.number] = end
        self.queue.after(HELLO_TIMEOUT_S, self._expect_hello, near)
        # The dialler is ready one latency before the other end hears of it, and neither may send before.
        near.busy_until = far.busy_until = self.queue.now + self.latency(dialler.name, target.name)
        self.queue.at(near.busy_until, self._link_up, near)
        far.machine.deliver(LinkUp(far.number, dialler.identity, None))

    def _link_up(self, end: End) -> None:
        if end.machine.life != end.life:
            return
        if end.is_open:
            end.machine.deliver(LinkUp(end.number, end.other.machine.identity, end.dialled))
        else:
            self._dial_failed(end.machine, end.life, str(end.dialled), "connection reset")

    def _dial_failed(self, dialler: Machine, life: int, address: str, reason: str) -> None:
        if dialler.life == life:
            dialler.deliver(DialFailed(address, reason))

    def _expect_hello(self, end: End) -> None:
        if end.is_open and end.other.is_open and not (end.greeted and end.other.greeted):
            self._break(end, "no hello")

    def send(self, machine: Machine, number: int, message: Message) -> None:
        """Put a message on a link. On a link that is closed, or is not this machine's, it is lost."""
        end = self.ends[machine.name].get(number)
        if end is None:
            return
        other, now, rng = end.other, self.queue.now, self.rng
        size = message_bytes(message)
        self.traffic.messages += 1
        self.traffic.nbytes += size
        self.traffic.by_kind[type(message).__name__] += 1
        leaves = max(now, self._uplink.get(machine.name, 0.0)) + size / self.plan.bandwidth
        self._uplink[machine.name] = leaves
        if leaves - now > MAX_BACKLOG_S:
            self._break(end, "cannot send fast enough")
            return
        lost = self.loss and rng.random() < self.loss
        if lost or (self._cut_since and self.is_cut(machine.name, other.machine.name)):
            self.traffic.lost += 1
            return
        value = message
        if self.transcode is not None:
            try:
                value = self.transcode(message)
            except RefusedMessageError as error:
                if machine.name not in self.hostile:
                    raise
                other.machine.deliver(Rejected("malformed", str(error)))
                return
        arrives = leaves + self._delay(machine.name, other.machine.name, rng)
        if self.reorder and rng.random() < self.reorder and not isinstance(message, Hello):
            arrives += rng.uniform(0.0, 1.0)  # and the next ones do not wait for it
        else:
            end.busy_until = arrives = max(arrives, end.busy_until)
        self.queue.at(arrives, self._deliver, other, value)
        if self.duplicate and rng.random() < self.duplicate and not isinstance(message, Hello):
            self.queue.at(arrives + rng.uniform(0.0, 1.0), self._deliver, other, value)

    def _deliver(self, end: End, message: Message) -> None:
        if not end.is_open:
            return
        if isinstance(message, Hello):
            if end.greeted:
                return
            end.greeted = True
        elif not end.greeted:
            self.traffic.lost += 1
            return
        end.machine.deliver(Received(end.number, message))

    def hang_up(self, machine: Machine, number: int, reason: str) -> None:
        """Close a link from one end; the other end hears of it after what was sent before."""
        end = self.ends[machine.name].get(number)
        if end is not None:
            self._close(end)
            self._tell_other_end(end, reason)

    def vanish(self, machine: Machine, silently: bool) -> None:
        """Close all links of a machine whose process ended; silently if nothing tells the other ends of it."""
        for end in list(self.ends[machine.name].values()):
            self._close(end)
            if silently:
                self.queue.after(KEEPALIVE_S, self._down, end.other, "keepalive timed out")
            else:
                self._tell_other_end(end, "connection reset")

    def sever(self, machine: Machine, identity: str, reason: str) -> None:
        """Close all links of a machine to a peer, at both ends."""
        for end in [end for end in self.ends[machine.name].values() if end.other.machine.identity == identity]:
            self._break(end, reason)

    def _tell_other_end(self, end: End, reason: str) -> None:
        here, there = end.machine.name, end.other.machine.name
        if self.is_cut(here, there):
            self.queue.after(KEEPALIVE_S, self._down, end.other, "keepalive timed out")
        else:
            heard = max(self.queue.now + self._delay(here, there, self.rng), end.busy_until)
            self.queue.at(heard, self._down, end.other, reason)

    def _break(self, end: End, reason: str) -> None:
        for side in (end, end.other):
            self.queue.after(0.0, self._down, side, reason)

    def _down(self, end: End, reason: str) -> None:
        if end.is_open:
            self._close(end)
            if end.machine.life == end.life:
                end.machine.deliver(LinkDown(end.number, reason))

    def _close(self, end: End) -> None:
        end.is_open = False
        self.ends[end.machine.name].pop(end.number, None)

    def _reset_one(self) -> None:
        if not self.resets:
            return
        ends = [end for links in self.ends.values() for end in links.values()]
        if ends:
            self._break(self.rng.choice(ends), "connection reset")
        self.queue.after(self.rng.expovariate(self.resets), self._reset_one)

    # Times

    def latency(self, a: str, b: str) -> float:
        """Return the usual latency between two machines, in seconds one way."""
        pair = (a, b) if a < b else (b, a)
        known = self._latency.get(pair)
        if known is None:
            known = self._latency[pair] = within(generator(self.seed, "latency", *pair), self.plan.latency)
        return known

    def _delay(self, a: str, b: str, rng: random.Random) -> float:
        usual = self.latency(a, b)
        return usual * (1.0 + self.plan.jitter * rng.expovariate(1.0)) if self.plan.jitter else usual
