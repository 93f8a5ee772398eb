"""What may leave a site. Looks at every vector before it is sent and keeps back what would give a row away.

A weight vector is a sum over rows, and one that is made of a single row *is* that row. So a vector is kept back if it,
or how it differs from the last one sent (to that neighbour, or to anyone), points along one of the site's rows; and the
first one also if only one row's dual variable counts in it. A message kept back is to the algorithms like one lost.

But lost ones are followed by others, and a node that has settled has nothing else to say: its neighbours would settle
on what they heard before, for good. So after a few refusals in a row the vector goes out with noise across its change
and as long as that; both vanish together as the nodes come to agree. A first vector is never let out like this.
"""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PARALLEL = 0.95
"""|cosine| from which on a vector is taken to point along a row."""
PATIENCE = 3
"""Vectors kept back from one neighbour in a row before one goes out with noise."""
FEW_FEATURES = 10
"""With fewer, some row lies along nearly every vector, which tells nothing: only moved rows are counted."""


class Discretion:
    """Remembers what was sent, and compares with the rows."""

    def __init__(self, X: sp.csr_matrix, outputs: int) -> None:
        length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
        self._X, self._length, self._outputs = X, length, outputs
        self._last: Floats | None = None
        self._sent: dict[int, Floats] = {}
        self._refused: dict[int, int] = {}
        self._rng = np.random.default_rng()  # noise that could be drawn again would hide nothing
        self.withheld = self.disguised = 0

    def allows(self, receiver: int, vector: Floats, duals: Floats | None) -> bool:
        """Whether this may be sent; if so, it is taken to be."""
        if self._is_one_row(duals) or self._points_at_a_row(receiver, vector):
            self.withheld += 1
            self._refused[receiver] = self._refused.get(receiver, 0) + 1
            return False
        self._note(receiver, vector)
        return True

    def released(self, receiver: int, vector: Floats, duals: Floats | None) -> Floats | None:
        """What to send: the vector, or with noise if it was kept back too often, or nothing."""
        if self.allows(receiver, vector, duals):
            return vector
        last = self._sent.get(receiver)
        if last is None or self._refused[receiver] < PATIENCE:
            return None
        noisy = vector + self._noise(vector - last)
        if self._points_at_a_row(receiver, noisy):
            return None
        self._note(receiver, noisy)
        self.withheld -= 1
        self.disguised += 1
        return noisy

    def _note(self, receiver: int, vector: Floats) -> None:
        self._last = self._sent[receiver] = vector.copy()
        self._refused.pop(receiver, None)

    def _is_one_row(self, duals: Floats | None) -> bool:
        return self._last is None and duals is not None and int(np.any(duals != 0.0, axis=0).sum()) == 1

    def _noise(self, change: Floats) -> Floats:
        """Of each output's part of a change: as long, and at right angles to it."""
        parts = change.reshape(self._outputs, -1)
        length = np.sqrt((parts * parts).sum(axis=1, keepdims=True))
        along = np.divide(parts, length, out=np.zeros_like(parts), where=length > 0)
        drawn = self._rng.normal(size=parts.shape)
        drawn -= (drawn * along).sum(axis=1, keepdims=True) * along
        across = np.sqrt((drawn * drawn).sum(axis=1, keepdims=True))
        return np.asarray(np.divide(drawn * length, across, out=np.zeros_like(parts), where=across > 0)).ravel()

    def sent(self, receiver: int) -> Floats | None:
        """The last vector that went to this neighbour."""
        return self._sent.get(receiver)

    def forget(self, keep: set[int]) -> None:
        """Let go of what was sent to others than these."""
        self._sent = {other: vector for other, vector in self._sent.items() if other in keep}
        self._refused = {other: count for other, count in self._refused.items() if other in keep}

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
