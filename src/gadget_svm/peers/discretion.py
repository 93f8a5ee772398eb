"""What may leave a site. Looks at every vector before it is sent and keeps back what would give a row away.

A weight vector is a sum over rows, and one that is made of a single row *is* that row. So a vector is kept back if it,
or how it differs from the last one sent (to that neighbour, or to anyone), points along one of the site's rows; and the
first one also if only one row's dual variable counts in it. A message kept back is to the algorithms like one lost.

What was released may still wait to be sent when the next one is looked at, and be dropped for it: so a vector is
compared with what was sent and with what waits, and whichever goes out, in whatever order, was compared.

But lost ones are followed by others, and a node that has settled has nothing else to say: its neighbours would settle
on what they heard before, for good. So after a few refusals in a row the vector goes out with noise across its change
and as long as that; both vanish together as the nodes come to agree. A first vector is never let out like this.
"""

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PARALLEL = 0.95
"""|cosine| from which on a vector is taken to point along a row."""
PATIENCE = 3
"""Vectors kept back from one neighbour in a row before one goes out with noise."""
FORMER = 16
"""Neighbours of before of whom it is known what they were sent, should they come back."""
FEW_FEATURES = 10
"""With fewer, some row lies along nearly every vector, which tells nothing: that is not looked at then."""


class _Vector(NamedTuple):
    """Weights, and their products with all rows."""

    flat: Floats
    across: Floats


class Discretion:
    """Remembers what was sent, and compares with the rows. One thread looks, another may send."""

    def __init__(self, X: sp.csr_matrix, outputs: int) -> None:
        length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
        self._X, self._length, self._outputs = X, length, outputs
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
        return self._released(receiver, self._looked_at(vector), duals) is not None

    def released(self, receiver: int, vector: Floats, duals: Floats | None) -> Floats | None:
        """What to send: a copy of the vector, or with noise if it was kept back too often, or nothing."""
        looked_at = self._looked_at(vector)
        clear = self._released(receiver, looked_at, duals)
        if clear is not None:
            return clear
        last = self._sent.get(receiver)
        if last is None or self._refused[receiver] < PATIENCE:
            return None
        noisy = self._looked_at(vector + self._noise(vector - last.flat))
        if self._points_at_a_row(receiver, noisy):
            return None
        self.withheld -= 1
        self.disguised += 1
        return self._wait(receiver, noisy)

    def handed(self, receiver: int, vector: Floats) -> None:
        """This goes to the wire now. May be called from another thread; the vector is not to change any more."""
        self._handed.append((receiver, vector))

    def sent(self, receiver: int) -> Floats | None:
        """The last vector that went to this neighbour."""
        self._take_note()
        found = self._sent.get(receiver)
        return None if found is None else found.flat

    def forget(self, keep: set[int]) -> None:
        """Let go of what was sent to others than these, but for the latest few."""
        self._take_note()
        former = [other for other in self._sent if other not in keep]
        for other in former[: max(len(former) - FORMER, 0)]:
            del self._sent[other]
        self._waiting = {other: some for other, some in self._waiting.items() if other in keep}
        self._refused = {other: count for other, count in self._refused.items() if other in keep}

    def state(self) -> dict[str, NDArray[Any]]:
        """What was sent, for a checkpoint: to the next start it is as if it had sent it itself."""
        self._take_note()
        sent = np.array([vector.flat for vector in self._sent.values()]).reshape(len(self._sent), self._size)
        return {"sent": sent, "sent_to": np.array(list(self._sent), dtype=np.int64)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a checkpoint."""
        sent, receivers = arrays["sent"], arrays["sent_to"].tolist()
        if sent.shape != (len(receivers), self._size):
            raise ValueError(f"what was sent has the shape {sent.shape}")
        self._sent = {other: self._looked_at(vector) for other, vector in zip(receivers, sent, strict=True)}
        self._last = next(reversed(self._sent.values()), None)

    @property
    def _size(self) -> int:
        return int(self._outputs * self._X.shape[1])

    def _looked_at(self, vector: Floats) -> _Vector:
        own = np.array(vector)
        return _Vector(own, np.asarray(self._X @ own.reshape(self._outputs, -1).T))

    def _released(self, receiver: int, vector: _Vector, duals: Floats | None) -> Floats | None:
        self._take_note()
        if self._is_one_row(duals) or self._points_at_a_row(receiver, vector):
            self.withheld += 1
            self._refused[receiver] = self._refused.get(receiver, 0) + 1
            return None
        return self._wait(receiver, vector)

    def _wait(self, receiver: int, vector: _Vector) -> Floats:
        """It takes the place of what waits, once it is handed on; until then the other may still go out."""
        self._waiting.setdefault(receiver, deque(maxlen=2)).append(vector)
        self._refused.pop(receiver, None)
        return vector.flat

    def _take_note(self) -> None:
        """Of what was handed over since."""
        with self._lock:
            while self._handed:
                receiver, flat = self._handed.popleft()
                vector = self._called(receiver, flat) or self._looked_at(flat)
                self._sent.pop(receiver, None)
                self._last = self._sent[receiver] = vector

    def _called(self, receiver: int, flat: Floats) -> _Vector | None:
        """The one that waits no more; those before it were dropped, or told of before."""
        waiting = self._waiting.get(receiver, deque())
        found = None
        while found is None and waiting:
            first = waiting.popleft()
            found = first if np.array_equal(first.flat, flat) else None
        return found

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

    def _points_at_a_row(self, receiver: int, vector: _Vector) -> bool:
        if self._X.shape[1] < FEW_FEATURES:
            return False
        return self._along_a_row(vector.flat, vector.across) or any(
            self._along_a_row(vector.flat - before.flat, vector.across - before.across)
            for before in self._before(receiver)
        )

    def _before(self, receiver: int) -> Iterator[_Vector]:
        """Whatever may go to the wire, or to this neighbour, right before the next one, each once."""
        some = [self._sent.get(receiver), self._last, *(each for waiting in self._waiting.values() for each in waiting)]
        yield from {id(each): each for each in some if each is not None}.values()

    def _along_a_row(self, flat: Floats, across: Floats) -> bool:
        """Whether the weights of any output have a |cosine| above ``PARALLEL`` with a row."""
        parts = flat.reshape(self._outputs, -1)
        norms = np.sqrt((parts * parts).sum(axis=1))
        return bool((np.abs(across) > PARALLEL * self._length[:, None] * norms[None, :]).any())
