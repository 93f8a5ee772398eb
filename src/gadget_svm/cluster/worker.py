"""One block of a network that is spread over several workers: its nodes learn in step with those of the others.

Owns the exchange between workers: what goes to whom, and what to wait for. The caller supplies a function that posts a
batch to another worker, and reports which workers are lost: this module uses no process, no network and no Ray.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import count as counting
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.algorithms.base import Run, models
from gadget_svm.algorithms.certificate import FREE, Certificate, CertificateSession, Cost
from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.core.objective import Objective, Scores
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.kernels.dual import multiplicity
from gadget_svm.simulation.channel import padded
from gadget_svm.simulation.engine import MAX_IDLE_EXCHANGES, UNCERTIFIABLE, LocalRuntime, resume

LEARN, CERTIFY = 0, 1
Key = tuple[int, int, int]
"""What a batch belongs to: learning or a certificate, which iteration or certificate, and which exchange of it."""

STATE = ("w", "s", "phi", "held", "w_sum", "iterates", "steps", "alive", "away")
"""The arrays of a block that a checkpoint holds, beside those of its edges."""


class Batch(NamedTuple):
    """What one worker sends another in one exchange; sent also without messages, as the other waits for it."""

    messages: MessageBatch
    complete: int = 0  # of a certificate: a bit for each worker known to have the bound at all its nodes
    last_news: int = 0  # of a certificate: the last exchange known to have changed any node


Post = Callable[[int, Key, Batch], None]
"""(to which worker, key, batch): must not wait for the receiver."""


class CertificatePart(NamedTuple):
    """A worker's part of a certificate; ``model`` and ``bound`` come from the worker that has the owner."""

    failure: str
    uninformed: Ints  # live nodes of this worker that did not get the bound
    complete_at: int  # the exchange from which on all live nodes of this worker had the bound; -1: never
    last_news: int  # the last exchange known to have changed any node
    spent: Ints  # exchanges x 3: messages, bytes and messages with vectors sent up to each
    model: Floats | None = None
    bound: Floats | None = None


class StalledError(RuntimeError):
    """Messages of some workers did not come in time."""


class Worker:
    """The block ``bounds[index] : bounds[index + 1]`` of the network, driven by the thread that calls `advance`.

    Other threads may call `receive`, `forget` and `status` at the same time.
    """

    def __init__(
        self, index: int, bounds: Ints, run: Run, block: Block, post: Post, *,
        lam: float | None = None, timeout: float | None = None,
    ) -> None:  # fmt: skip
        self.index, self.bounds, self.run, self.block, self.post = index, bounds, run, block, post
        self.lam, self.timeout, self.t = lam, timeout, 0
        self.messages = self.nbytes = 0
        near = np.unique(np.concatenate([block.links.target, block.links.source]).astype(np.int64))
        self.peers = [p for p in np.unique(self._owner(near)).tolist() if p != index]
        self.others = [p for p in range(len(bounds) - 1) if p != index]
        self.lost: set[int] = set()
        self._left: list[int] = []
        self._inbox: dict[Key, dict[int, Batch]] = {}
        self._waiting: list[int] = []
        self._at: Key = (LEARN, 0, 0)
        self._changed = threading.Condition()

    # called by other threads

    def receive(self, source: int, key: Key, batch: Batch) -> None:
        """Store a batch from another worker. Batches may arrive in any order."""
        with self._changed:
            if source not in self.lost:
                self._inbox.setdefault(key, {})[source] = batch
                self._changed.notify_all()

    def forget(self, worker: int) -> None:
        """Stop waiting for a worker that is lost; its nodes have left."""
        with self._changed:
            if worker not in self.lost:
                self.lost.add(worker)
                self._left.append(worker)
                self._changed.notify_all()

    def status(self) -> tuple[Key, list[int]]:
        """Return the exchange that this worker has reached, and the workers whose batches for it are missing."""
        with self._changed:
            return self._at, list(self._waiting)

    # learning

    def advance(self, count: int) -> None:
        """Do ``count`` iterations in step with the others, or fused if there are no others."""
        with self._changed:  # drop what lost workers sent before
            self._inbox = {key: found for key, found in self._inbox.items() if key[0] == LEARN and key[1] > self.t}
        if not self.others and self.run.supports_fused(self.block):
            self._count(*self.run.advance_fused(self.block, count))
            self.t += count
            return
        for _ in range(count):
            self.t += 1
            self._iterate()

    def warm_up(self) -> None:
        """Compile what an iteration needs, on a block without nodes."""
        alone = LocalRuntime(self.run, [self.block], Delivery if self.others else None, lam=self.lam)
        alone.warm_up()

    def _iterate(self) -> None:
        steps = self.run.iteration(self.block, self.t)
        messages = next(steps, None)
        for turn in counting():
            if messages is None:
                return
            self._count(messages.n_messages, messages.nbytes)
            key = (LEARN, self.t, turn)
            batches = [self._send(messages, key)]
            messages = None  # frees the batch: with one vector per node it may be as large as the block
            batches += [batch.messages for batch in self._collect(key)]
            with self._changed:
                left, self._left = self._nodes(self._left), []
            received = MessageBatch.merge(batches)
            batches.clear()
            messages = resume(steps, Delivery(received, (), left))
            del received
            if left:
                self._drop_edges(left)

    def _send(self, messages: MessageBatch, key: Key, complete: int = 0, last_news: int = 0) -> MessageBatch:
        """Post the messages for other workers; return those that stay here, and those that could not be sent."""
        if not self.others:
            return messages
        owner = self._owner(messages.receiver)
        lost = self._lost_now()
        for worker in self.peers:
            if worker not in lost:
                self.post(worker, key, Batch(messages.select(owner == worker), complete, last_news))
        own = messages.select(owner == self.index)
        lost = self._lost_now()  # also those lost just now: what was posted to them is lost too
        undeliverable = np.isin(owner, list(lost)) if lost and key[0] == LEARN and self.run.loses_mass else None
        if undeliverable is None or not undeliverable.any():
            return own
        back = messages.select(undeliverable)
        return MessageBatch.merge([own, back._replace(receiver=back.sender)])

    def _collect(self, key: Key, lost: set[int] | None = None) -> list[Batch]:
        """Return a batch from each worker that is not lost. With ``lost``, stop waiting if another one is lost."""
        with self._changed:
            self._at = key
            while missing := [w for w in self.peers if w not in self.lost and w not in self._inbox.get(key, {})]:
                if lost is not None and self.lost != lost:
                    break
                self._waiting = missing
                if not self._changed.wait(self.timeout):
                    raise StalledError(f"worker {self.index} had no messages from {missing} for {self.timeout:g} s")
            self._waiting = []
            return list(self._inbox.pop(key, {}).values())

    def _drop_edges(self, left: tuple[int, ...]) -> None:
        """Drop the edges to lost nodes: they do not return soon."""
        links = self.block.links
        end = np.repeat(np.arange(self.block.k), np.diff(links.indptr))
        for e in np.flatnonzero(np.isin(links.target, left)).tolist():
            self.run.drop(self.block, self.block.first + int(end[e]), int(links.target[e]))

    # certificates

    def certify(self, owner: int, live: Flags, serial: int) -> CertificatePart:
        """Take part in a certificate, with messages to the same workers as in learning.

        Which workers hold the bound, and when a node last changed, travels with the messages and so reaches workers
        without an edge to this one. Until it does, some more exchanges are made than in the simulator: `assemble`
        leaves them out of the cost. A worker that knows that all hold the bound sends this once more and stops.
        """
        if self.lam is None or not self.run.certifiable:
            raise ValueError(UNCERTIFIABLE)
        session = CertificateSession(self.run, self.block, self.lam, owner, live, serial, self.t)
        before = self._lost_now()
        everyone = sum(1 << w for w in (self.index, *self.others) if w not in before)
        patience = MAX_IDLE_EXCHANGES + everyone.bit_count()  # news of the farthest worker takes at most as many
        steps, complete_at, news, complete, last_news = session.steps(), -1, 0, 0, 0
        messages, spent = next(steps), []
        for turn in counting():
            spent.append((session.messages, session.nbytes, session.vectors))
            last_news, news = turn if session.progress > news else last_news, session.progress
            if complete_at < 0 and (session.holds_bound | ~session.nodes.alive).all():
                complete_at, complete = turn, complete | 1 << self.index
            key = (CERTIFY, serial, turn)
            own = self._send(messages, key, complete, last_news)
            if complete == everyone or turn - last_news >= patience:
                break
            batches = self._collect(key, before)
            if self._lost_now() != before:
                session.failure = "a worker was lost meanwhile"
                break
            for batch in batches:
                complete, last_news = complete | batch.complete, max(last_news, batch.last_news)
            messages = steps.send(Delivery(padded([own, *(batch.messages for batch in batches)])))
        nodes, first = session.nodes, self.block.first
        uninformed, i = first + np.flatnonzero(nodes.alive & ~session.holds_bound), owner - first
        part = CertificatePart(session.failure, uninformed, complete_at, last_news, np.array(spent, dtype=np.int64))
        if not 0 <= i < self.block.k:
            return part
        return part._replace(model=nodes.model[i].copy(), bound=nodes.bound[i].copy())

    # what the block holds

    def values(self, name: str) -> NDArray[Any]:
        """Return an array of the block with an entry per node; "models" are what the nodes would answer with."""
        if name == "models":
            return models(self.run, self.block)
        if name == "w":
            return self.run.weights(self.block)
        found: NDArray[Any] = getattr(self.block, name)
        return found

    def losses(self, models: Floats) -> tuple[Floats, Floats, float]:
        """Return, per model, the sum of hinges and the weight of wrong answers on this block's rows; and all weight."""
        rows, times = self.block.rows, multiplicity(self.block.rows.mass, self.block.rows.start)
        X = sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(len(rows.label), models.shape[2]))
        label, cost = rows.label, rows.cost
        if not np.array_equal(rows.order, np.arange(len(label))):  # a worker's own rows are in order: no copy
            X, label, cost = X[rows.order], label[rows.order], cost[rows.order]
        scores: Scores = Objective(X, label, cost, times, 0.0, models.shape[1], self.block.team, rows.pairs)(models)
        total = float(times.sum())
        return scores.objective * total, scores.error * total, total

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
        """Return all that a checkpoint needs beside the rows: arrays and counters."""
        arrays = {name: getattr(self.block, name) for name in STATE}
        arrays |= {f"edge.{name}": value for name, value in self.block.edge.items()}
        counters = {"t": self.t, "exchanges": self.block.exchanges, "messages": self.messages, "nbytes": self.nbytes}
        return arrays, counters

    def restore(self, arrays: dict[str, NDArray[Any]], counters: dict[str, int]) -> None:
        """Put the block back into the state of a checkpoint."""
        for name in STATE:
            getattr(self.block, name)[:] = arrays[name]
        self.block.edge = {name[5:]: value.copy() for name, value in arrays.items() if name.startswith("edge.")}
        self.block.exchanges, self.t = counters["exchanges"], counters["t"]
        self.messages, self.nbytes = counters["messages"], counters["nbytes"]

    def _owner(self, nodes: NDArray[Any]) -> Ints:
        return np.searchsorted(self.bounds, nodes, side="right") - 1

    def _nodes(self, workers: Iterable[int]) -> tuple[int, ...]:
        return tuple(node for w in workers for node in range(int(self.bounds[w]), int(self.bounds[w + 1])))

    def _lost_now(self) -> set[int]:
        with self._changed:
            return set(self.lost)

    def _count(self, messages: int, nbytes: int) -> None:
        self.messages += messages
        self.nbytes += nbytes


def assemble(parts: Sequence[CertificatePart], shape: tuple[int, int], owner: int, live: Flags) -> Certificate:
    """Join the workers' parts into the certificate of models of ``shape`` and of the nodes that are ``live``."""
    K, F = shape
    cost = _cost(parts)
    model, bound = next((part.model, part.bound) for part in parts if part.model is not None)
    failure = next((part.failure for part in parts if part.failure), "")
    uninformed = np.concatenate([part.uninformed for part in parts])
    if not failure and len(uninformed):
        failure = f"{len(uninformed)} nodes, the first of them node {uninformed[0]}, are cut off from the others"
    if not failure and (bound is None or not np.isfinite(bound).all()):
        failure = "its model or its dual variables are not finite"
    if failure or model is None or bound is None:
        return failed_certificate(shape, failure, owner, cost)
    rows, nodes = bound[2 * K :].tolist()
    return Certificate(
        model.reshape(K, F), owner, bound[:K].copy(), bound[K : 2 * K].copy(), rows, int(nodes), *cost,
        nodes=np.flatnonzero(live),
    )  # fmt: skip


def _cost(parts: Sequence[CertificatePart]) -> Cost:
    """Return the cost until all nodes held the bound, or until the attempt ended, as the simulator counts it.

    A worker that stopped earlier sent nothing after that.
    """
    last = max(len(part.spent) for part in parts) - 1
    cut_off = any(len(part.uninformed) for part in parts)
    end = max(p.last_news for p in parts) + MAX_IDLE_EXCHANGES if cut_off else max(p.complete_at for p in parts)
    last = min(last, end)
    messages, nbytes, vectors = np.sum([p.spent[min(last, len(p.spent) - 1)] for p in parts], axis=0).tolist()
    return last + 1, messages, nbytes, vectors


def failed_certificate(shape: tuple[int, int], failure: str, owner: int = -1, cost: Cost = FREE) -> Certificate:
    """Return the certificate of an attempt that failed, and why."""
    K, _ = shape
    nothing = np.full(shape, np.nan), owner, np.full(K, np.inf), np.full(K, -np.inf)
    return Certificate(*nothing, 0.0, 0, *cost, failure)
