"""The mathematical problem: F(w) = lam/2 |w|^2 + (1/N) sum_r c_r max(0, 1 - y_r <w, x_r>), one per output.

If outputs are one against the rest, each sees all rows. If they are one against one, each sees the rows of its two
classes; the sum is still divided by N.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.rows import NO_PAIRS
from gadget_svm.core.types import Floats, Indices
from gadget_svm.kernels import ThreadTeam
from gadget_svm.kernels.rows import losses

CHUNK, BATCH = 1 << 16, 32  # scores computed together; weight vectors evaluated together


class Scores(NamedTuple):
    """Per model: the objective (summed over outputs) and the zero-one error."""

    objective: Floats
    error: Floats


@dataclass(frozen=True)
class Objective:
    """The pooled problem, for observers. Nodes never see it."""

    X: sp.csr_matrix
    label: Indices
    cost: Floats
    times: Floats
    lam: float
    n_outputs: int
    team: ThreadTeam = field(default_factory=ThreadTeam)
    pairs: Indices = field(default_factory=lambda: NO_PAIRS)  # of classes, if one against one

    def __call__(self, models: Floats) -> Scores:
        """Return the scores of models (m x outputs x features); a few at a time, so that memory stays bounded."""
        per_batch = max(1, BATCH // self.n_outputs)
        parts = [self._batch(models[i : i + per_batch]) for i in range(0, len(models), per_batch)]
        return Scores(np.concatenate([p.objective for p in parts]), np.concatenate([p.error for p in parts]))

    def _batch(self, models: Floats) -> Scores:
        m, K, d = models.shape
        W = np.ascontiguousarray(models.reshape(m * K, d).T)
        rows = CHUNK // (m * K) + 1
        chunks = -(-len(self.label) // rows)
        hinge, wrong = np.zeros((chunks, m * K)), np.zeros((chunks, m))
        self.team.run(
            losses, chunks, self.X.nnz * m * K // max(chunks, 1), rows, self.X, self.label, self.cost * self.times,
            self.times, self.pairs, W, K, hinge, wrong,
        )  # fmt: skip
        total = self.times.sum()
        loss = hinge.sum(axis=0).reshape(m, K).sum(axis=1) / total
        ridge = 0.5 * self.lam * np.einsum("mkd,mkd->m", models, models)
        return Scores(ridge + loss, wrong.sum(axis=0) / total)
