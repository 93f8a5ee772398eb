"""The behaviour of the authors' own program, as measured of its 2018 version: the origin of the printed tables.

Its gossip never reaches the model that trains and predicts, so a node is a local Pegasos run that ends early. It
specifies nothing; GADGET as in Algorithm 2 is in `gadget_svm.algorithms`.
"""

import time
from typing import Any

import numpy as np

from gadget_svm.core.types import Floats
from gadget_svm.kernels.authors_program import published_steps
from gadget_svm.reproduction.baselines.base import Fit

EPSILON, PATIENCE = 1e-3, 10
"""The program stops when its "objective" changes by at most EPSILON in PATIENCE steps in a row."""


def authors_program(X: Any, y: Floats, lam: float, seed: int = 0, *, max_iter: int = 1_000_000) -> Fit:
    """Train as a node trains on its shard: Pegasos with step 1/(lam (t + 2)); the answer is the last iterate.

    Its "objective" is lam/2 |w|^2 plus one if the current row's margin is below one: no hinge and no mean.
    """
    w = np.zeros(X.shape[1])
    start = (0, 0, 0.0, w, X.indptr, X.indices, X.data, y.astype(np.float64), lam, EPSILON, PATIENCE, seed)
    published_steps(0, *start)  # compiles, and takes no step
    started = time.perf_counter()
    t, quiet, _, change = published_steps(max_iter, *start)
    return Fit(w, time.perf_counter() - started, t, change, quiet >= PATIENCE)
