"""What may leave a site. `ReleaseFilter` is the interface; `RowFilter` keeps back vectors that would give a row away.

A weight vector is a sum over rows; one that is made of a single row is that row. So `RowFilter` keeps a vector back if
it points along one of the site's rows, or if its difference to the last vector that went to that neighbour, or to any
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
from dataclasses import dataclass
from typing import Any, Protocol

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


class ReleaseFilter(Protocol):
    """Decides what a node may send. Neighbours are node numbers; vectors are flat models."""

    suppressed: int
    """How many vectors were kept back so far."""

    def release(self, other: int, vector: Floats, duals: Floats | None) -> Floats | None:
        """Return what to send instead of ``vector``, which is not changed, or None. `sent` is called if it is sent."""

    def sent(self, other: int, vector: Floats) -> None:
        """Remember a vector that is sent. It must not change any more."""

    def last_sent(self, other: int) -> Floats | None:
        """Return the last vector that was sent to a neighbour."""

    def blocked(self, other: int) -> bool:
        """Return whether nothing was ever sent to a neighbour although there was much to send."""

    def forget(self, keep: Collection[int]) -> None:
        """Forget what was sent to other neighbours, except for the latest few."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return arrays for a snapshot."""

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a snapshot."""


@dataclass(eq=False)
class _Vector:
    """Weights, and once they were needed their lengths per output and their products with all rows."""

    flat: Floats
    norms: Floats | None = None
    products: Floats | None = None


class RowFilter:
    """Compares what is sent with the site's rows. Others must not be able to guess the seed of the noise."""

    def __init__(self, X: sp.csr_matrix, outputs: int, noise_seed: int) -> None:
        self._X, self._outputs = X, outputs
        self._length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
        self._error = float(np.finfo(np.float64).eps * np.diff(X.indptr).max(initial=0))  # of a product, over lengths
        self._last: _Vector | None = None
        self._sent: dict[int, _Vector] = {}  # the latest last
        self._released: _Vector | None = None
        self._refused: dict[int, int] = {}
        self._rng = np.random.default_rng(noise_seed)
        self.suppressed = self.noised = 0

    def release(self, other: int, vector: Floats, duals: Floats | None) -> Floats | None:
        """Return a copy of the vector, or one with noise if vectors were kept back too often, or None."""
        own, before = _Vector(np.array(vector)), self._before(other)
        if not self._is_one_row(duals) and not self._tells_a_row(own, before):
            self._refused.pop(other, None)
            self._released = own
            return own.flat
        self._refused[other] = self._refused.get(other, 0) + 1
        last = self._sent.get(other)
        if last is not None and self._refused[other] > SUPPRESSED_BEFORE_NOISE - 1:
            noisy = _Vector(vector + self._noise(vector - last.flat))
            if not self._tells_a_row(noisy, before):
                self.noised += 1
                self._refused.pop(other)
                self._released = noisy
                return noisy.flat
        self.suppressed += 1
        return None

    def sent(self, other: int, vector: Floats) -> None:
        """Remember a vector that is sent."""
        made = self._released
        self._last = made if made is not None and made.flat is vector else _Vector(vector)
        self._sent.pop(other, None)
        self._sent[other] = self._last

    def last_sent(self, other: int) -> Floats | None:
        """Return the last vector that was sent to a neighbour."""
        found = self._sent.get(other)
        return None if found is None else found.flat

    def blocked(self, other: int) -> bool:
        """Return whether nothing was ever sent to a neighbour although there was much to send."""
        return self._refused.get(other, 0) >= SUPPRESSED_BEFORE_BLOCKED and other not in self._sent

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
        self._sent = {other: _Vector(np.array(flat)) for other, flat in zip(receivers, sent, strict=True)}
        self._last = next(reversed(self._sent.values()), None)

    def _before(self, other: int) -> list[_Vector]:
        """Return the vectors that this neighbour, or anybody, received last, each once."""
        own, last = self._sent.get(other), self._last
        return [each for each in ((own, last) if own is not last else (last,)) if each is not None]

    def _is_one_row(self, duals: Floats | None) -> bool:
        return self._last is None and duals is not None and int(np.any(duals != 0.0, axis=0).sum()) == 1

    def _noise(self, change: Floats) -> Floats:
        """Return a vector that, for each output, is as long as the change and orthogonal to it."""
        parts = change.reshape(self._outputs, -1)
        length = np.sqrt((parts * parts).sum(axis=1, keepdims=True))
        along = np.divide(parts, length, out=np.zeros_like(parts), where=length > 0)
        drawn = self._rng.normal(size=parts.shape)
        drawn -= (drawn * along).sum(axis=1, keepdims=True) * along
        across = np.sqrt((drawn * drawn).sum(axis=1, keepdims=True))
        return np.asarray(np.divide(drawn * length, across, out=np.zeros_like(parts), where=across > 0)).ravel()

    def _tells_a_row(self, vector: _Vector, before: list[_Vector]) -> bool:
        if self._X.shape[1] < MIN_FEATURES:
            return False
        return self._is_along_a_row(vector) or any(self._moved_along_a_row(each, vector) for each in before)

    def _is_along_a_row(self, vector: _Vector) -> bool:
        """Return whether the weights of any output have a |cosine| above PARALLEL with a row."""
        return self._any_beyond(self._across(vector), PARALLEL * self._lengths(vector))

    def _moved_along_a_row(self, before: _Vector, vector: _Vector) -> bool:
        """Return whether any output's change does. The known products rule most out, the change's own decide."""
        change = vector.flat - before.flat
        larger = np.maximum(np.abs(vector.flat), np.abs(before.flat))
        real = (np.abs(change) > ROUNDING * larger).reshape(self._outputs, -1).any(axis=1)
        if not real.any():
            return False
        limit = PARALLEL * self._norms(change)[real]
        cancelled = self._error * (self._lengths(vector) + self._lengths(before))[real]
        apart = (self._across(vector) - self._across(before))[:, real]
        return self._any_beyond(apart, limit - cancelled) and self._any_beyond(self._products(change)[:, real], limit)

    def _any_beyond(self, products: Floats, limit: Floats) -> bool:
        """Return whether any row has a larger product than this, of an output, times its length."""
        return bool((np.abs(products) > self._length[:, None] * limit[None, :]).any())

    def _across(self, vector: _Vector) -> Floats:
        if vector.products is None:
            vector.products = self._products(vector.flat)
        return vector.products

    def _lengths(self, vector: _Vector) -> Floats:
        if vector.norms is None:
            vector.norms = self._norms(vector.flat)
        return vector.norms

    def _products(self, flat: Floats) -> Floats:
        return np.asarray(self._X @ flat.reshape(self._outputs, -1).T)

    def _norms(self, flat: Floats) -> Floats:
        parts = flat.reshape(self._outputs, -1)
        return np.asarray(np.sqrt((parts * parts).sum(axis=1)))
