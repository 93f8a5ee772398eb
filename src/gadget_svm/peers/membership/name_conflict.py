"""Rule 4 of the failure detector: what others say under this peer's own name. Owns the rumour and the proof.

``mine`` is this peer's own entry, ``now`` is in the detector's own time.
"""

from math import inf

from gadget_svm.peers.membership.member import LARGEST, Member, State


class NameConflict:
    """A second process that proved that it runs under this name, or the highest rumour of one."""

    def __init__(self, suspect: float) -> None:
        self.proven: Member | None = None
        self._suspect = suspect
        self._rumour: Member | None = None
        self._since = 0.0  # when the first rumour that is not answered was heard
        self._reported = False
        self._outbid_from = -inf
        self._wait = suspect

    def hear(self, member: Member, direct: bool, mine: Member, now: float) -> bool:
        """Take an entry about this peer. True if it only doubts that this peer lives: a beat is the answer."""
        elsewhere = bool(member.address) and member.address != mine.address
        same = member.incarnation == mine.incarnation
        ahead = member.address > mine.address if elsewhere else member.beat > mine.beat
        if direct:
            if member.incarnation > mine.incarnation or (same and ahead):
                self.proven = member
            return False
        if member.incarnation > mine.incarnation or (same and (ahead or elsewhere or member.state == State.LEFT)):
            self._note(member, now)
            return False
        return same and member.state != State.ALIVE

    def answer(self, mine: Member, now: float) -> tuple[Member | None, int | None]:
        """Return a rumour to look into, once, and the incarnation that outbids it, when it is due."""
        rumour = self._rumour
        if rumour is None:
            return None, None
        report = None if self._reported else rumour
        self._reported = True
        grace = 0.0 if rumour.address == mine.address else self._suspect  # no other process has this address
        if now < max(self._since + grace, self._outbid_from) or rumour.incarnation >= LARGEST:
            return report, None
        self._rumour = None
        self._outbid_from = now + self._wait
        self._wait *= 2
        return report, max(rumour.incarnation, mine.incarnation) + 1

    def _note(self, member: Member, now: float) -> None:
        old = self._rumour
        if old is None or (member.incarnation, member.address) > (old.incarnation, old.address):
            self._since = now if old is None else self._since
            self._rumour, self._reported = member, False
