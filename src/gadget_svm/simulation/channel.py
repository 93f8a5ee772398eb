"""One wire for two kinds of mail: what learners send, and what certificates send, under the same faults.

Owns who gets what. Mail waits on the way in batches, which must be of one form, so all of it is framed alike; what
learners are sent while a certificate is made, mail or news of who is here, is kept for their next exchange.
"""

from dataclasses import dataclass, field

import numpy as np

from gadget_svm.core.messages import Delivery, Exchange, MessageBatch


@dataclass
class Wire:
    """An exchange that two kinds of mail share; certificates number theirs below zero."""

    exchange: Exchange
    width: int  # of the longest vector of either kind
    kept: list[Delivery] = field(default_factory=list)

    def learn(self, messages: MessageBatch) -> Delivery:
        """An exchange of the learners."""
        arrived, self.kept = [*self.kept, self.exchange(self._framed(messages))], []
        batches = [_unframed(delivery.messages, messages) for delivery in arrived]
        return Delivery(
            MessageBatch.merge([batch for batch in batches if batch.n_messages] or batches[-1:])._replace(
                time=messages.time
            ),
            tuple(node for delivery in arrived for node in delivery.joined),
            tuple(node for delivery in arrived for node in delivery.left),
            arrived[-1].idle,
        )

    def certify(self, messages: MessageBatch) -> Delivery:
        """An exchange of a certificate."""
        delivery = self.exchange(self._framed(messages))
        late = delivery.messages.select(delivery.messages.seq >= 0)
        if late.n_messages or delivery.joined or delivery.left:
            self.kept.append(delivery._replace(messages=late))
        return delivery._replace(messages=delivery.messages.select(delivery.messages.seq < 0))

    def _framed(self, messages: MessageBatch) -> MessageBatch:
        vector = np.zeros((messages.n_messages, self.width))
        vector[:, : messages.vector.shape[1]] = messages.vector
        return messages._replace(
            vector=vector, note=np.zeros(messages.n_messages) if messages.note is None else messages.note
        )


def _unframed(messages: MessageBatch, like: MessageBatch) -> MessageBatch:
    """Mail of learners as they sent it."""
    own = messages.select(messages.seq >= 0)
    return own._replace(
        vector=np.ascontiguousarray(own.vector[:, : like.vector.shape[1]]), note=None if like.note is None else own.note
    )


def padded(batches: list[MessageBatch]) -> MessageBatch:
    """Several batches of one kind as one, as wide as the widest."""
    width = max(batch.vector.shape[1] for batch in batches)
    short = ((batch, width - batch.vector.shape[1]) for batch in batches)
    return MessageBatch.merge([
        batch._replace(vector=np.pad(batch.vector, ((0, 0), (0, lack)))) if lack else batch for batch, lack in short
    ])  # fmt: skip
