"""A privacy budget, and the plan that spends it: rounds, noise and step size.

**The mechanism.** In every round a node releases the mean slope of its n_i rows plus Gaussian noise. Every row adds a
vector of norm at most ``clip`` to the sum of slopes. If one row is replaced by any other one, the mean changes by at
most D_i = 2 clip / n_i. Noise of deviation z D_i per coordinate makes the release 1/z-GDP (Gaussian differential
privacy; Dong, Roth and Su 2022). T releases, each chosen after the ones before, are together mu-GDP with mu =
sqrt(T)/z. Noise levels may differ: mu^2 is the sum of (D_i / deviation)^2. `dp_accounting` converts mu to epsilon and
delta exactly. In terms of zero-concentrated differential privacy, rho = mu^2 / 2.

**The plan** depends on public numbers only: budget, rows, number of nodes, dimension. See `DifferentialPrivacy.plan`.
"""

import numbers
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, sqrt
from typing import Any, NamedTuple

from gadget_svm.core.extras import require
from gadget_svm.core.lookup import lookup

LEAST_ROUNDS, MOST_ROUNDS = 30, 200
"""The least and the most rounds of a plan. Fewer do not suffice for gossip, and more hardly lower the objective."""
SMALLEST_STEP, LARGEST_STEP = 1.0, 3.0
"""The range of step sizes, for rows of norm 1. The loss has curvature 1, so gradient descent with momentum (heavy ball)
is stable for every data set if the step size is below 2 (1 + momentum), as the largest one is. If a plan needs a
smaller step size than the smallest one, it gets fewer rounds instead."""
NOISE_BALANCE = 1.5
"""The step size is this number divided by the norm of the noise in the sum of all rounds' mean slopes. It balances the
reach of the steps against that of the noise. Chosen on the training objective of three data
sets; see benchmarks/private.py."""


class Plan(NamedTuple):
    """How a budget is spent."""

    rounds: int
    noise_multiplier: float  # z: deviation of the noise, per coordinate, divided by the sensitivity
    step_size: float  # for rows of norm 1; without effect on privacy


@dataclass(frozen=True)
class DifferentialPrivacy:
    """A privacy budget per row, for everything that a node ever sends.

    An attacker who sees all messages and all models learns almost nothing about any single row: the probability of any
    outcome is at most exp(epsilon) times its probability with any other row in that place, plus delta.

    Parameters
    ----------
    epsilon : float
        The budget. 1 is strong privacy, 10 is weak.
    delta : float, default 1e-6
        The probability above. It must be far below 1 / rows.
    clip : float, default 1.0
        The largest norm of a row, with the constant feature of the intercept. Longer rows are scaled down to it. It is
        a constant: it must not be computed from the rows.
    rounds : int or "auto", default "auto"
        How many noisy slopes a node releases. "auto": planned from the budget.
    noise : "secret" or "seeded", default "secret"
        Where the noise comes from. "secret": the operating system's generator. "seeded": the seed of the training, for
        simulations that can be repeated. Seeded noise protects nothing: anyone who knows the seed can subtract it.

    Examples
    --------
    >>> from gadget_svm import DifferentialPrivacy, GadgetSVC
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(4000, 10, class_sep=2.0, random_state=0)
    >>> model = GadgetSVC(4, privacy=DifferentialPrivacy(epsilon=1.0)).fit(X, y)
    >>> model.privacy_["epsilon"] <= 1.0
    True
    """

    epsilon: float
    delta: float = 1e-6
    clip: float = 1.0
    rounds: int | str = "auto"
    noise: str = "secret"

    def check(self) -> None:
        """Raise ValueError if a parameter is out of its range."""
        _positive(self.epsilon, "epsilon", "a privacy budget, for example 1.0")
        _positive(self.clip, "clip", "the largest norm of a row, for example 1.0")
        _positive(self.delta, "delta", "a small probability, for example 1e-6")
        if self.delta >= 0.1:
            raise ValueError(f"delta must be far below 1 / rows, for example 1e-6, got {self.delta!r}")
        rounds: Any = self.rounds
        whole = isinstance(rounds, numbers.Integral) and not isinstance(rounds, bool)
        if rounds != "auto" and not (whole and rounds >= 1):
            raise ValueError(f"rounds must be a whole number of at least 1, or 'auto', got {rounds!r}")
        lookup("noise", self.noise, {"secret": 1, "seeded": 1})

    @property
    def mu(self) -> float:
        """The budget as mu of Gaussian differential privacy."""
        return _mu_of(self.epsilon, self.delta)

    def plan(self, nodes: int, rows: float, dimension: int) -> Plan:
        """Return how to spend the budget in a network.

        Parameters
        ----------
        nodes : int
        rows : float
            The rows of all nodes together.
        dimension : int
            Outputs times features.
        """
        self.check()
        # The noise in the network's mean slope, summed over all rounds, is this vector's norm times the rounds.
        noise = 2.0 * sqrt(nodes * dimension) / (rows * self.mu)
        reach = NOISE_BALANCE / noise  # step size times rounds
        rounds = round(min(max(reach / SMALLEST_STEP, LEAST_ROUNDS), MOST_ROUNDS))
        if self.rounds != "auto":
            rounds = int(self.rounds)
        return Plan(rounds, sqrt(rounds) / self.mu, min(reach / rounds, LARGEST_STEP))


def epsilon_of(mu: float, delta: float) -> float:
    """Return epsilon at this delta of a release that is mu-GDP; 0 if nothing was released."""
    if mu <= 0:
        return 0.0
    return float(_gaussian().get_epsilon_gaussian(1.0 / mu, delta))


@lru_cache(maxsize=64)
def _mu_of(epsilon: float, delta: float) -> float:
    return 1.0 / float(_gaussian().get_sigma_gaussian(epsilon, delta))


def _gaussian() -> Any:
    return require("dp_accounting.gaussian_mechanism", "counting a privacy budget needs", "privacy")


def _positive(value: Any, name: str, meaning: str) -> None:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (real and isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number ({meaning}), got {value!r}")
