"""What is wrong at the moment, by topic. Owns the sentences; each is reported once in a while, not at every event."""

from math import inf

from gadget_svm.peers.events import Report

REPEAT_INTERVAL_S = 60.0


class IssueTable:
    """The open issues of a node."""

    def __init__(self) -> None:
        self.open: dict[str, str] = {}
        self._reported: dict[str, tuple[str, float]] = {}

    def report(self, topic: str, text: str, now: float) -> list[Report]:
        """Open an issue, or replace its text; return what to log."""
        before, when = self._reported.get(topic, ("", -inf))
        is_new = self.open.get(topic) != text
        self.open[topic] = text
        if (is_new and text != before) or now - when > REPEAT_INTERVAL_S:
            self._reported[topic] = (text, now)
            return [Report("warning", text, {"topic": topic})]
        return []

    def resolve(self, topic: str) -> None:
        """Close an issue, if it is open."""
        self.open.pop(topic, None)
