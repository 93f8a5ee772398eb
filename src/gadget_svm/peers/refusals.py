"""Which hellos are refused, and what was refused so far, by this node and by others. Closes no links."""

from gadget_svm.peers.issues import IssueTable
from gadget_svm.peers.links import Link
from gadget_svm.peers.membership.failure_detector import FailureDetector
from gadget_svm.peers.wire.limits import printable
from gadget_svm.peers.wire.messages import Hello, Refusal, RefusalReason
from gadget_svm.study.study import Study, differences

MAX_TEXTS = 5


class Refusals:
    """The refusals of one node."""

    def __init__(self, name: str, study: Study, detector: FailureDetector, issues: IssueTable) -> None:
        self._name, self._study, self._detector, self._issues = name, study, detector, issues
        self.counts: dict[str, int] = {}  # by reason
        self.last: list[str] = []
        self.other_studies: dict[str, str] = {}  # by peer: how its study differs from this one

    def judge(self, link: Link, hello: Hello) -> Refusal | None:
        """Return why a hello is refused, if it is."""
        if hello.name != link.name:
            text = f"the certificate is for {link.name}, the hello says {hello.name}"
            return Refusal(RefusalReason.NAME, text)
        if hello.digest != self._study.digest:
            try:
                found = differences(self._study, Study.parse(hello.study), self._name, hello.name)
            except ValueError as error:
                found = [str(error)]
            return Refusal(RefusalReason.STUDY, printable("; ".join(found) or "the digests of the studies differ"))
        if not self._detector.accept(hello.name, hello.incarnation):
            known = self._detector.table.known(hello.name)
            text = f"incarnation {hello.incarnation} of {hello.name} is over"
            return Refusal(RefusalReason.INCARNATION, text, () if known is None else (known,))
        return None

    def by_us(self, link: Link, refusal: Refusal, now: float) -> None:
        """Note that this node refuses the other end's hello."""
        self._note(link, refusal, f"refused {link.name}", refusal.reason.name.lower(), now)

    def by_them(self, link: Link, refusal: Refusal, now: float) -> None:
        """Note that the other end refuses this node's hello."""
        self._note(link, refusal, f"refused by {link.name}", f"by-peer-{refusal.reason.name.lower()}", now)

    def count(self, reason: str, text: str, count: int = 1) -> None:
        """Count what was refused, for the status."""
        self.counts[reason] = self.counts.get(reason, 0) + count
        self.last = [*self.last, text][-MAX_TEXTS:]

    def _note(self, link: Link, refusal: Refusal, who: str, reason: str, now: float) -> None:
        self.count(reason, f"{who}: {refusal.text}")
        if refusal.reason == RefusalReason.STUDY:
            self.other_studies[link.name] = refusal.text
            self._issues.report("study", refusal.text, now)
