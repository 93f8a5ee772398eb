"""What travels between nodes: batches of messages, and what an exchange delivers.

A batch is a value made of plain arrays, so any transport can carry it. It holds no reference to a node.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gadget_svm.core.types import Array, Flags, Floats, Ints

HEADER_BYTES = 24
"""Bytes of a message besides its numbers: sender, receiver and sequence number have eight bytes each."""


def message_bytes(width: int, extra: int) -> int:
    """Return the size in bytes of a message with a vector of ``width`` numbers and ``extra`` other numbers."""
    return HEADER_BYTES + 8 * (width + extra)


class MessageBatch(NamedTuple):
    """Messages of one iteration, one per entry of the arrays.

    Attributes
    ----------
    time : int
        The iteration.
    sender, receiver, seq : array of int
        The two nodes, and the sender's sequence number.
    vector : array of float, messages x numbers
        The vectors.
    weight : array of float
        What travels beside the vector, such as Push-Sum's weight: one number per message, or several.
    note : array of float or None
        One more number per message, for protocols that need it.
    packed_bytes : array of int or None
        The bytes of each message without its note, if the protocol compresses it. None: header and float64 numbers.

    Examples
    --------
    >>> one = np.array([1])
    >>> batch = MessageBatch(0, one, one, one, np.zeros((1, 100)), np.ones(1))
    >>> batch.nbytes, batch._replace(packed_bytes=np.array([432])).nbytes
    (832, 432)
    """

    time: int
    sender: Ints
    receiver: Ints
    seq: Ints
    vector: Floats
    weight: Floats
    note: Floats | None = None
    packed_bytes: Ints | None = None

    @property
    def n_messages(self) -> int:
        """The number of messages."""
        return len(self.sender)

    @property
    def nbytes(self) -> int:
        """The size of the batch on a wire. Runtimes count it when messages are sent, also if they are lost later."""
        notes = 0 if self.note is None else self.note.nbytes
        if self.packed_bytes is not None:
            return int(self.packed_bytes.sum()) + notes
        return self.n_messages * HEADER_BYTES + self.vector.nbytes + self.weight.nbytes + notes

    def select(self, which: Flags | Ints) -> "MessageBatch":
        """Return some of the messages, in the order given."""
        return MessageBatch._make([self.time, *(None if array is None else array[which] for array in self[1:])])

    @staticmethod
    def merge(batches: Sequence["MessageBatch"]) -> "MessageBatch":
        """Return several batches as one. Its time is the latest."""
        if len(batches) == 1:
            return batches[0]
        columns = zip(*(batch[1:] for batch in batches), strict=True)
        return MessageBatch._make([max(batch.time for batch in batches), *map(_joined, columns)])


def _joined(arrays: tuple[Any, ...]) -> Array | None:
    given = [array for array in arrays if array is not None]
    if given and len(given) < len(arrays):
        raise ValueError("messages with and without a note or packed_bytes cannot be merged: use the same for all")
    return np.concatenate(given) if given else None


class Delivery(NamedTuple):
    """What an exchange returns to the nodes.

    Attributes
    ----------
    messages : MessageBatch
        The messages that arrive.
    joined, left : tuple of int
        The nodes that returned, and those that left, since the last exchange.
    idle : tuple of int
        The nodes that are live but take no part until the next exchange.
    """

    messages: MessageBatch
    joined: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()


Exchange = Callable[[MessageBatch], Delivery]
"""The function that a runtime supplies: it takes what the nodes send and returns what reaches them."""
