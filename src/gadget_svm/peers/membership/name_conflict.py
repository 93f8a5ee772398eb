"""The contest about my own name, by rule 4 of `membership`. Owns what others say of me; my line and the time are given.

``mine`` is my line as it stands, ``now`` is counted in my ticks.
"""

from math import inf

from gadget_svm.peers.member import LARGEST, Member, State


class Claims:
    """What is heard of me that is not from me: a double that proved itself, or the highest of the rumours."""

    def __init__(self, suspect: float) -> None:
        self.double: Member | None = None
        self._suspect = suspect
        self._rumour: Member | None = None
        self._since = 0.0  # when there was first a rumour to answer
        self._told = False
        self._outbid_from = -inf
        self._wait = suspect

    def hear(self, member: Member, direct: bool, mine: Member, now: float) -> bool:
        """A line about me; True if it only doubts that I live, so that a beat is the answer."""
        elsewhere = bool(member.address) and member.address != mine.address
        same = member.incarnation == mine.incarnation
        ahead = member.address > mine.address if elsewhere else member.beat > mine.beat
        if direct:
            if member.incarnation > mine.incarnation or (same and ahead):
                self.double = member
            return False
        if member.incarnation > mine.incarnation or (same and (ahead or elsewhere or member.state == State.LEFT)):
            self._note(member, now)
            return False
        return same and member.state != State.ALIVE

    def answer(self, mine: Member, now: float) -> tuple[Member | None, int | None]:
        """The rumour, if it is to be looked into and was not told before; the incarnation that outbids it, if due."""
        rumour = self._rumour
        if rumour is None:
            return None, None
        news = None if self._told else rumour
        self._told = True
        grace = 0.0 if rumour.address == mine.address else self._suspect  # at my own address there is only me
        if now < max(self._since + grace, self._outbid_from) or rumour.incarnation >= LARGEST:
            return news, None
        self._rumour = None
        self._outbid_from = now + self._wait
        self._wait *= 2
        return news, max(rumour.incarnation, mine.incarnation) + 1

    def _note(self, member: Member, now: float) -> None:
        old = self._rumour
        if old is None or (member.incarnation, member.address) > (old.incarnation, old.address):
            self._since = now if old is None else self._since
            self._rumour, self._told = member, False
