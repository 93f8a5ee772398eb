"""How well a network mixes: connectivity, period, diameter, eigenvalues, and the rounds that Push-Sum needs.

Owns every number that the graph alone determines. Raises `TooLargeError` if a number would take too long to compute.
"""

from gadget_svm.spectral.eigen import contraction, second_eigenvalue, spectral_gap, stationary, tau_mix
from gadget_svm.spectral.graph import TooLargeError, check_connected, check_diffusion, diameter, diameter_bound, period
from gadget_svm.spectral.rounds import RANDOMISED_FACTOR, push_sum_error_factor, randomised_rounds, rounds_to, summary

__all__ = [
    "RANDOMISED_FACTOR", "TooLargeError", "check_connected", "check_diffusion", "contraction", "diameter",
    "diameter_bound", "period", "push_sum_error_factor", "randomised_rounds", "rounds_to", "second_eigenvalue",
    "spectral_gap", "stationary", "summary", "tau_mix",
]  # fmt: skip
