"""One block of a network that is spread over several workers: its nodes learn in step with the other workers' nodes.

Owns the exchange between workers: what goes to whom, and what to wait for. The caller supplies a function that posts a
batch to another worker, and reports which workers are lost: this module uses no process, no network and no Ray.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from gadget_svm.algorithms.base import Run
from gadget_svm.algorithms.certificate import Certificate, CertificateSession, CertificateState
from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.core.rows import Objective, Scores
from gadget_svm.core.types import Array, Flags, Floats, Ints
from gadget_svm.gossip import Round
from gadget_svm.kernels.dual import multiplicity
from gadget_svm.simulation.engine import LocalRuntime, padded

STATE = ("w", "s", "phi", "held", "w_sum", "iterates", "steps", "alive", "away")
"""The arrays of a block that a checkpoint holds, beside the arrays of its edges."""
COUNTERS = ("t", "messages", "nbytes")
"""The counters of the block's runtime that a checkpoint holds."""
Post = Callable[[int, int, MessageBatch], None]
"""Posts messages: (receiving worker, number of the exchange, messages). Must not wait for the receiver."""


EXCHANGES_PER_CALL = 8
"""Exchanges of a certificate that workers do without asking whether it is complete."""


class Worker:
    """The block ``bounds[index] : bounds[index + 1]`` of the network, driven by the thread that calls `advance`.

    Other threads may call `receive`, `forget` and `status` at the same time.
    """

    def __init__(self, index: int, bounds: Ints, run: Run, block: Block, post: Post, lam: float | None = None) -> None:
        self.index, self.bounds, self.run, self.block, self.post = index, bounds, run, block, post
        self.lam = lam
        self.others = [p for p in range(len(bounds) - 1) if p != index]
        near = self._owner(np.concatenate([block.links.target, block.links.source]))
        self.peers = np.setdiff1d(near, [index]).tolist()  # those with an edge to this one
        self.runtime = LocalRuntime(run, [block], self._exchange if self.others else None)
        self.lost: frozenset[int] = frozenset()
        self._left: frozenset[int] = frozenset()  # the lost ones whose nodes have left
        self._inbox: dict[int, dict[int, MessageBatch]] = {}
        self._waiting: list[int] = []
        self._exchanges = 0  # all workers make the same exchanges, and so agree on their numbers
        self._changed = threading.Condition()
        self._certificate: tuple[CertificateSession, Round, MessageBatch] | None = None  # and what is to be sent next

    # called by other threads

    def receive(self, source: int, number: int, messages: MessageBatch) -> None:
        """Store messages of an exchange from another worker. They may arrive in any order."""
        with self._changed:
            if source not in self.lost:
                self._inbox.setdefault(number, {})[source] = messages
                self._changed.notify_all()

    def forget(self, worker: int) -> None:
        """Stop waiting for a worker that is lost. Its nodes count as having left."""
        with self._changed:
            self.lost |= {worker}
            self._changed.notify_all()

    def status(self) -> tuple[int, list[int]]:
        """Return how many exchanges this worker has begun, and the workers whose messages for the last one it lacks."""
        with self._changed:
            return self._exchanges, list(self._waiting)

    # learning

    def advance(self, count: int) -> None:
        """Do ``count`` iterations in step with the others, or fused if there are no others."""
        self._certificate = None
        if not self.others:
            self.runtime.advance(count)
            return
        for _ in range(count):
            before = self._left
            self.runtime.advance(1)
            if self._left != before:
                self._drop_edges(self._nodes(self._left - before))

    def _exchange(self, messages: MessageBatch) -> Delivery:
        arrived = self._arrived(messages, bounce=self.run.loses_mass)
        lost, before = self.lost, self._left
        self._left = lost
        return Delivery(MessageBatch.merge(arrived), (), self._nodes(lost - before))

    def _arrived(self, messages: MessageBatch, bounce: bool = False) -> list[MessageBatch]:
        """Post the messages for other workers, also empty ones; return the others' messages, and those that stay here.

        With ``bounce``, messages to lost workers come back to their senders.
        """
        self._exchanges += 1
        owner, lost = self._owner(messages.receiver), self.lost
        for worker in self.peers:
            if worker not in lost:
                self.post(worker, self._exchanges, messages.select(owner == worker))
        arrived = [messages.select(owner == self.index)]
        lost = self.lost  # also those lost just now: what was posted to them is lost too
        if bounce and lost:
            back = messages.select(np.isin(owner, list(lost)))
            arrived.append(back._replace(receiver=back.sender))
        return arrived + self._collect()

    def _collect(self) -> list[MessageBatch]:
        """Return the messages of every worker that is not lost."""
        with self._changed:
            inbox = self._inbox.setdefault(self._exchanges, {})
            while missing := [w for w in self.peers if w not in self.lost and w not in inbox]:
                self._waiting = missing
                self._changed.wait()
            self._waiting = []
            return list(self._inbox.pop(self._exchanges).values())

    def _drop_edges(self, left: tuple[int, ...]) -> None:
        """Drop the edges to lost nodes: they do not return soon."""
        links = self.block.links
        end = np.repeat(np.arange(self.block.k), np.diff(links.indptr))
        for e in np.flatnonzero(np.isin(links.target, left)).tolist():
            self.run.drop(self.block, self.block.first + int(end[e]), int(links.target[e]))

    # certificates

    def certify(self, owner: int, live: Flags, serial: int) -> list[CertificateState]:
        """Begin certificate ``serial`` or continue it; return its state after each exchange, and at its beginning."""
        if self._certificate is None or self._certificate[0].serial != serial:
            session = CertificateSession(self.run, self.block, self.lam or 0.0, owner, live, serial, self.runtime.t)
            steps = session.steps()
            messages, states = next(steps), [session.state]
        else:
            (session, steps, messages), states = self._certificate, []
        for _ in range(EXCHANGES_PER_CALL):
            messages = steps.send(Delivery(padded(self._arrived(messages))))
            states.append(session.state)
        self._certificate = session, steps, messages
        return states

    # what the block holds

    def losses(self, models: Floats) -> tuple[Floats, Floats, float]:
        """Return, per model, the summed hinge loss and the weight of wrong answers; and the weight of all rows."""
        rows, times = self.block.rows, multiplicity(self.block.rows.mass, self.block.rows.start)
        X, label, cost = rows.matrix(models.shape[2]), rows.label, rows.cost
        if not np.array_equal(rows.order, np.arange(len(label))):  # a worker's own rows are in order: no copy
            X, label, cost = X[rows.order], label[rows.order], cost[rows.order]
        scores: Scores = Objective(X, label, cost, times, 0.0, models.shape[1], self.block.team, rows.pairs)(models)
        total = float(times.sum())
        return scores.objective * total, scores.error * total, total

    def state(self) -> tuple[dict[str, Array], dict[str, int]]:
        """Return all that a checkpoint needs beside the rows: arrays and counters."""
        arrays = {name: getattr(self.block, name) for name in STATE}
        arrays |= {f"edge.{name}": value for name, value in self.block.edge.items()}
        counters = {name: getattr(self.runtime, name) for name in COUNTERS}
        return arrays, {**counters, "exchanges": self.block.exchanges}

    def restore(self, arrays: dict[str, Array], counters: dict[str, int]) -> None:
        """Put the block back into the state of a checkpoint."""
        for name in STATE:
            getattr(self.block, name)[:] = arrays[name]
        self.block.edge = {name[5:]: value.copy() for name, value in arrays.items() if name.startswith("edge.")}
        self.block.exchanges = counters["exchanges"]
        for name in COUNTERS:
            setattr(self.runtime, name, counters[name])

    def _owner(self, nodes: Array) -> Ints:
        return np.searchsorted(self.bounds, nodes, side="right") - 1

    def _nodes(self, workers: Iterable[int]) -> tuple[int, ...]:
        return tuple(node for w in workers for node in range(int(self.bounds[w]), int(self.bounds[w + 1])))


class WorkerLostError(RuntimeError):
    """A worker was lost during a certificate."""


Answers = Sequence[list[CertificateState]]
"""For every worker, the states that `Worker.certify` returns."""


def certify_together(ask: Callable[[], Answers], shape: tuple[int, int], owner: int, live: Flags) -> Certificate:
    """Return a certificate for models of ``shape`` and the ``live`` nodes.

    ``ask`` calls `Worker.certify` of all workers. Exchanges after the final one are not counted.
    """

    def exchanges() -> Iterator[Sequence[CertificateState]]:
        answers = ask()
        workers = len(answers)
        while len(answers) == workers:
            yield from zip(*answers, strict=True)
            answers = ask()
        raise WorkerLostError

    try:
        return Certificate.of(CertificateState.final(exchanges()), shape, owner, live)
    except WorkerLostError:
        return Certificate.failed(shape, "a worker was lost meanwhile")
