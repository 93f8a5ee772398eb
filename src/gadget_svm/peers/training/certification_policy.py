"""When a peer begins an attempt at a certificate, which certificates count, and when the study is over. Pure policy.

Owns the latest full certificate, and the latest one of a partition, which never replaces it. A certificate is full if
it covers ``study.sites``, or ``study.min_sites`` sites if there are no names. Its bound must not be above
``study.gap``. That of a private study has no bound: its sums would be functions of rows.

Two sites that exit have the same model, whatever is lost. Proof: a model that a site exits with is a full certificate
that its initiator adopted. Suppose there are two, c1 of I1 and c2 of I2. A full certificate covers all sites, so I1
took part in c2 and I2 in c1. I1 did so before it began c1: while its own attempt is under way it joins no other without
abandoning its own, and after it has adopted c1 it takes part in nothing (`Certification`). I1 can only join c2 after I2
began it. So c2 began before c1; in the same way, c1 began before c2: a contradiction. The proof needs

- that an initiator passes on its certificate only when it is on disk, so that a restart does not make it forget;
- that full certificates cover both initiators: that initiators are among ``study.sites``, or, without names, that
  ``min_sites`` is the number of all sites. With a smaller number two groups may end with different models;
- that all sites run until certified. Sites that stay may certify again when sites or rows change; a site that waits
  for confirmations then takes the later certificate, and one that has exited does not.

A site exits when all covered sites have confirmed, so that no site is left without the model, or after a while, so that
a site that is gone holds up nobody. It tells its neighbours that all have confirmed: they may have heard of each other
by this site only.
"""

from collections.abc import Collection, Mapping
from math import inf

from gadget_svm.peers.membership.member import Member
from gadget_svm.peers.training.certificate_echo import label, number_of
from gadget_svm.peers.wire.messages import Certified
from gadget_svm.study.study import Study

READY_GAP = 0.8
"""An attempt begins when the estimated gap is below this part of ``study.gap``."""
READY_S, TURN_S, READY_PARTITION_S = 2.0, 40.0, 30.0
"""For so long: at the lowest name, for each lower name in addition, and at least if the certificate would not be full.
A turn is longer than a stalled attempt: two initiators at a time would hold each other up."""
FIRST_WAIT_S, LONGEST_WAIT_S = 3.0, 20.0
"""Between two attempts of which the first one failed; it doubles each time. An attempt costs as much as a few ticks."""


class CertificationPolicy:
    """The end of a study, as peer ``me`` sees it."""

    def __init__(self, study: Study, me: str) -> None:
        self.study, self.me = study, me
        self.latest: Certified | None = None
        self.partition: Certified | None = None
        self.conflict = False  # whether a covered site confirms another certificate with the same number
        self._is_old = False  # whether one confirms a later certificate
        self._label = ""
        self._adopted_at = 0.0
        self._confirmed: set[str] = set()
        self._ready_since: float | None = None
        self._wait = FIRST_WAIT_S
        self._begin_from = 0.0
        self._turn = 0  # how many initiators have lower names

    def covers(self, certified: Certified) -> bool:
        """Whether a certificate covers the sites that an ending one must cover."""
        return self.enough({site.name for site in certified.sites})

    def adopt(self, certified: Certified, now: float) -> bool:
        """Take a certificate if it counts and is later than the one of its kind; return whether it was taken."""
        bound, below = float(certified.bounds.sum()), float(certified.duals.sum())
        if not self.study.is_private and not (below > 0 and bound <= self.study.gap * below):
            return False
        self._wait, is_full = FIRST_WAIT_S, self.covers(certified)
        before = self.latest if is_full else self.partition
        if before is not None and certified.id.number <= before.id.number:
            return False
        if not is_full:
            self.partition = certified
            return True
        self.latest, self._label, self._adopted_at = certified, label(certified), now
        self._confirmed, self.conflict, self._is_old = set(), False, False
        return True

    def failed(self, now: float) -> None:
        """An attempt failed, or its bound was too large: wait before the next one, longer each time.

        Initiators whose attempts collided try again one after the other.
        """
        self._begin_from = now + self._wait + FIRST_WAIT_S * self._turn
        self._wait = min(2 * self._wait, LONGEST_WAIT_S)

    def should_begin(self, now: float, gap: float, members: Mapping[str, Member]) -> bool:
        """Whether to begin an attempt now. ``gap`` is estimated, ``members`` are all present sites with rows.

        The peer with the lowest name begins; each other one only if those with lower names do not finish an attempt.
        """
        self._watch(members.values())
        if not gap < READY_GAP * self.study.gap or self.at_rest(members):
            self._ready_since = None
            return False
        if self._ready_since is None:
            self._ready_since = now
        self._turn = sum(name < self.me for name in members if self._may_initiate(name))
        wait = READY_S + TURN_S * self._turn
        if not self.enough(members.keys()):
            wait = max(wait, READY_PARTITION_S)
        return self._may_initiate(self.me) and now - self._ready_since >= wait and now >= self._begin_from

    def confirmed_by(self, members: Collection[Member]) -> set[str]:
        """Return the covered sites that have said that they saved the latest certificate's model."""
        self._watch(members)
        return set(self._confirmed)

    def all_confirmed(self) -> None:
        """Another site says that all covered sites have confirmed the latest certificate."""
        if self.latest is not None:
            self._confirmed = {site.name for site in self.latest.sites}

    def unconfirmed(self, members: Collection[Member]) -> list[str]:
        """Return the covered sites, this one excepted, that have not confirmed the latest certificate."""
        if self.latest is None:
            return []
        return sorted({site.name for site in self.latest.sites} - {self.me} - self.confirmed_by(members))

    def waits_until(self, members: Collection[Member], linger: float) -> float:
        """Return when a peer that has saved the latest certificate's model may exit; -inf if it need not wait."""
        unconfirmed = self.unconfirmed(members)
        if self.conflict or self._is_old:  # another certificate may still come
            return self._adopted_at + 2 * linger
        return self._adopted_at + linger if unconfirmed else -inf

    def at_rest(self, members: Mapping[str, Member]) -> bool:
        """Whether there is a certificate, full or of a partition, for just the present sites and rows."""
        rows = {member.name: member.rows for member in members.values()}
        kept = [certified for certified in (self.latest, self.partition) if certified is not None]
        return not self.conflict and any({site.name: site.rows for site in each.sites} == rows for each in kept)

    def _may_initiate(self, name: str) -> bool:
        return not self.study.sites or name in self.study.sites

    def _watch(self, members: Collection[Member]) -> None:
        """Note what members confirm: it stays known after they exit."""
        if self.latest is None:
            return
        covered = {site.name for site in self.latest.sites}
        for member in members:
            if member.name in covered and member.certified == self._label:
                self._confirmed.add(member.name)
            elif member.certified and member.certified != self._label:
                number = number_of(member.certified)
                self.conflict |= number == self.latest.id.number
                self._is_old |= number > self.latest.id.number

    def enough(self, names: Collection[str]) -> bool:
        """Return whether these are all the sites that an ending certificate must cover."""
        sites = self.study.sites
        return set(sites) <= set(names) if sites else len(names) >= self.study.min_sites
