"""Distances between models."""

import numpy as np

from gadget_svm.core.types import Floats


def distances(models: Floats, others: Floats) -> Floats:
    """Distance of each model to its counterpart in ``others``, or of all to one; in chunks, to bound the memory."""
    out = np.empty(len(models))
    stride = max(1, 2**20 // max(1, models[0].size))
    for i in range(0, len(models), stride):
        apart = models[i : i + stride] - (others[i : i + stride] if others.ndim == models.ndim else others)
        out[i : i + stride] = np.sqrt(np.einsum("mkd,mkd->m", apart, apart))
    return out


def disagreement(models: Floats, mean: Floats) -> float:
    """Distance of the node farthest from the average, relative to the average's length."""
    farthest = float(distances(models, mean).max())
    length = float(np.sqrt(np.einsum("kd,kd->", mean, mean)))  # no BLAS: its threads would wait in a busy loop
    return farthest / length if length > 0 else 0.0
