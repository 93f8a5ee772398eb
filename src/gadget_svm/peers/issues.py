"""What is wrong at the moment, by topic. Owns the sentences; each is logged once in a while, not at every event."""

from math import inf

from gadget_svm.peers.events import Level
from gadget_svm.peers.outbox import Outbox

REPEAT_INTERVAL_S = 60.0
MAX_REMEMBERED = 200


class IssueTable:
    """The open issues of a node."""

    def __init__(self, out: Outbox) -> None:
        self.open: dict[str, str] = {}
        self._out = out
        self._logged: dict[tuple[str, str], float] = {}

    def report(self, topic: str, text: str, now: float, level: Level = "warning") -> None:
        """Open an issue, or replace its text."""
        self.open[topic] = text
        if now - self._logged.get((topic, text), -inf) > REPEAT_INTERVAL_S:
            if len(self._logged) >= MAX_REMEMBERED:
                self._logged.clear()
            self._logged[topic, text] = now
            self._out.log(level, text, topic=topic)

    def resolve(self, *topics: str) -> None:
        """Close issues, if they are open."""
        for topic in topics:
            self.open.pop(topic, None)
