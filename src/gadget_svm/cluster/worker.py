"""One block of a network that is spread over several workers: its nodes learn in step with those of the others.

Owns the exchange between workers: what goes to whom, and what to wait for. How a batch gets to another worker is a
function it is given, and who is lost it is told: there is no process, no network and no Ray in here.
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
from gadget_svm.gossip import Round
from gadget_svm.kernels.dual import multiplicity
from gadget_svm.simulation.channel import padded
from gadget_svm.simulation.engine import MAX_IDLE_EXCHANGES, UNCERTIFIABLE, LocalRuntime

LEARN, CERTIFY = 0, 1
Key = tuple[int, int, int]
"""What a batch belongs to: learning or a certificate, which iteration or certificate, and which exchange of it."""

STATE = ("w", "s", "phi", "held", "w_sum", "iterates", "steps", "alive", "away")
"""The arrays of a block that a checkpoint holds, beside those of its edges."""


class Batch(NamedTuple):
    """What one worker sends another in one exchange; it is sent also when there is no mail, to say so."""

    messages: MessageBatch
    told: int = 0  # of a certificate: a bit for each worker all of whose nodes hold the bound, as far as is known
    learned: int = 0  # of a certificate: the last exchange known to have taught anybody anything


Post = Callable[[int, Key, Batch], None]
"""(to which worker, key, batch): must not wait for the other side."""


class Finding(NamedTuple):
    """A worker's part of a certificate; ``model`` and ``bound`` come from the one that has the owner."""

    failure: str
    untold: Ints  # nodes that are here and did not get the bound
    held: int  # the exchange from which on all nodes here held it, -1 if they never did
    learned: int  # the last exchange known to have taught anybody anything
    spent: Ints  # exchanges x 3: messages, bytes and messages with vectors sent up to each
    model: Floats | None = None
    bound: Floats | None = None


class StalledError(RuntimeError):
    """Mail of some workers did not come in time."""


class Worker:
    """The block ``bounds[index] : bounds[index + 1]`` of the network, driven by whoever calls `advance`.

    `receive`, `forget` and `waiting_for` may be called from other threads meanwhile.
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
        self._joined: list[int] = []
        self._inbox: dict[Key, dict[int, Batch]] = {}
        self._waiting: list[int] = []
        self._at: Key = (LEARN, 0, 0)
        self._changed = threading.Condition()

    # what other threads call

    def receive(self, source: int, key: Key, batch: Batch) -> None:
        """Take in what another worker sent, in whatever order."""
        with self._changed:
            if source not in self.lost:
                self._inbox.setdefault(key, {})[source] = batch
                self._changed.notify_all()

    def forget(self, worker: int) -> None:
        """This worker is gone: nothing more is waited for, and its nodes have left."""
        with self._changed:
            if worker not in self.lost:
                self.lost.add(worker)
                if worker in self._joined:  # the block does not know yet that it was back
                    self._joined.remove(worker)
                else:
                    self._left.append(worker)
                self._changed.notify_all()

    def welcome(self, worker: int) -> None:
        """This worker is back, from the next iteration on. Called between iterations."""
        with self._changed:
            if worker in self.lost:
                self.lost.discard(worker)
                self._joined.append(worker)

    def waiting_for(self) -> list[int]:
        """Whose mail is missing at the moment."""
        with self._changed:
            return list(self._waiting)

    def whereabouts(self) -> tuple[Key, list[int]]:
        """The exchange it has come to, and whose mail is missing there."""
        with self._changed:
            return self._at, list(self._waiting)

    # learning

    def advance(self, count: int) -> None:
        """``count`` iterations in step with the others; in compiled leaps where there are none."""
        with self._changed:  # what lost workers left behind
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
        party = self.run.iteration(self.block, self.t)
        messages = next(party, None)
        for turn in counting():
            if messages is None:
                return
            self._count(messages.n_messages, messages.nbytes)
            key = (LEARN, self.t, turn)
            batches = [self._send(messages, key)]
            messages = None  # on its way: of a vector a node there is one copy at a time, as far as that goes
            batches += [batch.messages for batch in self._collect(key)]
            left, joined = self._presence()
            received = MessageBatch.merge(batches)
            batches.clear()
            messages = _answer(party, Delivery(received, joined, left))
            del received
            if left:
                self._sever(left)

    def _send(self, messages: MessageBatch, key: Key, told: int = 0, learned: int = 0) -> MessageBatch:
        """Give every peer its part of the mail; what stays here is returned, with what could not be sent."""
        if not self.others:
            return messages
        owner = self._owner(messages.receiver)
        lost = self._gone()
        for worker in self.peers:
            if worker not in lost:
                self.post(worker, key, Batch(messages.select(owner == worker), told, learned))
        own = messages.select(owner == self.index)
        lost = self._gone()  # also of those that were lost just now: what was posted to them is gone with them
        undeliverable = np.isin(owner, list(lost)) if lost and key[0] == LEARN and has_mass(self.run) else None
        if undeliverable is None or not undeliverable.any():
            return own
        back = messages.select(undeliverable)
        return MessageBatch.merge([own, back._replace(receiver=back.sender)])

    def _collect(self, key: Key, lost: set[int] | None = None) -> list[Batch]:
        """One batch of each peer that is not lost; where it is said who is ``lost``, waiting ends if others are."""
        with self._changed:
            self._at = key
            while missing := [w for w in self.peers if w not in self.lost and w not in self._inbox.get(key, {})]:
                if lost is not None and self.lost != lost:
                    break
                self._waiting = missing
                if not self._changed.wait(self.timeout):
                    raise StalledError(f"worker {self.index} had no mail of {missing} for {self.timeout:g} s")
            self._waiting = []
            return list(self._inbox.pop(key, {}).values())

    def _presence(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Which nodes left and which came since the last exchange. Who did both is said to have left first."""
        with self._changed:
            left, joined = self._left, [w for w in self._joined if w not in self._left]
            self._left, self._joined = [], [w for w in self._joined if w in left]
        return self._nodes(left), self._nodes(joined)

    def _sever(self, left: tuple[int, ...]) -> None:
        """Who can drop edges drops those to nodes that went with their process: they will not just be back."""
        drop, links = getattr(self.run, "drop", None), self.block.links
        if drop is None:
            return
        here = np.repeat(np.arange(self.block.k), np.diff(links.indptr))
        for e in np.flatnonzero(np.isin(links.target, left)).tolist():
            drop(self.block, self.block.first + int(here[e]), int(links.target[e]))

    # certificates

    def certify(self, owner: int, here: Flags, serial: int) -> Finding:
        """This block's part in a certificate, by mail to the same workers as in learning.

        Who holds the bound, and when anybody last learned anything, is passed on with the mail and so gets to workers
        without an edge to this one. By then some exchanges more have been made than the simulator would have:
        `assemble` leaves them out of the account. Who knows that all hold the bound says so once more, and is done.
        """
        if self.lam is None or not self.run.certifiable:
            raise ValueError(UNCERTIFIABLE)
        part, before = CertificateSession(self.run, self.block, self.lam, owner, here, serial, self.t), self._gone()
        everyone = sum(1 << w for w in (self.index, *self.others) if w not in before)
        patience = MAX_IDLE_EXCHANGES + everyone.bit_count()  # news from the far end takes as many exchanges at most
        party, held, news, told, learned = part.steps(), -1, 0, 0, 0
        messages, spent = next(party), []
        for turn in counting():
            spent.append((part.messages, part.nbytes, part.vectors))
            learned, news = turn if part.progress > news else learned, part.progress
            if held < 0 and (part.holds_bound | ~part.nodes.alive).all():
                held, told = turn, told | 1 << self.index
            key = (CERTIFY, serial, turn)
            own = self._send(messages, key, told, learned)
            if told == everyone or turn - learned >= patience:
                break
            batches = self._collect(key, before)
            if self._gone() != before:
                part.failure = "a worker was lost meanwhile"
                break
            for batch in batches:
                told, learned = told | batch.told, max(learned, batch.learned)
            messages = party.send(Delivery(padded([own, *(batch.messages for batch in batches)])))
        untold, i = self.block.first + np.flatnonzero(part.nodes.alive & ~part.holds_bound), owner - self.block.first
        found = Finding(part.failure, untold, held, learned, np.array(spent, dtype=np.int64))
        if not 0 <= i < self.block.k:
            return found
        return found._replace(model=part.nodes.model[i].copy(), bound=part.nodes.bound[i].copy())

    # what is in the block

    def values(self, name: str) -> NDArray[Any]:
        """An array of the block with an entry per node; "models" are what the nodes would answer with."""
        if name == "models":
            return models(self.run, self.block)
        if name == "w":
            return self.run.weights(self.block)
        found: NDArray[Any] = getattr(self.block, name)
        return found

    def losses(self, models: Floats) -> tuple[Floats, Floats, float]:
        """Per model, on the rows of this block: the sum of hinges, the weight of wrong answers; and that of all."""
        rows, times = self.block.rows, multiplicity(self.block.rows.mass, self.block.rows.start)
        X = sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(len(rows.label), models.shape[2]))
        label, cost = rows.label, rows.cost
        if not np.array_equal(rows.order, np.arange(len(label))):  # as a worker's own they are; no copy of them is made
            X, label, cost = X[rows.order], label[rows.order], cost[rows.order]
        scores: Scores = Objective(X, label, cost, times, 0.0, models.shape[1], self.block.team, rows.pairs)(models)
        total = float(times.sum())
        return scores.objective * total, scores.error * total, total

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
        """All that a checkpoint needs beside the rows: arrays and counters."""
        arrays = {name: getattr(self.block, name) for name in STATE}
        arrays |= {f"edge.{name}": value for name, value in self.block.edge.items()}
        counters = {"t": self.t, "exchanges": self.block.exchanges, "messages": self.messages, "nbytes": self.nbytes}
        return arrays, counters

    def restore(self, arrays: dict[str, NDArray[Any]], counters: dict[str, int]) -> None:
        """Put the block back where a checkpoint left it. Those who were away then are back now, or will be said to be
        lost: an edge that took one of them for away ever after would be dropped again and again."""
        for name in STATE:
            getattr(self.block, name)[:] = arrays[name]
        self.block.edge = {name[5:]: value.copy() for name, value in arrays.items() if name.startswith("edge.")}
        self.block.exchanges, self.t = counters["exchanges"], counters["t"]
        self.messages, self.nbytes = counters["messages"], counters["nbytes"]
        absent = self.block.edge.get("absent")
        if absent is not None:
            np.clip(absent, 0, 1, out=absent)
            with self._changed:
                back = np.unique(self._owner(self.block.links.target[absent > 0])).tolist()
                self._joined = [worker for worker in back if worker != self.index]

    def start_over(self, t: int, exchanges: int) -> None:
        """Take part again, with what the block holds, among others that are farther on.

        Mass that persists is set to that of the block's own rows: what it held is with the others, or gone.
        """
        self.t, self.block.exchanges = t, exchanges
        if has_mass(self.run):
            self.block.phi[:], self.block.held[:] = self.block.n, 0.0
            np.multiply(self.block.flat, self.block.n[:, None], out=self.block.s)

    # small things

    def _owner(self, nodes: NDArray[Any]) -> Ints:
        return np.searchsorted(self.bounds, nodes, side="right") - 1

    def _nodes(self, workers: Iterable[int]) -> tuple[int, ...]:
        return tuple(node for w in workers for node in range(int(self.bounds[w]), int(self.bounds[w + 1])))

    def _gone(self) -> set[int]:
        with self._changed:
            return set(self.lost)

    def _count(self, messages: int, nbytes: int) -> None:
        self.messages += messages
        self.nbytes += nbytes


def assemble(findings: Sequence[Finding], shape: tuple[int, int], owner: int, here: Flags) -> Certificate:
    """What all workers found, as one certificate of models of ``shape`` and of the nodes that are ``here``."""
    K, F = shape
    cost = _cost(findings)
    model, bound = next((f.model, f.bound) for f in findings if f.model is not None)
    failure = next((f.failure for f in findings if f.failure), "")
    untold = np.concatenate([f.untold for f in findings])
    if not failure and len(untold):
        failure = f"{len(untold)} nodes, the first of them node {untold[0]}, are cut off from the others"
    if not failure and (bound is None or not np.isfinite(bound).all()):
        failure = "its model or its dual variables are not finite"
    if failure or model is None or bound is None:
        return refused(shape, failure, owner, cost)
    rows, nodes = bound[2 * K :].tolist()
    return Certificate(
        model.reshape(K, F), owner, bound[:K].copy(), bound[K : 2 * K].copy(), rows, int(nodes), *cost,
        nodes=np.flatnonzero(here),
    )  # fmt: skip


def _cost(findings: Sequence[Finding]) -> Cost:
    """What was sent up to where all held the bound, or it was given up, as one who sees all would count it.

    Who ran for less time has nothing to say any more. Mail is not lost between workers, so what stands still for long
    stands still for good.
    """
    last = max(len(f.spent) for f in findings) - 1
    cut_off = any(len(f.untold) for f in findings)
    last = min(
        last, max(f.learned for f in findings) + MAX_IDLE_EXCHANGES if cut_off else max(f.held for f in findings)
    )
    messages, nbytes, vectors = np.sum([f.spent[min(last, len(f.spent) - 1)] for f in findings], axis=0).tolist()
    return last + 1, messages, nbytes, vectors


def refused(shape: tuple[int, int], failure: str, owner: int = -1, cost: Cost = FREE) -> Certificate:
    """A certificate that came to nothing, and why."""
    K, _ = shape
    nothing = np.full(shape, np.nan), owner, np.full(K, np.inf), np.full(K, -np.inf)
    return Certificate(*nothing, 0.0, 0, *cost, failure)


def has_mass(run: Run) -> bool:
    """Whether a message that is lost takes mass with it that its sender should rather keep."""
    protocol = getattr(run, "protocol", None)
    return protocol is not None and not protocol.loss_proof


def keeps_mass(run: Run) -> bool:
    """Whether phi is Push-Sum's mass, in rows, that all nodes together keep from one iteration to the next."""
    protocol = getattr(run, "protocol", None)
    return protocol is not None and protocol.conserves_mass and bool(getattr(run, "persist", False))


def takes_back(run: Run) -> bool:
    """Whether nodes that were lost can join again."""
    return (hasattr(run, "drop") or has_mass(run)) and getattr(run, "until_converged", None) is None


def _answer(party: Round, delivery: Delivery) -> MessageBatch | None:
    try:
        return party.send(delivery)
    except StopIteration:
        return None
