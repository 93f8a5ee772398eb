"""Recover single rows from sums over half-spaces. This file knows nothing of networks.

The sites that answer the questions are in `exact_sites`.

A model w = c (u, -t) with a large c puts every row on one side: with the hinge, a row counts fully if y (u.x - t) < 0,
and not at all otherwise. So a site that reveals the sum of its counted rows reveals

    v(t) = sum of x over rows of class +1 with u.x < t, minus the sum of x over rows of class -1 with u.x > t.

v(b) - v(a) is the sum of all rows in the slab a < u.x < b, of both classes. The constant feature of the intercept
counts these rows. Each slab is split at the mean of u.x over its rows, which follows from the sum. So n different rows
take about n questions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from gadget_svm.core.types import Floats, Ints

WHOLE = 0.05
"""If a count differs from a whole number by this much or more, a row lies on the plane."""
STEPS = 60
"""How often the outermost planes are moved outward, each time to 4 times the distance."""
ON_PLANE_TRIES, SHIFT = 4, 0.01
"""While a row lies on the plane, the plane is moved up by the fraction SHIFT of the slab above it, at most
ON_PLANE_TRIES times."""


class HalfSpaceSums(Protocol):
    """A site that answers with sums over half-spaces; the last entry, of the constant feature, counts rows."""

    def ask(self, u: Floats, t: float, answer: Floats | None = None) -> Floats:
        """Return v(t) along u. ``answer`` is what the attacker expects, within one row."""


class Extraction(NamedTuple):
    """Rows that an attack recovered.

    Attributes
    ----------
    rows : array, rows x features
        Equal rows, or rows too close to be told apart, appear as often as the site has them.
    y : array of int
        Their classes, +1 and -1; 0 for rows that could not be told apart.
    queries : int
        How many half-spaces were asked for.
    """

    rows: Floats
    y: Ints
    queries: int


@dataclass(frozen=True)
class Slab:
    """The rows with low < u.x < high, from the site's answers at both planes."""

    low: float
    high: float
    answer_low: Floats
    answer_high: Floats

    @property
    def sum(self) -> Floats:
        """The sum of its rows."""
        return self.answer_high - self.answer_low

    @property
    def count(self) -> int:
        """How many rows there are."""
        return round(float(self.sum[-1]))


def extract_rows(site: HalfSpaceSums, n_features: int, n_rows: int, seed: int = 0) -> Extraction:
    """Recover the rows of a site that answers with exact sums over half-spaces.

    Parameters
    ----------
    site : HalfSpaceSums
        Answers for rows with the constant feature of an intercept.
    n_features : int
        The number of features, without the constant feature.
    n_rows : int
        How many rows the site has. Sites tell each other this number.
    seed : int, default 0
        The seed of the direction u.

    Returns
    -------
    Extraction
    """
    search = _Search(site, _direction(n_features, seed))
    found = [(slab, row) for slab in search.single_rows(search.outermost(n_rows)) for row in search.rows_of(slab)]
    rows = np.array([row for _, row in found]).reshape(-1, n_features)
    labels = np.array([search.label_of(slab, row) for slab, row in found], dtype=np.int64)
    return Extraction(rows, labels, search.queries)


def _direction(n_features: int, seed: int) -> Floats:
    u = np.random.default_rng(seed).normal(size=n_features)
    return np.asarray(u / np.linalg.norm(u))


@dataclass
class _Search:
    """Questions along one direction."""

    site: HalfSpaceSums
    u: Floats
    queries: int = 0

    def ask(self, t: float, answer: Floats | None = None) -> Floats:
        self.queries += 1
        return self.site.ask(self.u, t, answer)

    def outermost(self, n_rows: int) -> Slab:
        """Return a slab that holds all rows."""
        t = 1.0
        for _ in range(STEPS):
            slab = Slab(-t, t, self.ask(-t), self.ask(t))
            if slab.count == n_rows:
                return slab
            t *= 4.0
        raise ValueError(
            f"the counts of the outermost half-spaces are not those of {n_rows} rows: check how many rows the site has"
        )

    def single_rows(self, whole: Slab) -> Iterator[Slab]:
        """Split slabs until each holds one row, or rows that cannot be told apart. Yield them from the lowest."""
        waiting = [whole]
        while waiting:
            slab = waiting.pop()
            parts = self.split(slab) if slab.count > 1 else None
            if parts is not None:
                waiting += reversed(parts)
            elif slab.count:
                yield slab

    def split(self, slab: Slab) -> tuple[Slab, Slab] | None:
        """Split at the mean of u.x; None if all rows are on one side, as equal rows are."""
        t = float(self.u @ slab.sum[:-1]) / slab.count
        for _ in range(ON_PLANE_TRIES):
            answer = self.ask(t)
            if abs(answer[-1] - round(float(answer[-1]))) < WHOLE:
                break
            t += SHIFT * (slab.high - t)
        parts = Slab(slab.low, t, slab.answer_low, answer), Slab(t, slab.high, answer, slab.answer_high)
        return parts if all(part.count > 0 for part in parts) else None

    def rows_of(self, slab: Slab) -> list[Floats]:
        return [slab.sum[:-1] / slab.count] * slab.count

    def label_of(self, slab: Slab, row: Floats) -> int:
        """Return the class of a slab's single row.

        A row on the plane has margin 0 < 1 and counts, whatever its class. At a plane below it (``answer_low``) a row
        of class -1 counts already, and a row of class +1 does not.
        """
        if slab.count > 1:
            return 0
        change = self.ask(float(self.u @ row), slab.answer_low) - slab.answer_low
        return 1 if change[-1] > 0.5 else -1
