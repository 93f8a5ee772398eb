"""The paper's theorems as formulas: as printed, with their errors, and the bound that holds.

Only arithmetic, no data. R is the largest |x|, c the largest sub-gradient.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from gadget_svm.core.network import Network
from gadget_svm.spectral import push_sum_error_factor, tau_mix

__all__ = [
    "corrected_bound", "iterations_until_still", "largest_gap", "learning_rate", "network_error_bound",
    "printed_bound", "push_sum_error_bound", "radius", "tau_mix",
]  # fmt: skip


def radius(lam: float, mean_cost: float = 1.0) -> float:
    """Return the radius of the ball that holds the optimum: 1/sqrt(lam), times the root of the mean cost of a row."""
    return math.sqrt(mean_cost / lam)


def learning_rate(lam: float, t: int) -> float:
    """Return alpha(t) = 1/(lam t), step (d) of Algorithm 2."""
    return 1.0 / (lam * t)


def network_error_bound(
    lam: float, t: int, epsilon: float, epsilon1: float, epsilon2: float, R: float, N: int
) -> float:
    """Return the bound of Theorem 1 as printed: a node's distance from the average after one step and two Push-Sums.

    epsilon is the distance before the step; epsilon1 and epsilon2 are Push-Sum's relative errors for the weights
    and for the loss vectors. The term R epsilon/N takes the *loss vector* to be Lipschitz in w (Lemma 1), but only
    the loss is: where a margin is exactly 1 the loss vector of a row jumps. The bound holds for epsilon = 0.
    """
    alpha = learning_rate(lam, t)
    return (1.0 - lam * alpha) * (epsilon + N * epsilon1 / lam) + alpha * (R * epsilon / N + epsilon2)


def printed_bound(c: float, lam: float, T: int, gamma: float, R: float) -> float:
    """Return the bound of Theorem 2 as printed. It is vacuous: never below `largest_gap`.

    Its first term, 2c/sqrt(lam), bounds the nodes' distance from their mean by the ball's diameter. Also log(T)
    stands for 1 + ln(T), and Jensen's inequality is written the wrong way round.
    """
    root = math.sqrt(lam)
    return 2 * c / root + c * c * math.log(T) / (2 * T * lam) + 2 / root * (gamma * R / root + gamma * R)


def largest_gap(lam: float, R: float) -> float:
    """Return a bound of f(w) - f* for all w in the ball: 1/2 for the regulariser, 1 + R/sqrt(lam) for the hinge."""
    return 1.5 + R / math.sqrt(lam)


def corrected_bound(c: float, lam: float, T: int, network_errors: ArrayLike) -> float:
    """Return the bound that holds, without projection, for the average of the iterates 1..T of any node:

        E f(w-bar_i / T) - f* <= c^2 (1 + ln T) / (2 lam T) + (3c / T) sum_t E max_i |w_i(t) - w(t)|.

    ``network_errors`` are the T distances max_i |w_i(t) - w(t)|, measured. c once each for the gradient taken at
    w_i instead of w, for f_i(w_i) instead of f_i(w), and for f(w_j) instead of f(w).
    """
    errors = np.asarray(network_errors, dtype=np.float64)
    if errors.shape != (T,):
        raise ValueError(f"network_errors must be {T} numbers, one per iteration; got shape {errors.shape}")
    return float(c * c * (1.0 + math.log(T)) / (2.0 * lam * T) + 3.0 * c * errors.sum() / T)


def push_sum_error_bound(network: Network, t: int, values: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return a bound of any node's distance from the (weighted) mean after t rounds of diffusion (Lemma 2)."""
    x = np.asarray(values, dtype=np.float64).reshape(network.n, -1)
    n = np.ones(network.n) if weights is None else np.asarray(weights, dtype=np.float64)
    return push_sum_error_factor(network, t) * float((n * np.linalg.norm(x, axis=1)).sum() / n.sum())


def iterations_until_still(lam: float, R: float, epsilon: float = 0.001) -> float:
    """Return how long the paper's stopping rule must wait: one violating example moves w by |x|/(lam t).

    On Adult, with the paper's lam and epsilon, about 1e8 iterations.
    """
    return R / (lam * epsilon)
