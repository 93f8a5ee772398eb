"""Which links are open, and with whom. Owns the rule for two links of one pair; knows no sockets and no study."""

from dataclasses import dataclass, field
from math import inf

from gadget_svm.peers.wire.messages import Hello

PUSH_WINDOW = 2
"""At most so many pushes to a neighbour are unacknowledged: one that is being read there, and one on its way."""
PUSH_TIMEOUT = 3.0
"""Heartbeats after which an unacknowledged push no longer counts as being on its way."""


@dataclass(eq=False)
class Link:
    """One open link; it is ready after the other end's hello was accepted."""

    number: int
    name: str
    dialled: str | None  # the address, if this end opened it
    opened: float
    hello: Hello | None = None
    heard: float = -inf
    last_heartbeat: int = -1  # the number of the newest heartbeat that arrived
    sent: int = 0
    received: int = 0
    in_flight: dict[int, float] = field(default_factory=dict)  # pushes without acknowledgement, and when they were sent

    @property
    def ready(self) -> bool:
        """Whether the other end's hello was accepted."""
        return self.hello is not None

    def dialler(self, me: str) -> str:
        """Return the name of the end that opened the link."""
        return self.name if self.dialled is None else me

    def acknowledged(self, seq: int) -> None:
        """Note that a push arrived."""
        self.in_flight.pop(seq, None)

    def has_room(self, now: float, heartbeat: float) -> bool:
        """Return whether another push may be sent."""
        if len(self.in_flight) >= PUSH_WINDOW:
            late = now - PUSH_TIMEOUT * heartbeat
            self.in_flight = {seq: at for seq, at in self.in_flight.items() if at > late}
        return len(self.in_flight) < PUSH_WINDOW


class LinkTable:
    """The links of one node, by number and by the other end's name.

    That of the later incarnation stays. If both ends dialled, the link of the smaller name stays; if one end dialled
    twice, its newer link stays.
    """

    def __init__(self, me: str) -> None:
        self.me = me
        self._links: dict[int, Link] = {}
        self._ready: dict[str, Link] = {}

    def open(self, number: int, name: str, dialled: str | None, now: float) -> Link:
        """Add a link that has no hello so far."""
        link = self._links[number] = Link(number, name, dialled, now, heard=now)
        return link

    def close(self, number: int) -> Link | None:
        """Forget a link; None if it is not known."""
        link = self._links.pop(number, None)
        if link is not None and self._ready.get(link.name) is link:
            del self._ready[link.name]
            for other in self._links.values():
                if other.name == link.name and other.ready:
                    self._ready[link.name] = other
        return link

    def accept(self, link: Link, hello: Hello) -> Link | None:
        """Note the other end's hello; return a second link of this pair that this end should hang up."""
        link.hello = hello
        other = self._ready.get(link.name)
        if other is None or other is link:
            self._ready[link.name] = link
            return None
        if other.hello is not None and other.hello.incarnation < hello.incarnation:  # of a former process, or a second
            self._ready[link.name] = link
            return other
        theirs, ours = link.dialler(self.me), other.dialler(self.me)
        if theirs == ours:
            self._ready[link.name] = link
            return other if theirs == self.me else None  # the end that dialled twice decides which of the two is newer
        keep, close = (link, other) if theirs < ours else (other, link)
        self._ready[link.name] = keep
        return close

    def get(self, number: int) -> Link | None:
        """Return an open link."""
        return self._links.get(number)

    def ready(self, name: str) -> Link | None:
        """Return the link to use for a peer."""
        return self._ready.get(name)

    @property
    def names(self) -> frozenset[str]:
        """The peers with a link that is ready."""
        return frozenset(self._ready)

    def all_ready(self) -> list[Link]:
        """Return one link per peer, by name."""
        return [self._ready[name] for name in sorted(self._ready)]

    def all_open(self) -> list[Link]:
        """Return every link, also those without a hello."""
        return list(self._links.values())
