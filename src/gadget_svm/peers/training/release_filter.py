"""What may leave a site. Looks at every vector before it is sent and keeps back what would give a row away.

A weight vector is a sum over rows, and one that is made of a single row *is* that row. So a vector is kept back if it,
or how it differs from the last one sent (to that neighbour, or to anyone), points along one of the site's rows; and the
first one also if only one row's dual variable counts in it. A message kept back is to the algorithms like one lost.

At rest successive vectors agree in all but their last digits. The difference of their products with a row is then all
rounding, of any size, so the change itself is multiplied with the rows wherever that could decide. Rounding of the
vectors tells nothing: a change of every weight by a unit or two in its last place. If only one weight changes by more,
the change is looked at, however short it is beside the vector: float64 would carry it. As float32 less arrives.

What was released may still wait to be sent when the next one is looked at, and be dropped for it: so a vector is
compared with what was sent and with what waits, and whichever goes out, in whatever order, was compared.

But lost ones are followed by others, and a node that has settled has nothing else to say: its neighbours would settle
on what they heard before, for good. So after a few refusals in a row the vector goes out with noise across its change
and as long as that; both vanish together as the nodes come to agree. A first vector is never let out like this.
"""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PARALLEL = 0.95
"""|cosine| from which on a vector is taken to point along a row."""
PATIENCE = 3
"""Vectors kept back from one neighbour in a row before one goes out with noise."""
MUTE = 100
"""Vectors kept back from one neighbour in a row, before any was sent, that are no matter of the first few ticks."""
FORMER = 16
"""Neighbours of before of whom it is known what they were sent, should they come back."""
ROUNDING = float(np.finfo(np.float64).eps)
"""Of a weight, one or two units in its last place: a change of no more than that may be the rounding of the two."""
FEW_FEATURES = 10
"""With fewer, some row lies along nearly every vector, which tells nothing: that is not looked at then."""


@dataclass(eq=False)
class _Vector:
    """Weights, and their products with all rows once they were needed."""

    flat: Floats
    across: Floats | None = None


class Discretion:
    """Remembers what was sent, and compares with the rows. One thread looks, another may send, ask and save.

    The lock is for what is remembered; nothing is multiplied while it is held.
    """

    def __init__(self, X: sp.csr_matrix, outputs: int) -> None:
        length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
        self._X, self._length, self._outputs = X, length, outputs
        self._error = float(np.finfo(np.float64).eps * np.diff(X.indptr).max(initial=0))  # of a product, over lengths
        self._last: _Vector | None = None
        self._sent: dict[int, _Vector] = {}  # the latest last
        self._waiting: dict[int, deque[_Vector]] = {}  # released; sent, dropped, or still to be sent
        self._handed: deque[tuple[int, Floats]] = deque()
        self._lock = threading.Lock()
        self._refused: dict[int, int] = {}
        self._rng = np.random.default_rng()  # noise that could be drawn again would hide nothing
        self.withheld = self.disguised = 0

    def allows(self, receiver: int, vector: Floats, duals: Floats | None) -> bool:
        """Whether this may be sent. `handed` says that it was."""
        clear = self._released(receiver, vector, duals) is not None
        self.withheld += not clear
        return clear

    def released(self, receiver: int, vector: Floats, duals: Floats | None) -> Floats | None:
        """What to send: a copy of the vector, or with noise if it was kept back too often, or nothing."""
        found = self._released(receiver, vector, duals)
        if found is None:
            found = self._disguise(receiver, vector)
            if found is None:
                self.withheld += 1  # once it is sure: others read it meanwhile, and it only grows
        return found

    def _disguise(self, receiver: int, vector: Floats) -> Floats | None:
        last = self.sent(receiver)
        if last is None or self._refused[receiver] < PATIENCE:
            return None
        noisy = _Vector(vector + self._noise(vector - last))
        if self._points_at_a_row(noisy, self._before(receiver)):
            return None
        self.disguised += 1
        return self._wait(receiver, noisy)

    def handed(self, receiver: int, vector: Floats) -> None:
        """This goes to the wire now. May be called from another thread; the vector is not to change any more."""
        self._handed.append((receiver, vector))

    def sent(self, receiver: int) -> Floats | None:
        """The last vector that went to this neighbour."""
        with self._lock:
            self._take_note()
            found = self._sent.get(receiver)
        return None if found is None else found.flat

    def mute(self, receiver: int) -> bool:
        """Whether nothing ever went to this neighbour, though much was to. For the thread that looks."""
        return self._refused.get(receiver, 0) >= MUTE and self.sent(receiver) is None

    def forget(self, keep: set[int]) -> None:
        """Let go of what was sent to others than these, but for the latest few."""
        with self._lock:
            self._take_note()
            former = [other for other in self._sent if other not in keep]
            for other in former[: max(len(former) - FORMER, 0)]:
                del self._sent[other]
            self._waiting = {other: some for other, some in self._waiting.items() if other in keep}
            self._refused = {other: count for other, count in self._refused.items() if other in keep}

    def state(self) -> dict[str, NDArray[Any]]:
        """What was sent, for a checkpoint: to the next start it is as if it had sent it itself."""
        with self._lock:
            self._take_note()
            found = dict(self._sent)
        sent = np.array([vector.flat for vector in found.values()]).reshape(len(found), self._size)
        return {"sent": sent, "sent_to": np.array(list(found), dtype=np.int64)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a checkpoint."""
        sent, receivers = arrays["sent"], arrays["sent_to"].tolist()
        if sent.shape != (len(receivers), self._size):
            raise ValueError(f"what was sent has the shape {sent.shape}")
        with self._lock:
            self._sent = {other: _Vector(np.array(flat)) for other, flat in zip(receivers, sent, strict=True)}
            self._last = next(reversed(self._sent.values()), None)

    @property
    def _size(self) -> int:
        return int(self._outputs * self._X.shape[1])

    def _released(self, receiver: int, vector: Floats, duals: Floats | None) -> Floats | None:
        own, earlier = _Vector(np.array(vector)), self._before(receiver)
        if self._is_one_row(duals) or self._points_at_a_row(own, earlier):
            self._refused[receiver] = self._refused.get(receiver, 0) + 1
            return None
        return self._wait(receiver, own)

    def _wait(self, receiver: int, vector: _Vector) -> Floats:
        """It takes the place of what waits, once it is handed on; until then the other may still go out."""
        with self._lock:
            self._waiting.setdefault(receiver, deque(maxlen=2)).append(vector)
        self._refused.pop(receiver, None)
        return vector.flat

    def _take_note(self) -> None:
        """Of what was handed over since. With the lock."""
        while self._handed:
            receiver, flat = self._handed.popleft()
            vector = self._called(receiver, flat) or _Vector(flat)
            self._sent.pop(receiver, None)
            self._last = self._sent[receiver] = vector

    def _called(self, receiver: int, flat: Floats) -> _Vector | None:
        """The one that waits no more, nor do those before it: they were dropped, or told of before. With the lock."""
        waiting = self._waiting.get(receiver, deque())
        if not any(np.array_equal(each.flat, flat) for each in waiting):
            return None  # forgotten meanwhile; what waits still does
        while True:
            first = waiting.popleft()
            if np.array_equal(first.flat, flat):
                return first

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

    def _points_at_a_row(self, vector: _Vector, earlier: list[_Vector]) -> bool:
        if self._X.shape[1] < FEW_FEATURES:
            return False
        return self._is_along_a_row(vector) or any(self._moved_along_a_row(before, vector) for before in earlier)

    def _before(self, receiver: int) -> list[_Vector]:
        """Whatever may go to the wire, or to this neighbour, right before the next one, each once."""
        with self._lock:
            self._take_note()
            waiting = [each for some in self._waiting.values() for each in some]
            found = [self._sent.get(receiver), self._last, *waiting]
        return list({id(each): each for each in found if each is not None}.values())

    def _is_along_a_row(self, vector: _Vector) -> bool:
        """Whether the weights of any output have a |cosine| above ``PARALLEL`` with a row."""
        return self._any_beyond(self._across(vector), PARALLEL * self._norms(vector.flat))

    def _moved_along_a_row(self, before: _Vector, vector: _Vector) -> bool:
        """Whether any output's weights differ so: the products at hand mostly rule it out, or its own tell."""
        change = vector.flat - before.flat
        larger = np.maximum(np.abs(vector.flat), np.abs(before.flat))
        real = (np.abs(change) > ROUNDING * larger).reshape(self._outputs, -1).any(axis=1)
        if not real.any():
            return False
        limit = PARALLEL * self._norms(change)[real]
        cancelled = self._error * (self._norms(vector.flat) + self._norms(before.flat))[real]
        apart = (self._across(vector) - self._across(before))[:, real]
        return self._any_beyond(apart, limit - cancelled) and self._any_beyond(self._products(change)[:, real], limit)

    def _any_beyond(self, across: Floats, limit: Floats) -> bool:
        """Whether any row has a larger product than this, of an output, times its length."""
        return bool((np.abs(across) > self._length[:, None] * limit[None, :]).any())

    def _across(self, vector: _Vector) -> Floats:
        if vector.across is None:
            vector.across = self._products(vector.flat)
        return vector.across

    def _products(self, flat: Floats) -> Floats:
        return np.asarray(self._X @ flat.reshape(self._outputs, -1).T)

    def _norms(self, flat: Floats) -> Floats:
        parts = flat.reshape(self._outputs, -1)
        return np.asarray(np.sqrt((parts * parts).sum(axis=1)))
