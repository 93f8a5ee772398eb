"""What the authors' own program does, as measured of its 2018 version: it documents where the printed table comes from.

Its gossip never reaches the model that trains and predicts, so a node is a local Pegasos run that ends early. Not a
specification of anything; GADGET as in Algorithm 2 is `gadget_svm.algorithms`'.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gadget_svm.reproduction.baselines.base import Evaluator, Fit, Watch, checked

if TYPE_CHECKING:
    import scipy.sparse as sp


@dataclass(frozen=True)
class AsPublished:
    """Pegasos with step 1/(lam (t + 2)), the last iterate, until the "objective" is still ``patience`` steps in a row.

    That "objective" is lam/2 |w|^2 plus one if the current row's margin is below one: no hinge and no mean. It is still
    where it changes by at most ``epsilon``.
    """

    name: ClassVar[str] = "as-published"
    epsilon: float = 1e-3
    patience: int = 10
    max_iter: int = 1_000_000

    def fit(
        self,
        X: "sp.csr_matrix",
        y: NDArray[Any],
        lam: float,
        *,
        seed: int = 0,
        max_seconds: float | None = None,
        judge: Evaluator | None = None,
    ) -> Fit:
        """Train on X as one node would on its shard."""
        from gadget_svm.kernels.authors_program import published_steps
        from gadget_svm.simulation.stopping import geometric

        rows, labels = checked(X, y, lam)
        w, t, quiet, before, change = np.zeros(rows.shape[1]), 0, 0, 0.0, np.inf
        at = (w, rows.indptr, rows.indices, rows.data, labels, lam, self.epsilon, self.patience, seed)
        published_steps(0, t, quiet, before, *at)  # compiles, and takes no step
        watch = Watch(judge, max_seconds)
        while quiet < self.patience and t < self.max_iter and not (t and watch.over):
            count = min(geometric(t), self.max_iter) - t
            t, quiet, before, change = published_steps(count, t, quiet, before, *at)
            watch.look(t, w.copy())
        return watch.finish(w, t, change, quiet >= self.patience)
