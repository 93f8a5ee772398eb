"""Collects the effects of one event. The parts of a node get this, and never the node."""

from gadget_svm.peers.events import Dial, Effect, Hangup, Level, Report, Send
from gadget_svm.peers.wire.messages import Message


class Outbox:
    """Effects in the order in which they were asked for."""

    def __init__(self) -> None:
        self.muted = False  # whether nothing may be sent, as this node's incarnation is not on disk
        self._effects: list[Effect] = []

    def add(self, *effects: Effect) -> None:
        """Ask for effects."""
        self._effects.extend(effects)

    def send(self, link: int, message: Message) -> None:
        """Send a message on a link."""
        if not self.muted:
            self._effects.append(Send(link, message))

    def hang_up(self, link: int, reason: str) -> None:
        """Close a link."""
        self._effects.append(Hangup(link, reason))

    def dial(self, address: str, name: str | None) -> None:
        """Open a link."""
        self._effects.append(Dial(address, name))

    def log(self, level: Level, text: str, **fields: object) -> None:
        """Write a line to the log."""
        self._effects.append(Report(level, text, fields))

    def take(self) -> list[Effect]:
        """Return the effects so far, and begin with none."""
        effects, self._effects = self._effects, []
        return effects
