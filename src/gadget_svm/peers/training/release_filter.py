"""What may leave a site: `ReleaseFilter` keeps back vectors that would give a row away.

A weight vector is a sum over rows; one that is made of a single row is that row. So a vector is kept back if it points
along one of the site's rows, or if its difference to the last vector that went to that neighbour, or to any
neighbour, does; and a first vector also if a single dual variable counts in it. A message that is kept back is to the
algorithms like a lost one.

At rest successive vectors agree in all but their last digits. The difference of their products with a row is then all
rounding, so the change itself is multiplied with the rows wherever that could decide. Rounding of the vectors tells
nothing: a change of every weight by a unit or two in its last place. If a weight changes by more, the change is looked
at, however short it is beside the vector.

A node that has converged has nothing else to say: its neighbours would stay with what they received before. So after a
few suppressed vectors in a row the vector is sent with noise orthogonal to its change and as long as that; both vanish
as the nodes come to agree. A first vector is never sent like this.
"""

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.core.types import Floats

PARALLEL = 0.95
"""The |cosine| from which on a vector points along a row."""
SUPPRESSED_BEFORE_NOISE = 3
"""Vectors kept back from one neighbour in a row before one is sent with noise."""
SUPPRESSED_BEFORE_BLOCKED = 100
"""Vectors kept back from one neighbour in a row, before any was sent, that are more than those of the first ticks."""
FORMER = 16
"""Former neighbours of which the last vector is remembered, in case they return."""
ROUNDING = float(np.finfo(np.float64).eps)
"""A relative change of a weight by this or less may be rounding: one or two units in its last place."""
MIN_FEATURES = 10
"""With fewer features some row lies along nearly every vector, which tells nothing: directions are not compared."""


class _Vector:
    """Weights; their lengths per output and their products with all rows are computed when they are needed."""

    def __init__(self, flat: Floats, X: sp.csr_matrix, outputs: int) -> None:
        self.flat, self._X, self._outputs = flat, X, outputs

    @cached_property
    def lengths(self) -> Floats:
        return np.asarray(np.linalg.norm(self.flat.reshape(self._outputs, -1), axis=1))

    @cached_property
    def products(self) -> Floats:
        return np.asarray(self._X @ self.flat.reshape(self._outputs, -1).T)


class ReleaseFilter:
    """Decides what a node may send. Neighbours are node numbers; vectors are flat models.

    Others must not be able to guess the seed of the noise. ``suppressed`` counts the vectors that were kept back, and
    ``noised`` those that were sent with noise.
    """

    def __init__(self, X: sp.csr_matrix, outputs: int, noise_seed: int) -> None:
        self._X, self._outputs = X, outputs
        self._length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
        self._error = float(np.finfo(np.float64).eps * np.diff(X.indptr).max(initial=0))  # of a product, over lengths
        self._sent: dict[int, _Vector] = {}  # the latest last
        self._refused: dict[int, int] = {}  # in a row
        self._rng = np.random.default_rng(noise_seed)
        self.suppressed = self.noised = 0

    def release(self, other: int, vector: Floats, duals: Floats | None) -> Floats | None:
        """Return what to send: a copy of the vector, one with noise if vectors were kept back too often, or None."""
        own, before = self._vector(np.array(vector)), self._before(other)
        if not self._is_one_row(duals) and not self._tells_a_row(own, before):
            return self._release(other, own)
        self._refused[other] = self._refused.get(other, 0) + 1
        last = self._sent.get(other)
        if last is not None and self._refused[other] >= SUPPRESSED_BEFORE_NOISE:
            noisy = self._vector(vector + self._noise(vector - last.flat))
            if not self._tells_a_row(noisy, before):
                self.noised += 1
                return self._release(other, noisy)
        self.suppressed += 1
        return None

    def last_sent(self, other: int) -> Floats | None:
        """Return the last vector that was sent to a neighbour."""
        found = self._sent.get(other)
        return None if found is None else found.flat

    @property
    def blocked(self) -> list[int]:
        """The neighbours that nothing was ever sent to although there was much to send."""
        many = [other for other, count in self._refused.items() if count >= SUPPRESSED_BEFORE_BLOCKED]
        return [other for other in many if other not in self._sent]

    def forget(self, keep: Collection[int]) -> None:
        """Forget what was sent to others than these, except for the latest few."""
        former = [other for other in self._sent if other not in keep]
        for other in former[: max(len(former) - FORMER, 0)]:
            del self._sent[other]
        self._refused = {other: count for other, count in self._refused.items() if other in keep}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was sent last, the latest last."""
        found, size = self._sent, int(self._outputs * self._X.shape[1])
        sent = np.array([vector.flat for vector in found.values()]).reshape(len(found), size)
        return {"sent": sent, "sent_to": np.array(list(found), dtype=np.int64)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue as if this filter had sent what is in the snapshot."""
        sent, receivers = arrays["sent"], arrays["sent_to"].tolist()
        if sent.shape != (len(receivers), self._outputs * self._X.shape[1]):
            raise ValueError(f"the vectors sent before have the shape {sent.shape}")
        self._sent = {other: self._vector(np.array(flat)) for other, flat in zip(receivers, sent, strict=True)}

    def _vector(self, flat: Floats) -> _Vector:
        return _Vector(flat, self._X, self._outputs)

    def _release(self, other: int, vector: _Vector) -> Floats:
        self._refused.pop(other, None)
        self._sent.pop(other, None)
        self._sent[other] = vector
        return vector.flat

    def _before(self, other: int) -> list[_Vector]:
        """Return the vectors that this neighbour, or anybody, received last, each once."""
        own, last = self._sent.get(other), self._last
        return [each for each in {id(own): own, id(last): last}.values() if each is not None]

    @property
    def _last(self) -> _Vector | None:
        return next(reversed(self._sent.values()), None)

    def _is_one_row(self, duals: Floats | None) -> bool:
        return not self._sent and duals is not None and int(np.any(duals != 0.0, axis=0).sum()) == 1

    def _noise(self, change: Floats) -> Floats:
        """Return a vector that, for each output, is as long as the change and orthogonal to it."""
        parts = change.reshape(self._outputs, -1)
        length = np.linalg.norm(parts, axis=1, keepdims=True)
        along = np.divide(parts, length, out=np.zeros_like(parts), where=length > 0)
        drawn = self._rng.normal(size=parts.shape)
        drawn -= (drawn * along).sum(axis=1, keepdims=True) * along
        across = np.linalg.norm(drawn, axis=1, keepdims=True)
        return np.asarray(np.divide(drawn * length, across, out=np.zeros_like(parts), where=across > 0)).ravel()

    def _tells_a_row(self, vector: _Vector, before: list[_Vector]) -> bool:
        if self._X.shape[1] < MIN_FEATURES:
            return False
        is_along = self._any_beyond(vector.products, PARALLEL * vector.lengths)
        return is_along or any(self._moved_along_a_row(each, vector) for each in before)

    def _moved_along_a_row(self, before: _Vector, vector: _Vector) -> bool:
        """Return whether any output's change does. The known products rule most out, the change's own decide."""
        change = self._vector(vector.flat - before.flat)
        larger = np.maximum(np.abs(vector.flat), np.abs(before.flat))
        real = (np.abs(change.flat) > ROUNDING * larger).reshape(self._outputs, -1).any(axis=1)
        if not real.any():
            return False
        limit = PARALLEL * change.lengths[real]
        cancelled = self._error * (vector.lengths + before.lengths)[real]
        apart = (vector.products - before.products)[:, real]
        return self._any_beyond(apart, limit - cancelled) and self._any_beyond(change.products[:, real], limit)

    def _any_beyond(self, products: Floats, limit: Floats) -> bool:
        """Return whether any row has a larger product than this, of an output, times its length."""
        return bool((np.abs(products) > self._length[:, None] * limit[None, :]).any())
