"""The behaviour of the authors' own program, as measured of its 2018 version: the origin of the printed tables.

Its gossip never reaches the model that trains and predicts, so a node is a local Pegasos run that ends early. It
specifies nothing; GADGET as in Algorithm 2 is in `gadget_svm.algorithms`.
"""

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from gadget_svm.kernels.authors_program import published_steps
from gadget_svm.reproduction.baselines.base import Fit, Limits, TrainingClock, checked
from gadget_svm.simulation.stopping import geometric


@dataclass(frozen=True)
class AuthorsProgram:
    """Pegasos with step 1/(lam (t + 2)), last iterate. Stops when its "objective" rests for ``patience`` steps.

    That "objective" is lam/2 |w|^2 plus one if the current row's margin is below one: no hinge and no mean. It rests if
    it changes by at most ``epsilon``.
    """

    epsilon: float = 1e-3
    patience: int = 10
    max_iter: int = 1_000_000

    def fit(self, X: Any, y: NDArray[Any], lam: float, *, seed: int = 0, **limits: Unpack[Limits]) -> Fit:
        """Train on X as a node trains on its shard."""
        rows, labels = checked(X, y, lam)
        w, t, quiet, before, change = np.zeros(rows.shape[1]), 0, 0, 0.0, np.inf
        at = (w, rows.indptr, rows.indices, rows.data, labels, lam, self.epsilon, self.patience, seed)
        published_steps(0, t, quiet, before, *at)  # compiles, and takes no step
        clock = TrainingClock(**limits)
        while quiet < self.patience and t < self.max_iter and not (t and clock.expired):
            count = min(geometric(t), self.max_iter) - t
            t, quiet, before, change = published_steps(count, t, quiet, before, *at)
            clock.record(t, w.copy())
        return clock.finish(w, t, change, quiet >= self.patience)
