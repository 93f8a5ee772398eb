"""The behaviour of the authors' own program, as measured of its 2018 version: the origin of the printed tables.

Its gossip never reaches the model that trains and predicts, so a node is a local Pegasos run that ends early. It
specifies nothing; GADGET as in Algorithm 2 is in `gadget_svm.algorithms`.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.kernels.authors_program import published_steps
from gadget_svm.reproduction.baselines.base import Fit, checked


@dataclass(frozen=True)
class AuthorsProgram:
    """Pegasos with step 1/(lam (t + 2)), last iterate. Stops when its "objective" rests for ``patience`` steps.

    That "objective" is lam/2 |w|^2 plus one if the current row's margin is below one: no hinge and no mean. It rests if
    it changes by at most ``epsilon``.
    """

    epsilon: float = 1e-3
    patience: int = 10
    max_iter: int = 1_000_000

    def fit(self, X: Any, y: NDArray[Any], lam: float, *, seed: int = 0) -> Fit:
        """Train on X as a node trains on its shard."""
        rows, labels = checked(X, y, lam)
        w = np.zeros(rows.shape[1])
        start = (0, 0, 0.0, w, rows.indptr, rows.indices, rows.data, labels, lam, self.epsilon, self.patience, seed)
        published_steps(0, *start)  # compiles, and takes no step
        started = time.perf_counter()
        t, quiet, _, change = published_steps(self.max_iter, *start)
        return Fit(w, time.perf_counter() - started, t, change, quiet >= self.patience)
