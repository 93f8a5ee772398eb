"""How many rounds of Push-Sum a network needs, and a summary of all that the graph alone determines."""

import math
from collections.abc import Callable

import numpy as np

from gadget_svm.core.network import Network
from gadget_svm.spectral.eigen import contraction, spectral_gap, stationary, tau_mix
from gadget_svm.spectral.graph import DIAMETER_MAX_NODES, check_diffusion, diameter_bound, period

RANDOMISED_FACTOR = 2.0
"""Rounds of randomised Push-Sum per round of the diffusion bound. Measured: at most 1.98 (the complete graph of 8
nodes) over 11 topologies of 8 to 512 nodes and gamma 0.1 to 0.0001. Stars need more, see `randomised_rounds`."""


def push_sum_error_factor(network: Network, t: int) -> float:
    """Return 2 eps/(1 - eps) with eps = contraction^t / min pi; infinite while eps >= 1.

    It is proved for every x, all weights n_j >= 0 with sum N > 0, and every connected network: after t rounds of
    diffusion from s_j = n_j x_j, phi_j = n_j, the estimate of each node i obeys

        |s_i/phi_i - mean| <= 2 eps/(1 - eps) * sum_j n_j |x_j| / N,        mean = sum_j n_j x_j / N.

    (B^t)_ji = pi_i (1 + e_ji) with |e_ji| <= contraction^t / sqrt(pi_i pi_j) <= eps. Let E0 = sum_j n_j e_ji
    and E1 = sum_j n_j x_j e_ji: the error is (E1 - mean E0) / (N + E0), with |E0| <= eps N and
    |E1| <= eps sum_j n_j |x_j|. So the factor is the same for all weights; x may be a vector in any norm.
    """
    if t < 0:
        raise ValueError(f"t counts rounds and cannot be {t}")
    return _error_factor(contraction(network), float(stationary(network).min()), t)


def rounds_to(network: Network, gamma: float = 0.01) -> int:
    """Return the rounds of diffusion after which `push_sum_error_factor` is at most ``gamma``."""
    if not gamma > 0:
        raise ValueError(f"gamma is a relative error above 0, not {gamma}: 0.01 means one per cent")
    check_diffusion(network)
    beta, pi_min = contraction(network), float(stationary(network).min())
    if beta >= 1:
        unbounded = f"there is no bound on the rounds of {network.name!r} with transition {network.transition!r}"
        raise ValueError(f"{unbounded}: use transition='lazy'")
    if pi_min == 1.0:
        return 0
    t = 1 if beta == 0 else max(1, math.ceil(math.log(pi_min * gamma / (2 + gamma)) / math.log(beta)))
    while _error_factor(beta, pi_min, t) > gamma:  # the logarithms may round to one round too few
        t += 1
    return t


def randomised_rounds(network: Network, gamma: float = 0.01) -> int:
    """Return the rounds that the randomised form needs, by measurement and not by proof.

    `RANDOMISED_FACTOR` times `rounds_to`, or more if some node is rarely drawn: on a star each leaf receives one push
    in n - 1, however fast diffusion mixes. The rounds are enough for all nodes to be drawn with probability 99 %.
    """
    rounds = rounds_to(network, gamma)
    if network.n == 1:
        return rounds
    drawn = np.bincount(network.indices, network.chances, network.n)
    waiting = math.log(100 * network.n) / float(drawn.min())
    return math.ceil(max(RANDOMISED_FACTOR * rounds, waiting))


def _error_factor(beta: float, pi_min: float, t: int) -> float:
    eps = beta**t / pi_min if pi_min < 1 else 0.0
    return 2 * eps / (1 - eps) if eps < 1 else math.inf


def summary(network: Network, gamma: float = 0.01) -> dict[str, object]:
    """Return what ``gadget topology`` prints; None for a number that is too expensive or does not exist."""
    connected = network.components[0] == 1
    return {
        "nodes": network.n,
        "edges": network.n_edges if network.directed else network.n_edges // 2,
        "directed": network.directed,
        "transition": network.transition,
        "degree_min": int(network.degree.min()),
        "degree_mean": network.n_edges / network.n,
        "degree_max": int(network.degree.max()),
        "connected": connected,
        "period": period(network) if connected else None,
        "diameter": diameter_bound(network) if connected else None,
        "diameter_exact": network.n <= DIAMETER_MAX_NODES,
        "spectral_gap": _or_none(spectral_gap, network),
        "tau_mix": _or_none(tau_mix, network),
        "rounds_diffusion": _or_none(rounds_to, network, gamma),
        "rounds_randomised": _or_none(randomised_rounds, network, gamma),
    }


def _or_none(measure: Callable[..., float], network: Network, *arguments: float) -> float | None:
    try:
        return measure(network, *arguments)
    except ValueError:
        return None
