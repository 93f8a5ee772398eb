"""One channel for two kinds of messages, those of learning and those of certificates, under the same faults.

Owns which of the two receives a message. Faults keep messages in batches of one shape, so all messages are padded to
the same width. Messages of learning that arrive during a certificate, and news of nodes that leave or join, wait for
the next exchange of learning.
"""

from dataclasses import dataclass, field

import numpy as np

from gadget_svm.core.messages import Delivery, Exchange, MessageBatch


@dataclass
class Channel:
    """An exchange shared by two kinds of messages; the messages of certificates have negative numbers."""

    exchange: Exchange
    width: int  # of the longest vector of either kind
    waiting: list[Delivery] = field(default_factory=list)

    def learn(self, messages: MessageBatch) -> Delivery:
        """An exchange of the learners."""
        arrived, self.waiting = [*self.waiting, self.exchange(self._padded(messages))], []
        batches = [_unpadded(delivery.messages, messages) for delivery in arrived]
        merged = MessageBatch.merge([batch for batch in batches if batch.n_messages] or batches[-1:])
        return Delivery(
            merged._replace(time=messages.time),
            tuple(node for delivery in arrived for node in delivery.joined),
            tuple(node for delivery in arrived for node in delivery.left),
            arrived[-1].idle,
        )

    def certify(self, messages: MessageBatch) -> Delivery:
        """An exchange of a certificate."""
        delivery = self.exchange(self._padded(messages))
        late = delivery.messages.select(delivery.messages.seq >= 0)
        if late.n_messages or delivery.joined or delivery.left:
            self.waiting.append(delivery._replace(messages=late))
        return delivery._replace(messages=delivery.messages.select(delivery.messages.seq < 0))

    def _padded(self, messages: MessageBatch) -> MessageBatch:
        vector = np.zeros((messages.n_messages, self.width))
        vector[:, : messages.vector.shape[1]] = messages.vector
        note = np.zeros(messages.n_messages) if messages.note is None else messages.note
        return messages._replace(vector=vector, note=note)


def _unpadded(messages: MessageBatch, like: MessageBatch) -> MessageBatch:
    """The messages of learning without padding."""
    own = messages.select(messages.seq >= 0)
    vector = np.ascontiguousarray(own.vector[:, : like.vector.shape[1]])
    return own._replace(vector=vector, note=None if like.note is None else own.note)


def padded(batches: list[MessageBatch]) -> MessageBatch:
    """Join batches of one kind into one, padded to the widest."""
    width = max(batch.vector.shape[1] for batch in batches)
    missing = ((batch, width - batch.vector.shape[1]) for batch in batches)
    return MessageBatch.merge([
        batch._replace(vector=np.pad(batch.vector, ((0, 0), (0, lack)))) if lack else batch for batch, lack in missing
    ])  # fmt: skip
