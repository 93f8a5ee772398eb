"""One scale for all sites, without sharing rows: each site contributes sums over its rows, and all compute the same.

Statistics of a site stay true, so they are passed on until those of ``sites`` sites are known; hearing one twice or
late changes nothing. Then the set is frozen: from then on a node tells that set, and a site that joins later adopts it.
If two sets are frozen at once, the one with the lower digest wins. `scale` makes a scale of them.
"""

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.types import Floats
from gadget_svm.peers.training.scale import Scale, ScalingError, common_scale, statistics
from gadget_svm.peers.wire.limits import LARGEST, Limits
from gadget_svm.peers.wire.messages import SiteStatistics, Statistics
from gadget_svm.study.study import Study

ZEROS_STORED = 10_000_000
"""Zeros of a site that the statistics of others may cause to be stored, or three times its stored values."""


class ScaleAgreement:
    """The known statistics of the sites' features, and the scale that follows."""

    def __init__(self, study: Study, me: str, X: sp.csr_matrix) -> None:
        self.kind, self.sites, self._shifts = study.scaling, study.scaling_sites, study.intercept
        self.entries: dict[str, SiteStatistics] = {}
        self.digest, self.scale = b"", None if self.kind != "none" else Scale(np.ones(X.shape[1]), np.zeros(X.shape[1]))
        self._rows, self._stored = X.shape[0], X.getnnz(axis=0)
        if self.kind == "none":
            self.digest = bytes(32)
            return
        most = Limits.of(study).entries
        if not 1 <= self.sites <= most:
            raise ScalingError(
                f"scaling waits for the statistics of a number of sites: set [scaling] sites to 1 to {most}, not "
                f"{self.sites}"
            )
        own = statistics(self.kind, me, X)
        for part in _parts(own):
            if (wrong := np.flatnonzero(~(np.abs(part) <= LARGEST))).size:
                raise ScalingError(
                    f"the values of feature {wrong[0] + 1} are too large for scaling {self.kind!r}: give them in a "
                    "larger unit, the same at all sites"
                )
        self._add([own])

    def message(self) -> Statistics:
        """Return what to tell others: all that is known, or the frozen set."""
        if self.kind == "none":
            return Statistics()
        return Statistics(tuple(self.entries[name] for name in sorted(self.entries)), self.digest)

    def hear(self, heard: Statistics) -> bool:
        """Take in what another node knows; return whether anything is new. ScalingError changes nothing."""
        if self.kind == "none" or (self.digest and (not heard.frozen or heard.frozen >= self.digest)):
            return False
        for entry in heard.entries:
            self._check(entry)
        if not heard.frozen:
            return self._add(heard.entries)
        if digest_of(heard.entries) != heard.frozen:
            raise ScalingError("frozen statistics do not fit their digest")
        self._freeze({entry.name: entry for entry in heard.entries})
        return True

    def _add(self, entries: Iterable[SiteStatistics]) -> bool:
        known = {entry.name: entry for entry in entries} | self.entries
        new = len(known) > len(self.entries)
        if len(known) >= self.sites:
            self._freeze(known)
        self.entries = known
        return new

    def _freeze(self, known: Mapping[str, SiteStatistics]) -> None:
        """Adopt this set, unless a site that is much sparser than the others would run out of memory."""
        entries = [known[name] for name in sorted(known)]
        scale = common_scale(self.kind, entries, self._shifts)
        zeros, values = scale.filling(self._rows, self._stored), int(self._stored.sum())
        if zeros > max(ZEROS_STORED, 3 * values):
            raise ScalingError(
                f"{zeros:,} zeros of this site would have to be stored besides its {values:,} values, of features that "
                f"most rows of {', '.join(sorted(known)[:3])} have: leave these out, or set [scaling] kind to "
                '"max-abs", in study.toml at all sites'
            )
        self.entries, self.digest, self.scale = dict(known), digest_of(entries), scale

    def _check(self, entry: SiteStatistics) -> None:
        needed = (entry.largest,) if self.kind == "max-abs" else (entry.sum, entry.spread)
        if entry.rows <= 0 or any(part is None or len(part) != len(self._stored) for part in needed):
            raise ScalingError(f"the statistics of {entry.name} lack what scaling {self.kind!r} needs")
        if entry.spread is not None and (entry.spread < 0.0).any():
            raise ScalingError(f"the statistics of {entry.name} have a negative sum of squares")


def digest_of(entries: Iterable[SiteStatistics]) -> bytes:
    """Return the digest of a set of statistics, in the order of their names."""
    digest = hashlib.sha256(b"gadget-svm scaling 4")
    for entry in sorted(entries, key=lambda e: e.name):
        digest.update(f"\0{entry.name}\0{float(entry.rows)!r}".encode())
        for part in _parts(entry):
            digest.update(np.ascontiguousarray(part, dtype="<f8").tobytes())
    return digest.digest()


def _parts(entry: SiteStatistics) -> list[Floats]:
    return [part for part in (entry.sum, entry.spread, entry.largest) if part is not None]
