"""The state of each edge at this end: an edge counts only while both ends hear each other.

The rules are those of Bidirectional Forwarding Detection (RFC 5880): every heartbeat carries the sender's state of the
edge, and an end is UP only after the other one has said that it hears this end. Knows no learner and no links.

An edge that was UP is retained in the learner for a while after it went down, because a short absence should not
change what is learned. It is dropped when the other end does not want it, is dead, or stays away longer.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf

from gadget_svm.peers.wire.messages import EdgeState

ADMIN_DOWN, DOWN, INIT, UP = EdgeState
MAX_ASKING = 4
"""A node accepts edges that others ask for, up to this multiple of the degree."""


@dataclass
class Edge:
    """One edge at this end."""

    state: EdgeState = DOWN
    remote: EdgeState = DOWN
    asked: bool = False  # whether the other end chose this edge
    heard: float = -inf  # the last heartbeat that names this node's incarnation
    retained_until: float = -inf


class EdgeTable:
    """The edges of one node.

    Parameters
    ----------
    degree : int
        How many neighbours a node chooses.
    detection_time : float
        Seconds without a heartbeat after which an edge is down.
    retention_time : float
        Seconds for which an edge that is down stays in the learner.
    """

    def __init__(self, degree: int, detection_time: float, retention_time: float) -> None:
        self.detection_time, self.retention_time = detection_time, retention_time
        self._max_asking = MAX_ASKING * degree
        self._edges: dict[str, Edge] = {}
        self._chosen: frozenset[str] = frozenset()
        self.refused: dict[str, str] = {}  # names that get no edge, and why

    def choose(self, names: Collection[str]) -> list[str]:
        """Set the neighbours that this node wants itself; return those whose state has changed."""
        self._chosen = frozenset(names) - self.refused.keys()
        changed = []
        for name in sorted(self._chosen):
            edge = self._edges.setdefault(name, Edge(ADMIN_DOWN))
            if edge.state == ADMIN_DOWN:
                edge.state = DOWN
                changed.append(name)
        for name, edge in self._edges.items():
            if edge.state != ADMIN_DOWN and not self._is_wanted(name, edge):
                edge.state, edge.retained_until = ADMIN_DOWN, -inf
                changed.append(name)
        return changed

    def restore(self, names: Collection[str], now: float) -> None:
        """Note the edges of a restored learner: they are retained until their other ends are heard."""
        for name in names:
            self._edges.setdefault(name, Edge()).retained_until = now + self.retention_time

    def heard(self, name: str, remote: EdgeState, asked: bool, names_me: bool, now: float) -> bool:
        """Handle the edge's state in a heartbeat; return whether this end's state has changed.

        ``asked`` says that the other end chose the edge, and ``names_me`` that the heartbeat names this node's
        incarnation: INIT and UP count only then.
        """
        edge = self._edges.get(name)
        if edge is None:
            if not asked:
                return False
            edge = self._edges[name] = Edge(ADMIN_DOWN)
        edge.remote, edge.asked, before = remote, asked, edge.state
        if not self._is_wanted(name, edge):
            edge.state, edge.retained_until = ADMIN_DOWN, -inf
            return before != ADMIN_DOWN
        if before == ADMIN_DOWN:
            edge.state = DOWN
        edge.heard = now
        if remote == ADMIN_DOWN:
            edge.state, edge.retained_until = DOWN, -inf
        elif remote == DOWN or not names_me:
            self._down(edge, now)
            edge.state = INIT
        elif remote == INIT or edge.state == INIT:
            edge.state = UP
        return edge.state != before

    def refuse(self, name: str, reason: str) -> None:
        """Accept no edge to this peer any more, and choose none."""
        self.refused[name] = reason
        self._chosen -= {name}
        if (edge := self._edges.get(name)) is not None:
            edge.state, edge.retained_until = ADMIN_DOWN, -inf

    def pardon(self, name: str) -> None:
        """Undo `refuse`."""
        self.refused.pop(name, None)

    def lose(self, name: str, now: float) -> bool:
        """Note that the link is closed; return whether the edge went down."""
        edge = self._edges.get(name)
        if edge is None or edge.state in (ADMIN_DOWN, DOWN):
            return False
        self._down(edge, now)
        return True

    def forget(self, name: str) -> bool:
        """Drop an edge whose other end is dead or has left; return whether there was one."""
        return self._edges.pop(name, None) is not None

    def expire(self, now: float) -> list[str]:
        """Set edges DOWN whose other end is silent; return their names."""
        silent = []
        for name, edge in self._edges.items():
            if edge.state >= INIT and now - edge.heard > self.detection_time:
                self._down(edge, now)
                silent.append(name)
        return silent

    def forgive(self, gap: float) -> None:
        """After a pause of this process, move all deadlines by its length."""
        for edge in self._edges.values():
            edge.heard += gap
            edge.retained_until += gap

    def state(self, name: str) -> EdgeState:
        """Return the state to tell the other end."""
        edge = self._edges.get(name)
        return ADMIN_DOWN if edge is None else edge.state

    def up(self) -> frozenset[str]:
        """Return the names of edges that are UP."""
        return frozenset(name for name, edge in self._edges.items() if edge.state == UP)

    def counted(self, now: float) -> frozenset[str]:
        """Return the edges that belong in the learner: those that are UP, and those that are retained."""
        return frozenset(name for name, edge in self._edges.items() if edge.state == UP or edge.retained_until > now)

    def wanted(self, name: str) -> bool:
        """Return whether either end wants the edge."""
        edge = self._edges.get(name)
        return name in self._chosen or (edge is not None and edge.asked)

    def wanted_names(self) -> list[str]:
        """Return the names of the edges that either end wants."""
        return [name for name in self._edges if self.wanted(name)]

    @property
    def chosen(self) -> frozenset[str]:
        """The neighbours that this node wants itself."""
        return self._chosen

    def _is_wanted(self, name: str, edge: Edge) -> bool:
        if name in self.refused:
            return False
        if name in self._chosen:
            return True
        others = sum(
            other.state != ADMIN_DOWN
            for each, other in self._edges.items()
            if each not in self._chosen and each != name
        )
        return edge.asked and others < self._max_asking

    def _down(self, edge: Edge, now: float) -> None:
        if edge.state == UP:
            edge.retained_until = now + self.retention_time
        edge.state = DOWN
