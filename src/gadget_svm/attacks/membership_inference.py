"""An audit of the private algorithm: how well can an attacker tell which of two rows a site has?

The attacker is as strong as the accounting assumes: it knows every other row, it chooses the models at which the site
computes slopes, and it sees every message. The two rows differ as much as two rows can: the same row of norm ``clip``,
in class +1 and in class -1. At the model 0 the row in class +1 adds -x/n to the mean slope, and the row in class -1
adds x/n. The attacker keeps the site at the model 0, and adds up what the site releases along x. No attack does better
against Gaussian noise, so the attack's lower bound is close to the claim if the claim is exact, and above the claim if
the site releases more than it claims.
"""

from typing import NamedTuple

import numpy as np
from scipy.stats import beta, norm

from gadget_svm.attacks.private_sites import PrivateSites
from gadget_svm.core.types import Floats, Indices
from gadget_svm.privacy import DifferentialPrivacy, epsilon_of

PILOT = 10
"""One run in this many is used to choose the threshold, and for nothing else."""


class Audit(NamedTuple):
    """What a site claims, and what an attack proves.

    Attributes
    ----------
    claimed_epsilon, epsilon : float
        The claim, and the lower bound, which holds with the chosen confidence.
    claimed_mu, mu : float
        The same in Gaussian differential privacy.
    runs : int
        How often the attack was run, with each row.
    """

    claimed_epsilon: float
    epsilon: float
    claimed_mu: float
    mu: float
    runs: int


def audit(
    X: Floats, label: Indices, privacy: DifferentialPrivacy, *, runs: int = 20_000, seed: int = 0,
    confidence: float = 0.99,
) -> Audit:  # fmt: skip
    """Attack a site whose first row is in class +1 or in class -1, and return a lower bound of what it reveals.

    Parameters
    ----------
    X, label : arrays
        The site's rows, and their classes 0 and 1. The first row is replaced.
    privacy : DifferentialPrivacy
        The budget; its noise may be secret or seeded.
    runs : int, default 20000
        Repetitions with each of the two rows.
    seed : int, default 0
        The seed of the first row, and of seeded noise.
    confidence : float, default 0.99
        The confidence of the lower bound.

    Returns
    -------
    Audit
    """
    canary = np.random.default_rng(seed).normal(size=X.shape[1])
    X = np.vstack([2.0 * privacy.clip * canary / np.linalg.norm(canary), X[1:]])  # is clipped
    labels = np.array(label)
    scores = []
    for side in (0, 1):
        labels[0] = side
        sites = PrivateSites(X, labels, privacy, copies=runs, seed=2 * seed + side)
        scores.append(_scores(sites, np.append(X[0], 1.0)))
    mu = mu_lower_bound(scores[0], scores[1], confidence)
    return Audit(sites.claimed_epsilon, epsilon_of(mu, privacy.delta), sites.claimed_mu, mu, runs)


def _scores(sites: PrivateSites, direction: Floats) -> Floats:
    """Sum what the sites release along a direction at the model 0, in all rounds."""
    total = -sites.slopes @ direction
    while sites.released < sites.rounds:
        total -= sites.move_to(np.zeros(sites.width)) @ direction
    return np.asarray(total)


def best_guess(privacy: DifferentialPrivacy, rows: int = 1) -> float:
    """Return the probability that the best attack guesses which of two records a site has; by chance it is 0.5.

    Parameters
    ----------
    privacy : DifferentialPrivacy
        The budget.
    rows : int, default 1
        The rows of a record. In Gaussian differential privacy, mu of k rows is k times mu of one.

    Examples
    --------
    >>> round(best_guess(DifferentialPrivacy(epsilon=1.0)), 3)
    0.547
    """
    return float(norm.cdf(0.5 * rows * privacy.mu))


def mu_lower_bound(low: Floats, high: Floats, confidence: float = 0.99) -> float:
    """Return a lower bound of mu (Gaussian differential privacy) from the scores under two hypotheses.

    A test of mu-GDP scores with error rates a and b has mu >= q(1 - a) + q(1 - b), with q the normal quantile. Both
    rates are bounded from above (Clopper and Pearson 1934), on runs that did not choose the threshold.

    Parameters
    ----------
    low, high : arrays
        The scores of independent runs; those in ``high`` are expected to be higher.
    confidence : float, default 0.99

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> 0.9 < mu_lower_bound(rng.normal(size=100_000), rng.normal(1.0, size=100_000)) < 1.0
    True
    """
    threshold = 0.5 * (low[::PILOT].mean() + high[::PILOT].mean())
    low, high = np.delete(low, np.s_[::PILOT]), np.delete(high, np.s_[::PILOT])
    wrong = (int((low > threshold).sum()), len(low)), (int((high <= threshold).sum()), len(high))
    rates = [float(beta.ppf(0.5 + 0.5 * confidence, k + 1, n - k)) if k < n else 1.0 for k, n in wrong]
    return max(0.0, float(norm.ppf(1.0 - rates[0]) + norm.ppf(1.0 - rates[1])))
