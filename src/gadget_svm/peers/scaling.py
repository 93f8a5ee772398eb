"""One scaler for all sites, without sharing rows: each contributes sums over its rows, and all compute the same.

Sites' statistics are facts that stay true, so they are simply passed on until `sites` of them are known; hearing one
twice or late changes nothing. Then the set is frozen: whoever is asked from then on answers with that set, and one who
comes later takes it over. Should two sets be frozen at once, the one of the lower digest wins.

Features are divided, never shifted, so sparse rows stay sparse; an intercept makes up for a mean that is not zero.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.peers.messages import Entry, Statistics, entries_per_message

Floats = NDArray[np.float64]
KINDS = ("none", "max-abs", "deviation")


class ScalingError(ValueError):
    """Statistics that do not go together, and what to do about it."""


class Scaling:
    """What is known of the sites' features, and the scale that came of it."""

    def __init__(self, kind: str, sites: int, me: str, X: sp.csr_matrix) -> None:
        self.kind, self.sites, self.me = kind, sites, me
        most = entries_per_message(X.shape[1])
        if kind != "none" and not 1 <= sites <= most:
            raise ScalingError(
                f"scaling waits for the statistics of a number of sites: set [learn] sites to 1 to {most}, not {sites}"
            )
        self.entries: dict[str, Entry] = {}
        self.digest = b"\0" * 32 if kind == "none" else b""
        self.scale: Floats | None = np.ones(X.shape[1]) if kind == "none" else None
        if kind != "none":
            self._note([statistics(kind, me, X)])

    @property
    def settled(self) -> bool:
        """Whether there is a scale."""
        return self.scale is not None

    def message(self) -> Statistics:
        """What to tell others: all that is known, or the set that was settled on."""
        return Statistics(self.me, tuple(self.entries[name] for name in sorted(self.entries)), self.digest)

    def hear(self, heard: Statistics) -> bool:
        """Take in what another peer knows; whether the scale is another one now."""
        if self.kind == "none":
            return False
        before = self.digest
        for entry in heard.entries:
            self._check(entry)
        if heard.frozen:
            if digest_of(heard.entries) != heard.frozen:
                raise ScalingError(f"the statistics that {heard.name} has settled on do not fit their digest")
            if not self.digest or heard.frozen < self.digest:
                self.entries = {entry.name: entry for entry in heard.entries}
                self._freeze()
        elif not self.digest:
            self._note(heard.entries)
        return self.digest != before

    def _note(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.entries.setdefault(entry.name, entry)
        if len(self.entries) >= self.sites:
            self._freeze()

    def _freeze(self) -> None:
        entries = [self.entries[name] for name in sorted(self.entries)]
        self.digest, self.scale = digest_of(entries), common_scale(self.kind, entries)

    def _check(self, entry: Entry) -> None:
        needed = (entry.largest,) if self.kind == "max-abs" else (entry.sum, entry.square)
        if entry.rows <= 0 or any(part is None for part in needed):
            raise ScalingError(f"the statistics of {entry.name} lack what scaling = {self.kind!r} needs")


def statistics(kind: str, name: str, X: sp.csr_matrix) -> Entry:
    """What one site says about its features: sums over all its rows, or the largest of each."""
    if kind == "max-abs":
        return Entry(
            name, float(X.shape[0]), largest=np.asarray(abs(X).max(axis=0).todense(), dtype=np.float64).ravel()
        )
    square = X.copy()
    square.data = square.data**2
    total, squares = (np.asarray(part.sum(axis=0), dtype=np.float64).ravel() for part in (X, square))
    return Entry(name, float(X.shape[0]), sum=total, square=squares)


def common_scale(kind: str, entries: Iterable[Entry]) -> Floats:
    """What to divide every feature by, from sites' statistics in the order given; 1 where a feature never varies."""
    scale, rows, total, square = None, 0.0, None, None
    for entry in entries:
        rows += entry.rows
        if entry.largest is not None and kind == "max-abs":
            scale = entry.largest if scale is None else np.maximum(scale, entry.largest)
        elif entry.sum is not None and entry.square is not None:
            total = entry.sum if total is None else total + entry.sum
            square = entry.square if square is None else square + entry.square
    if total is not None and square is not None:
        mean = total / rows
        scale = np.sqrt(np.maximum(square / rows - mean * mean, 0.0))
    if scale is None:
        raise ScalingError("no site's statistics are known")
    return np.where(scale > 1e-12 * max(1.0, float(scale.max(initial=0.0))), scale, 1.0)


def digest_of(entries: Iterable[Entry]) -> bytes:
    """Of a set of statistics, in the order of their names."""
    digest = hashlib.sha256(b"gadget-svm scaling 1")
    for entry in sorted(entries, key=lambda e: e.name):
        digest.update(f"\0{entry.name}\0{entry.rows!r}".encode())
        for part in (entry.sum, entry.square, entry.largest):
            digest.update(b"-" if part is None else np.ascontiguousarray(part, dtype="<f8").tobytes())
    return digest.digest()


def divided(X: sp.csr_matrix, scale: Floats) -> sp.csr_matrix:
    """Every feature divided by its scale: as sparse as it was."""
    return sp.csr_matrix((X.data / scale[X.indices], X.indices, X.indptr), shape=X.shape)
