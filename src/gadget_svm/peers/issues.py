"""What is wrong at the moment, by topic. Owns the sentences; each is logged once in a while, not at every event."""

from math import inf

from gadget_svm.peers.outbox import Outbox

REPEAT_INTERVAL_S = 60.0


class IssueTable:
    """The open issues of a node."""

    def __init__(self, out: Outbox) -> None:
        self.open: dict[str, str] = {}
        self._out = out
        self._logged: dict[str, tuple[str, float]] = {}

    def report(self, topic: str, text: str, now: float) -> None:
        """Open an issue, or replace its text."""
        self.open[topic] = text
        before, when = self._logged.get(topic, ("", -inf))
        if text != before or now - when > REPEAT_INTERVAL_S:
            self._logged[topic] = (text, now)
            self._out.log("warning", text, topic=topic)

    def resolve(self, *topics: str) -> None:
        """Close issues, if they are open."""
        for topic in topics:
            self.open.pop(topic, None)
