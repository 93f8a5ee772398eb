"""The simulator: all nodes in this process, in one block or several; messages are handed over in memory.

`Channel` carries two kinds of messages, those of learning and those of certificates, under the same faults.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from gadget_svm.algorithms.base import Run, models
from gadget_svm.algorithms.certificate import Certificate, CertificateSession, CertificateState, Echo, longest
from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery, Exchange, MessageBatch
from gadget_svm.core.types import Array, Flags
from gadget_svm.faults import ActiveEdges
from gadget_svm.gossip.base import resume
from gadget_svm.simulation.runtime import Runtime

REJOIN_GRACE_ITERATIONS = 10
"""A certificate waits for a node that has been away for fewer iterations than this, since it may return soon."""
UNCERTIFIABLE = (
    "a certificate is made of dual variables, which this algorithm does not keep: "
    "use algorithm='pdmm' (or 'mom-dsvm') on an undirected topology, or another stopping rule than 'gap'"
)


@dataclass
class LocalRuntime(Runtime):
    """Drives every block through each iteration in lock step.

    Parameters
    ----------
    run : Run
        The algorithm, bound to the network.
    blocks : sequence of Block
        Consecutive nodes of the network.
    exchange : Exchange or None, default None
        Delivers messages, perhaps with faults; None: all arrive, in the same round.
    t, messages, nbytes : int, default 0
        Where a run is continued: its iterations and messages so far.
    omitted_columns : int, default 0
        How many numbers of every vector are zero and left out here, but would be sent over a real network.
    lam : float or None, default None
        The lam of the problem, if models are to be certified.
    """

    run: Run
    blocks: Sequence[Block]
    exchange: Exchange | None = None
    t: int = 0
    messages: int = 0
    nbytes: int = 0
    omitted_columns: int = 0
    lam: float | None = None
    certificates: int = 0  # how many were asked for
    away_since: dict[int, int] = field(default_factory=dict)  # node: iteration
    active_edges: ActiveEdges | None = None  # of a time-varying graph; it also wraps ``exchange``

    def __post_init__(self) -> None:
        self._channel: Channel | None = None
        self._echo: tuple[tuple[int, bytes], Echo] | None = None  # the course of a certificate, by its participants
        if self.lam is not None and self.exchange is not None and self.run.certifiable:
            self._channel = Channel(self.exchange, longest(self.blocks[0]))

    def advance(self, count: int) -> None:
        """Do ``count`` iterations: in one compiled call where nothing can happen in between, else one by one."""
        if self._fused:
            self.count(*self.run.advance_fused(self.blocks[0], count))
            self.t += count
            return
        for _ in range(count):
            self.t += 1
            self._iterate()

    def warm_up(self) -> None:
        """Compile every kernel an iteration needs, on a block without nodes, so that no measured time includes it."""
        empty = self.blocks[0].without_nodes()
        LocalRuntime(self.run, [empty], None if self._fused else Delivery).advance(1)

    @property
    def _fused(self) -> bool:
        return self.exchange is None and len(self.blocks) == 1 and self.run.supports_fused(self.blocks[0])

    def _iterate(self) -> None:
        exchange = self._channel.learn if self._channel is not None else self.exchange or Delivery
        iterations = [self.run.iteration(block, self.t) for block in self.blocks]
        outgoing: list[MessageBatch | None] = [next(iteration, None) for iteration in iterations]
        while batches := [messages for messages in outgoing if messages is not None]:
            messages = MessageBatch.merge(batches)
            if self.active_edges is not None:
                messages = self.active_edges.readdress(messages)
                sent = messages.select(messages.receiver != messages.sender)
                self.count(sent.n_messages, sent.nbytes)
            else:
                self.count(messages.n_messages, messages.nbytes)
            delivery = exchange(messages)
            for node in delivery.left:
                self.away_since.setdefault(node, self.t)
            for node in delivery.joined:
                self.away_since.pop(node, None)
            outgoing = [
                None if own is None else resume(iteration, delivery)
                for iteration, own in zip(iterations, outgoing, strict=True)
            ]

    def certify(self) -> Certificate:
        """Certify one model for all nodes except dead ones, with a bound of its gap, in separate exchanges.

        Nodes that left a moment ago take part when they return. The certificate fails, and says why, if a node is
        away for long and its rows still count, or is cut off.
        """
        if self.lam is None or not self.run.certifiable:
            raise ValueError("give LocalRuntime the problem's lam to certify models" if self.run.certifiable else
                             UNCERTIFIABLE)  # fmt: skip
        self.certificates += 1
        shape, live = self.blocks[0].w.shape[1:], self.live_mask()
        if not live.any():
            return Certificate.failed(shape, "all nodes are away")
        counted = self._counted(live)
        for node in np.flatnonzero(counted & ~live).tolist():
            away = self.t - self.away_since.get(node, self.t)
            if away >= REJOIN_GRACE_ITERATIONS or self._channel is None:
                why = f"node {node} is away for {away} iterations, and not declared dead: its rows count"
                return Certificate.failed(shape, why)
        owner, lam = int(np.argmax(live)), self.lam
        sessions = [
            CertificateSession(self.run, block, lam, owner, counted, self.certificates, self.t) for block in self.blocks
        ]
        certificate = Certificate.of(self._run_sessions(sessions, counted), shape, owner, counted)
        self.count(certificate.messages, certificate.nbytes, certificate.vectors)
        return certificate

    def _counted(self, live: Flags) -> Flags:
        """Return which nodes are live, or are away but reached from live nodes by edges that were not dropped."""
        counted, grows = live.copy(), not live.all()
        while grows:
            reached = counted.copy()
            for block in self.blocks:
                inside = np.repeat(counted[block.first : block.first + block.k], np.diff(block.links.indptr))
                reached[block.links.target[inside & self.run.counted(block)]] = True
            grows, counted = bool((reached & ~counted).any()), reached
        return counted

    def _run_sessions(self, sessions: list[CertificateSession], counted: Flags) -> Sequence[CertificateState]:
        """Exchange messages until every node knows the bound, or until the nodes learn nothing new.

        If all messages arrive, all certificates of the same nodes take the same course. It is recorded once, with empty
        messages, and then replayed.
        """
        (session, *others), participants = sessions, (sessions[0].owner, counted.tobytes())
        if self.exchange is None and not others:
            if self._echo is None or self._echo[0] != participants:
                trial = replace(session, empty=True)
                (state,) = CertificateState.final(self._exchanges([trial]))
                self._echo = None if len(state.uninformed) else (participants, trial.course())
            if self._echo is not None:
                session.replay(self._echo[1])
                return [session.state]
        return CertificateState.final(self._exchanges(sessions))

    def _exchanges(self, sessions: list[CertificateSession]) -> Iterator[list[CertificateState]]:
        """Exchange messages without end; yield the states at the beginning, and after each exchange."""
        exchange = self._channel.certify if self._channel is not None else Delivery
        rounds = [session.steps() for session in sessions]
        outgoing = [next(each) for each in rounds]
        while True:
            yield [session.state for session in sessions]
            delivery = exchange(padded(outgoing))
            outgoing = [each.send(delivery) for each in rounds]

    def gather(self, name: str) -> Array:
        """Return every node's model, last iterate or entry of an array of the blocks, see `Runtime.gather`."""
        computed: dict[str, Any] = {"models": partial(models, self.run), "weights": self.run.weights}
        read = computed.get(name, attrgetter(name))
        return np.concatenate([read(block) for block in self.blocks])

    def exchanges(self) -> int:
        """Return how often every block has sent."""
        return self.blocks[0].exchanges

    def live_mask(self) -> Flags:
        """Which nodes are live."""
        return self.gather("live_mask")

    def close(self) -> None:
        """Release the blocks' threads."""
        for block in self.blocks:
            block.team.close()


@dataclass
class Channel:
    """An exchange shared by two kinds of messages; the messages of certificates have negative numbers."""

    exchange: Exchange
    width: int  # of the longest vector of either kind
    waiting: list[Delivery] = field(default_factory=list)

    def learn(self, messages: MessageBatch) -> Delivery:
        """Do an exchange of the learners."""
        arrived, self.waiting = [*self.waiting, self.exchange(self._padded(messages))], []
        batches = [_unpadded(delivery.messages, messages) for delivery in arrived]
        merged = MessageBatch.merge([batch for batch in batches if batch.n_messages] or batches[-1:])
        joined = tuple(node for delivery in arrived for node in delivery.joined)
        left = tuple(node for delivery in arrived for node in delivery.left)
        return Delivery(merged._replace(time=messages.time), joined, left, arrived[-1].idle)

    def certify(self, messages: MessageBatch) -> Delivery:
        """Do an exchange of a certificate."""
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
    """Return the messages of learning without padding."""
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
