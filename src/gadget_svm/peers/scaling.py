"""One scaler for all sites, without sharing rows: each contributes sums over its rows, and all compute the same.

Sites' statistics are facts that stay true, so they are simply passed on until `sites` of them are known; hearing one
twice or late changes nothing. Then the set is frozen: whoever is asked from then on answers with that set, and one who
comes later takes it over. Should two sets be frozen at once, the one of the lower digest wins.

Features are divided. With deviations and an intercept, those whose mean is larger than their deviation are also shifted
by it: else all rows would point nearly the same way, and so would every vector that is made of them. Of such a feature
half the values or more are not zero (if a share p is, the mean's square is at most 1/p - 1 times the variance), so that
sparse rows stay sparse.
"""

import copy
import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.peers.messages import Entry, Statistics, entries_per_message

Floats = NDArray[np.float64]
KINDS = ("none", "max-abs", "deviation")
CONSTANT = 1e-11
"""A deviation of so little of the mean is rounding: the feature never varies."""
TINY = 1e-100
"""Features are not divided by less: weights for the unscaled ones might be no numbers."""


class ScalingError(ValueError):
    """Statistics that do not go together, and what to do about it."""


class Scale(NamedTuple):
    """Of every feature: x becomes (x - shift) / divisor."""

    divisor: Floats
    shift: Floats

    @classmethod
    def none(cls, features: int) -> "Scale":
        """Features as they are."""
        return cls(np.ones(features), np.zeros(features))

    def apply(self, X: sp.csr_matrix) -> sp.csr_matrix:
        """Scaled rows: what was zero and is shifted is written out, all else is as sparse as it was."""
        moved = _written_out(X, np.flatnonzero(self.shift))
        data = (moved.data - self.shift[moved.indices]) / self.divisor[moved.indices]
        return sp.csr_matrix((data, moved.indices, moved.indptr), shape=X.shape)

    def undo(self, coef: Floats, intercept: Floats) -> tuple[Floats, Floats]:
        """Weights (outputs x features) of scaled features as those of unscaled ones."""
        plain = coef / self.divisor
        return plain, intercept - plain @ self.shift


def _written_out(X: sp.csr_matrix, columns: NDArray[np.intp]) -> sp.csr_matrix:
    """With a value of every row in these columns, be it a zero."""
    stored = np.bincount(X.indices, minlength=X.shape[1])
    lacking = columns[stored[columns] < X.shape[0]]
    if not len(lacking):
        return X
    ones = sp.csr_matrix((np.ones(X.nnz, dtype=np.int8), X.indices, X.indptr), shape=X.shape)
    row, place = np.nonzero(ones[:, lacking].toarray() == 0)
    entries = X.tocoo()
    rows, at = np.concatenate([entries.row, row]), np.concatenate([entries.col, lacking[place]])
    whole = sp.csr_matrix((np.concatenate([entries.data, np.zeros(len(row))]), (rows, at)), shape=X.shape)
    whole.sort_indices()
    return whole


class Scaling:
    """What is known of the sites' features, and the scale that came of it.

    ``shifts``: whether there is an intercept to make up for it.
    """

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
        if kind != "none":
            self._note([statistics(kind, me, X)])

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
                self.entries = {entry.name: entry for entry in heard.entries}
                self._freeze()
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
            self._freeze()

    def _freeze(self) -> None:
        entries = [self.entries[name] for name in sorted(self.entries)]
        self.digest, self.scale = digest_of(entries), common_scale(self.kind, entries, self._shifts)

    def _check(self, entry: Entry) -> None:
        needed = (entry.largest,) if self.kind == "max-abs" else (entry.sum, entry.spread)
        if entry.rows <= 0 or any(part is None for part in needed):
            raise ScalingError(f"the statistics of {entry.name} lack what scaling = {self.kind!r} needs")
        if entry.spread is not None and (entry.spread < 0.0).any():
            raise ScalingError(f"the statistics of {entry.name} have a negative sum of squares")


def statistics(kind: str, name: str, X: sp.csr_matrix) -> Entry:
    """What one site says about its features: sums and squared distances from their mean, or the largest of each."""
    rows = X.shape[0]
    if kind == "max-abs":
        return Entry(name, float(rows), largest=np.asarray(abs(X).max(axis=0).todense(), dtype=np.float64).ravel())
    total, absent = _by_column(X, X.data), rows - np.bincount(X.indices, minlength=X.shape[1])
    mean = total / rows
    apart = X.data - mean[X.indices]
    drift = _by_column(X, apart) - absent * mean  # zero, but for the rounding of the mean
    spread = _by_column(X, apart * apart) + absent * mean * mean - drift * drift / rows
    return Entry(name, float(rows), sum=total, spread=np.maximum(spread, 0.0))


def _by_column(X: sp.csr_matrix, data: Floats) -> Floats:
    return np.bincount(X.indices, data, minlength=X.shape[1]).astype(np.float64, copy=False)  # of no entry: integers


def common_scale(kind: str, entries: Iterable[Entry], shifts: bool = True) -> Scale:
    """From sites' statistics in the order given; a feature that never varies is not divided."""
    known = list(entries)
    if not known:
        raise ScalingError("no site's statistics are known")
    if kind == "max-abs":
        largest = np.array([entry.largest for entry in known]).max(axis=0)
        return Scale(np.where(largest > TINY, largest, 1.0), np.zeros(len(largest)))
    rows = np.array([entry.rows for entry in known])[:, None]
    total, spread = np.array([entry.sum for entry in known]), np.array([entry.spread for entry in known])
    mean = total.sum(axis=0) / rows.sum()
    between = rows * (total / rows - mean) ** 2
    deviation = np.sqrt((spread + between).sum(axis=0) / rows.sum())
    deviation[deviation <= np.maximum(CONSTANT * np.abs(mean), TINY)] = 0.0
    shift = np.where((np.abs(mean) > deviation) & shifts, mean, 0.0)
    return Scale(np.where(deviation > 0.0, deviation, 1.0), shift)


def digest_of(entries: Iterable[Entry]) -> bytes:
    """Of a set of statistics, in the order of their names."""
    digest = hashlib.sha256(b"gadget-svm scaling 2")
    for entry in sorted(entries, key=lambda e: e.name):
        digest.update(f"\0{entry.name}\0{entry.rows!r}".encode())
        for part in (entry.sum, entry.spread, entry.largest):
            digest.update(b"-" if part is None else np.ascontiguousarray(part, dtype="<f8").tobytes())
    return digest.digest()
