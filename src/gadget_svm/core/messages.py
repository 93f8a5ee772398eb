"""What travels between nodes. Mail is a value, plain arrays that could go over any wire; it never refers to a node."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.types import Floats, Ints

HEADER_BYTES = 24
"""Bytes of a message beside its numbers: sender, receiver and sequence number, eight each."""


def message_bytes(width: int, beside: int) -> int:
    """What one message takes on a wire: a vector of ``width`` numbers, and those beside it."""
    return HEADER_BYTES + 8 * (width + beside)


class MessageBatch(NamedTuple):
    """A batch of messages of iteration ``time``; ``note`` is one more number per message where a protocol needs it."""

    time: int
    sender: Ints
    receiver: Ints
    seq: Ints
    vector: Floats
    weight: Floats
    note: Floats | None = None

    @property
    def n_messages(self) -> int:
        """How many messages there are."""
        return len(self.sender)

    @property
    def nbytes(self) -> int:
        """What the batch would take on a wire, as float64. Sent is sent: what is lost, or comes back, counts too."""
        notes = 0 if self.note is None else self.note.nbytes
        return self.n_messages * HEADER_BYTES + self.vector.nbytes + self.weight.nbytes + notes

    def select(self, which: NDArray[np.bool_] | Ints) -> "MessageBatch":
        """Some of the messages, in the order given."""
        note = None if self.note is None else self.note[which]
        return MessageBatch(
            self.time, self.sender[which], self.receiver[which], self.seq[which], self.vector[which],
            self.weight[which], note,
        )  # fmt: skip

    @staticmethod
    def merge(batches: Sequence["MessageBatch"]) -> "MessageBatch":
        """Several batches as one; the time is the latest."""
        if len(batches) == 1:
            return batches[0]
        notes = [batch.note for batch in batches if batch.note is not None]
        if notes and len(notes) < len(batches):
            raise ValueError("mail with and without a note cannot be merged: they belong to two protocols")
        return MessageBatch(
            max(batch.time for batch in batches),
            np.concatenate([batch.sender for batch in batches]),
            np.concatenate([batch.receiver for batch in batches]),
            np.concatenate([batch.seq for batch in batches]),
            np.concatenate([batch.vector for batch in batches]),
            np.concatenate([batch.weight for batch in batches]),
            np.concatenate(notes) if notes else None,
        )


class Delivery(NamedTuple):
    """What an exchange brings: mail, and the nodes that fell silent or came (back) since the last one.

    Idle nodes are here, but take no part until the next exchange.
    """

    messages: MessageBatch
    joined: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()


Exchange = Callable[[MessageBatch], Delivery]
"""A runtime in one function: takes what the nodes send, returns what reaches them."""
