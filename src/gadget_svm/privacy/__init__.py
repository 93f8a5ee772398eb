"""Differential privacy per row: the budget, its accounting, and noise that cannot be predicted.

`algorithms.private_gradient` uses it. This package knows nothing of networks, files or models.
"""

from gadget_svm.privacy.budget import DifferentialPrivacy, Plan, epsilon_of
from gadget_svm.privacy.noise import secret_normals

__all__ = ["DifferentialPrivacy", "Plan", "epsilon_of", "secret_normals"]
