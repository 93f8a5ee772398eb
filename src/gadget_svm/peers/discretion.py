"""What may leave a site. Looks at every vector before it is sent and keeps back what would give a row away.

A weight vector is a sum over rows, and one that is made of a single row *is* that row. So a vector is kept back if it,
or how it differs from the last one sent (to that neighbour, or to anyone), points along one of the site's rows; and so
it is if a single row's dual variable has moved since. A message kept back is to the algorithms like a message lost.
"""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PARALLEL = 0.95
"""|cosine| from which on a vector is taken to point along a row."""
FEW_FEATURES = 10
"""With fewer, some row lies along nearly every vector, which tells nothing: only moved rows are counted."""


class Discretion:
    """Remembers what was sent, and compares with the rows."""

    def __init__(self, X: sp.csr_matrix, outputs: int) -> None:
        length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
        self._X, self._length, self._outputs = X, np.where(length > 0, length, np.inf), outputs
        self._last: Floats | None = None
        self._sent: dict[int, Floats] = {}
        self._duals: Floats | None = None
        self.withheld = 0

    def allows(self, receiver: int, vector: Floats, duals: Floats | None) -> bool:
        """Whether this may be sent; if so, it is taken to be."""
        moved = 0 if duals is None or self._duals is None else int(np.any(duals != self._duals, axis=0).sum())
        if moved == 1 or self._points_at_a_row(receiver, vector):
            self.withheld += 1
            return False
        self._last = self._sent[receiver] = vector.copy()
        if duals is not None:
            self._duals = duals.copy()
        return True

    def sent(self, receiver: int) -> Floats | None:
        """The last vector that went to this neighbour."""
        return self._sent.get(receiver)

    def forget(self, keep: set[int]) -> None:
        """Let go of what was sent to others than these."""
        self._sent = {other: vector for other, vector in self._sent.items() if other in keep}

    def _points_at_a_row(self, receiver: int, vector: Floats) -> bool:
        if self._X.shape[1] < FEW_FEATURES:
            return False
        before = [last for last in (self._sent.get(receiver), self._last) if last is not None]
        return any(
            along_a_row(self._X, self._length, v, self._outputs) for v in (vector, *(vector - b for b in before))
        )


def along_a_row(X: sp.csr_matrix, length: Floats, vector: Floats, outputs: int, most: float = PARALLEL) -> bool:
    """Whether a weight vector of any output has a |cosine| above ``most`` with a row."""
    parts = vector.reshape(outputs, -1)
    norms = np.sqrt((parts * parts).sum(axis=1))
    across = np.abs(np.asarray(X @ parts.T))
    return bool((across > most * length[:, None] * norms[None, :]).any())
