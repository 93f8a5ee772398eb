"""One wire for two kinds of mail: what learners send, and what certificates send, under the same faults.

Owns who gets what. Mail waits on the way in batches, which must be of one form, so all of it is framed alike; what
learners are sent while a certificate is made, mail or news of who is here, is kept for their next exchange.
"""

from dataclasses import dataclass, field

import numpy as np

from gadget_svm.mail import Delivery, Exchange, Mail


@dataclass
class Wire:
    """An exchange that two kinds of mail share; certificates number theirs below zero."""

    exchange: Exchange
    width: int  # of the longest vector of either kind
    kept: list[Delivery] = field(default_factory=list)

    def learn(self, mail: Mail) -> Delivery:
        """An exchange of the learners."""
        arrived, self.kept = [*self.kept, self.exchange(self._framed(mail))], []
        batches = [_unframed(delivery.mail, mail) for delivery in arrived]
        return Delivery(
            Mail.merge([batch for batch in batches if batch.n_messages] or batches[-1:])._replace(time=mail.time),
            tuple(node for delivery in arrived for node in delivery.joined),
            tuple(node for delivery in arrived for node in delivery.left),
            arrived[-1].idle,
        )

    def certify(self, mail: Mail) -> Delivery:
        """An exchange of a certificate."""
        delivery = self.exchange(self._framed(mail))
        late = delivery.mail.select(delivery.mail.seq >= 0)
        if late.n_messages or delivery.joined or delivery.left:
            self.kept.append(delivery._replace(mail=late))
        return delivery._replace(mail=delivery.mail.select(delivery.mail.seq < 0))

    def _framed(self, mail: Mail) -> Mail:
        vector = np.zeros((mail.n_messages, self.width))
        vector[:, : mail.vector.shape[1]] = mail.vector
        return mail._replace(vector=vector, note=np.zeros(mail.n_messages) if mail.note is None else mail.note)


def _unframed(mail: Mail, like: Mail) -> Mail:
    """Mail of learners as they sent it."""
    own = mail.select(mail.seq >= 0)
    return own._replace(
        vector=np.ascontiguousarray(own.vector[:, : like.vector.shape[1]]), note=None if like.note is None else own.note
    )


def padded(batches: list[Mail]) -> Mail:
    """Several batches of one kind as one, as wide as the widest."""
    width = max(batch.vector.shape[1] for batch in batches)
    short = ((batch, width - batch.vector.shape[1]) for batch in batches)
    return Mail.merge([
        batch._replace(vector=np.pad(batch.vector, ((0, 0), (0, lack)))) if lack else batch for batch, lack in short
    ])  # fmt: skip
