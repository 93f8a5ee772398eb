"""The paper's theorems as formulas: as printed, with their errors, and the corrected bound.

Only arithmetic: no function here reads data or runs an algorithm.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from gadget_svm.core.network import Network
from gadget_svm.spectral import push_sum_error_factor
from gadget_svm.spectral import tau_mix as tau_mix  # the paper's mixing time is one of its formulas


def radius(lam: float, mean_cost: float = 1.0) -> float:
    """Return the radius of the ball that holds the optimum, sqrt(mean_cost / lam).

    Parameters
    ----------
    lam : float
        Weight of the regulariser.
    mean_cost : float, default 1.0
        Mean weight of a row.

    Examples
    --------
    >>> radius(0.01)
    10.0
    """
    return math.sqrt(mean_cost / lam)


def learning_rate(lam: float, t: int) -> float:
    """Return alpha(t) = 1/(lam t), step (d) of Algorithm 2.

    Examples
    --------
    >>> learning_rate(0.01, 100)
    1.0
    """
    return 1.0 / (lam * t)


def network_error_bound(
    lam: float, t: int, epsilon: float, epsilon1: float, epsilon2: float, R: float, N: int
) -> float:
    """Return Theorem 1 as printed: a node's distance from the network average after one step and two Push-Sums.

    The term R epsilon/N assumes that the *loss vector* is Lipschitz in w (Lemma 1). Only the loss is Lipschitz: where a
    margin is exactly 1, the loss vector of a row jumps. The bound holds for epsilon = 0.

    Parameters
    ----------
    lam : float
        Weight of the regulariser.
    t : int
        Number of the step, from 1.
    epsilon : float
        Distance before the step.
    epsilon1, epsilon2 : float
        Relative errors of Push-Sum for the weights and for the loss vectors.
    R : float
        Largest norm of a row.
    N : int
        Number of rows of all nodes.

    Examples
    --------
    >>> network_error_bound(lam=0.1, t=10, epsilon=0.0, epsilon1=0.0, epsilon2=0.5, R=1.0, N=100)
    0.5
    """
    alpha = learning_rate(lam, t)
    return (1.0 - lam * alpha) * (epsilon + N * epsilon1 / lam) + alpha * (R * epsilon / N + epsilon2)


def printed_bound(c: float, lam: float, T: int, gamma: float, R: float) -> float:
    """Return Theorem 2 as printed. It gives no information, since it is never below `largest_gap`.

    Its first term, 2c/sqrt(lam), bounds the nodes' distance from their mean by the ball's diameter. Also, log(T)
    stands for 1 + ln(T), and Jensen's inequality is written the wrong way round.

    Parameters
    ----------
    c : float
        Largest norm of a subgradient.
    lam : float
        Weight of the regulariser.
    T : int
        Number of iterations.
    gamma : float
        Relative error of Push-Sum.
    R : float
        Largest norm of a row.

    Examples
    --------
    >>> printed_bound(c=1.0, lam=0.01, T=10**6, gamma=0.0, R=1.0) > largest_gap(0.01, 1.0)
    True
    """
    root = math.sqrt(lam)
    return 2 * c / root + c * c * math.log(T) / (2 * T * lam) + 2 / root * (gamma * R / root + gamma * R)


def largest_gap(lam: float, R: float) -> float:
    """Return an upper bound of f(w) - f* for every w in the ball of `radius`.

    The regulariser contributes 1/2 and the hinge 1 + R/sqrt(lam), where R is the largest norm of a row.

    Examples
    --------
    >>> largest_gap(0.01, 1.0)
    11.5
    """
    return 1.5 + R / math.sqrt(lam)


def corrected_bound(c: float, lam: float, T: int, network_errors: ArrayLike) -> float:
    """Return the bound that holds, without projection, for the average of the iterates 1..T of any node.

        E f(w-bar_i / T) - f* <= c^2 (1 + ln T) / (2 lam T) + (3c / T) sum_t E max_i |w_i(t) - w(t)|

    The factor 3c adds up three errors of c each: the gradient is taken at w_i and not at w, f_i(w_i) stands for f_i(w),
    and f(w_j) stands for f(w).

    Parameters
    ----------
    c : float
        Largest norm of a subgradient.
    lam : float
        Weight of the regulariser.
    T : int
        Number of iterations.
    network_errors : array-like of T floats
        The measured distances max_i |w_i(t) - w(t)|.

    Raises
    ------
    ValueError
        If ``network_errors`` has another length.

    Examples
    --------
    >>> corrected_bound(1.0, 0.5, 1, [0.0])
    1.0
    """
    errors = np.asarray(network_errors, dtype=np.float64)
    if errors.shape != (T,):
        raise ValueError(f"network_errors must be {T} numbers, one per iteration; got shape {errors.shape}")
    return float(c * c * (1.0 + math.log(T)) / (2.0 * lam * T) + 3.0 * c * errors.sum() / T)


def push_sum_error_bound(network: Network, t: int, values: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return how far any node's estimate can be from the (weighted) mean after t rounds of diffusion (Lemma 2).

    Parameters
    ----------
    network : Network
        The graph with its transition matrix.
    t : int
        Number of rounds.
    values : array-like
        One number or one vector per node.
    weights : array-like or None, default None
        One weight per node; None: all 1.

    Examples
    --------
    >>> from gadget_svm import build_network
    >>> network = build_network("complete", 4)
    >>> push_sum_error_bound(network, 20, [1, 2, 3, 4]) < push_sum_error_bound(network, 10, [1, 2, 3, 4])
    True
    """
    x = np.asarray(values, dtype=np.float64).reshape(network.n, -1)
    n = np.ones(network.n) if weights is None else np.asarray(weights, dtype=np.float64)
    return push_sum_error_factor(network, t) * float((n * np.linalg.norm(x, axis=1)).sum() / n.sum())


def iterations_until_still(lam: float, R: float, epsilon: float = 0.001) -> float:
    """Return how many iterations the paper's stopping rule needs: one violating example moves w by |x|/(lam t).

    Parameters
    ----------
    lam : float
        Weight of the regulariser.
    R : float
        Norm of the example.
    epsilon : float, default 0.001
        The rule's tolerance.

    Examples
    --------
    On Adult, with the paper's lambda:

    >>> f"{iterations_until_still(3.07e-5, 14**0.5):.1e}"
    '1.2e+08'
    """
    return R / (lam * epsilon)
