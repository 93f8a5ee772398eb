"""Gaussian noise from the operating system's generator. It has no seed and no state, so it cannot be predicted.

Simulations draw their noise from a seed instead (`algorithms.private_gradient`). That protects nothing: anyone who
knows the seed can subtract the noise.
"""

import os

import numpy as np

from gadget_svm.core.types import Floats


def secret_normals(count: int) -> Floats:
    """Return standard normal numbers, by the method of Box and Muller."""
    pairs = (count + 1) // 2
    words = np.frombuffer(os.urandom(16 * pairs), dtype=np.uint64) >> np.uint64(11)
    uniform = (words + 0.5) * 2.0**-53  # never 0 or 1
    radius, angle = np.sqrt(-2.0 * np.log(uniform[:pairs])), 2.0 * np.pi * uniform[pairs:]
    return np.asarray(np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count], dtype=np.float64)
