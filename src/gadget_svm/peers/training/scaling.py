"""One scaler for all sites, without sharing rows: each contributes sums over its rows, and all compute the same.

Sites' statistics are facts that stay true, so they are simply passed on until `sites` of them are known; hearing one
twice or late changes nothing. Then the set is frozen: whoever is asked from then on answers with that set, and one who
comes later takes it over. Should two sets be frozen at once, the one of the lower digest wins. What is made of them is
`scale`'s.
"""

import copy
import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
import scipy.sparse as sp

from gadget_svm.peers.messages import LARGEST, Entry, Statistics, entries_per_message
from gadget_svm.peers.scale import Scale, ScalingError, common_scale, statistics, values_of

KINDS = ("none", "max-abs", "deviation")
FILLING = 10_000_000
"""Zeros of a site that others' statistics may have written out, or three times as many as it has values."""


class Scaling:
    """What is known of the sites' features, and the scale that came of it. ``shifts``: as of `common_scale`."""

    def __init__(self, kind: str, sites: int, me: str, X: sp.csr_matrix, shifts: bool = True) -> None:
        self.kind, self.sites, self.me, self._shifts = kind, sites, me, shifts
        most = entries_per_message(X.shape[1])
        if kind != "none" and not 1 <= sites <= most:
            raise ScalingError(
                f"scaling waits for the statistics of a number of sites: set [learn] sites to 1 to {most}, not {sites}"
            )
        self.entries: dict[str, Entry] = {}
        self.digest = b"\0" * 32 if kind == "none" else b""
        self.scale: Scale | None = Scale.none(X.shape[1]) if kind == "none" else None
        self._rows, self._stored = X.shape[0], values_of(X)
        if kind != "none":
            own = statistics(kind, me, X)
            self._require_moderate(own)
            self._note([own])

    @property
    def settled(self) -> bool:
        """Whether there is a scale."""
        return self.scale is not None

    def copy(self) -> "Scaling":
        """One that may hear of more while this one is in use."""
        other = copy.copy(self)
        other.entries = dict(self.entries)
        return other

    def message(self) -> Statistics:
        """What to tell others: all that is known, or the set that was settled on."""
        return Statistics(self.me, tuple(self.entries[name] for name in sorted(self.entries)), self.digest)

    def hear(self, heard: Statistics) -> bool:
        """Take in what another peer knows; whether the scale is another one now."""
        if self.kind == "none":
            return False
        self.check(heard)
        before = self.digest
        if heard.frozen:
            if not self.digest or heard.frozen < self.digest:
                self._freeze({entry.name: entry for entry in heard.entries})
        elif not self.digest:
            self._note(heard.entries)
        return self.digest != before

    def check(self, heard: Statistics) -> None:
        """Refuse what does not go together."""
        if self.kind == "none":
            return
        for entry in heard.entries:
            self._check(entry)
        if heard.frozen and digest_of(heard.entries) != heard.frozen:
            raise ScalingError(f"the statistics that {heard.name} has settled on do not fit their digest")

    def _note(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.entries.setdefault(entry.name, entry)
        if len(self.entries) >= self.sites:
            self._freeze(self.entries)

    def _freeze(self, known: Mapping[str, Entry]) -> None:
        """Settle on this set, unless a site that is much sparser than the others would run out of memory by it."""
        entries = [known[name] for name in sorted(known)]
        scale = common_scale(self.kind, entries, self._shifts)
        filling, values = scale.filling(self._rows, self._stored), int(self._stored.sum())
        if filling > max(FILLING, 3 * values):
            raise ScalingError(
                f"{filling:,} zeros of this site would have to be written out beside its {values:,} values, of "
                f"features that most rows of {', '.join(sorted(known)[:3])} have: leave these out, or set [learn] "
                'scaling to "max-abs", at all sites'
            )
        self.entries, self.digest, self.scale = dict(known), digest_of(entries), scale

    def _require_moderate(self, own: Entry) -> None:
        for part in (own.sum, own.spread, own.largest):
            if part is not None and not (np.abs(part) <= LARGEST).all():
                feature = int(np.flatnonzero(~(np.abs(part) <= LARGEST))[0])
                raise ScalingError(
                    f"the values of feature {feature + 1} are too large for scaling = {self.kind!r}: give them in a "
                    "larger unit, the same at all sites"
                )

    def _check(self, entry: Entry) -> None:
        needed = (entry.largest,) if self.kind == "max-abs" else (entry.sum, entry.spread)
        if entry.rows <= 0 or any(part is None for part in needed):
            raise ScalingError(f"the statistics of {entry.name} lack what scaling = {self.kind!r} needs")
        if entry.spread is not None and (entry.spread < 0.0).any():
            raise ScalingError(f"the statistics of {entry.name} have a negative sum of squares")


def digest_of(entries: Iterable[Entry]) -> bytes:
    """Of a set of statistics, in the order of their names."""
    digest = hashlib.sha256(b"gadget-svm scaling 2")
    for entry in sorted(entries, key=lambda e: e.name):
        digest.update(f"\0{entry.name}\0{entry.rows!r}".encode())
        for part in (entry.sum, entry.spread, entry.largest):
            digest.update(b"-" if part is None else np.ascontiguousarray(part, dtype="<f8").tobytes())
    return digest.digest()
