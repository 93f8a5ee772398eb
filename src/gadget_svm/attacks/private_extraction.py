"""Extraction of rows from a site with a privacy budget, by the questions that recover every row of a site without one.

The attacker chooses planes across u so that rarely more than one row lies between two of them, and takes the
differences of the site's answers as guesses of rows. It knows the distribution of the rows, and so where to put the
planes.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from gadget_svm.attacks.private_sites import PrivateSites
from gadget_svm.core.types import Floats, Indices
from gadget_svm.privacy import DifferentialPrivacy

SIZE = 1e4
"""c, the length of the model c (u, -t). It is so large that even a row next to the plane has a large margin."""
EMPTY = 0.01
"""A guess is left out if its length is below this fraction of a row's mean length: without noise, a slab without rows
gives such a guess."""
ROWS_PER_SLAB = 0.5
"""How many rows are expected between two planes. With a larger number, more slabs hold several rows."""


class Closeness(NamedTuple):
    """How close an attack's guesses come to a site's rows, and to as many fresh rows of the same distribution.

    Attributes
    ----------
    site, fresh : float
        The mean over guesses of the largest cosine with any row of the site, and with any fresh row.
    share : float
        The share of guesses whose nearest row, of both kinds together, is the site's. One half is expected by chance.
    permitted : float
        The largest share that the budget permits.
    guesses : int
        How many guesses there were.
    """

    site: float
    fresh: float
    share: float
    permitted: float
    guesses: int


def guess_rows(sites: PrivateSites, known: Floats, seed: int = 0) -> Floats:
    """Return guesses of a site's rows, copies x guesses x features.

    Parameters
    ----------
    sites : PrivateSites
        Sites that have released only their first slope.
    known : array, rows x features
        Rows of the same distribution, without the constant feature.
    seed : int, default 0
        The seed of the direction u.
    """
    u = np.random.default_rng(seed).normal(size=sites.width - 1)
    u /= np.linalg.norm(u)
    planes = np.quantile(known @ u, 1.0 - ROWS_PER_SLAB * np.arange(sites.rounds - 1) / sites.n_rows)
    answers = []
    for t in planes:
        slopes = sites.move_to(SIZE * np.append(u, -t))
        answers.append(-sites.n_rows * slopes)
    return np.array([above - below for above, below in pairwise(answers)]).swapaxes(0, 1)


def closeness(
    X: Floats, label: Indices, fresh: Floats, known: Floats, privacy: DifferentialPrivacy, *, copies: int = 100,
    seed: int = 0,
) -> Closeness:  # fmt: skip
    """Attack a site and compare what the attack guesses with the site's rows and with fresh rows.

    Parameters
    ----------
    X, label : arrays
        The site's rows, and their classes 0 and 1.
    fresh : array
        As many rows of the same distribution, which the site does not have.
    known : array
        Rows of the same distribution that the attacker has.
    privacy : DifferentialPrivacy
        The budget. ``rounds`` is the number of questions.
    copies : int, default 100
        Repetitions.
    seed : int, default 0
        The seed of the noise and of the direction.
    """
    sites = PrivateSites(X, label, privacy, copies=copies, seed=seed)
    guesses = guess_rows(sites, known, seed).reshape(-1, sites.width)[:, :-1]
    guesses = guesses[np.linalg.norm(guesses, axis=1) > EMPTY * np.linalg.norm(X, axis=1).mean()]
    to_site, to_fresh = (_unit(guesses) @ _unit(rows).T for rows in (X, fresh))
    best_site, best_fresh = to_site.max(axis=1), to_fresh.max(axis=1)
    share = float((best_site > best_fresh).mean())
    return Closeness(
        float(best_site.mean()),
        float(best_fresh.mean()),
        share,
        permitted_share(sites.claimed_mu, len(X)),
        len(guesses),
    )


def permitted_share(mu: float, n_rows: int) -> float:
    """Return the largest share of guesses whose nearest row may be the site's, under mu-GDP.

    A site's row and a fresh row have the same distribution, so they change roles if one replaces the other. Let a and b
    be the probabilities that a given row of the site, or a given fresh row, is the nearest. Then q(a) <= q(b) + mu,
    with q the normal quantile, and a + b = 1 / rows.
    """
    p = np.linspace(0.5, 1.0, 100_001)[:-1] / n_rows
    allowed = norm.ppf(p) <= norm.ppf(1.0 / n_rows - p) + mu
    return float(p[allowed].max() * n_rows)


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
