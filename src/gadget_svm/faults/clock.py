"""The clock of faults that act at certain times."""

from collections.abc import Callable

from gadget_svm.core.messages import MessageBatch

Clock = Callable[[MessageBatch], int]


def clock() -> Clock:
    """Return a function that tells the time of a batch: iterations, plus exchanges of certificates.

    Certificates number their messages below zero. Their exchanges count too, so that time also passes during a
    certificate.
    """
    certifying = 0

    def now(messages: MessageBatch) -> int:
        nonlocal certifying
        certifying += bool(messages.n_messages and messages.seq[0] < 0)
        return messages.time + certifying

    return now
