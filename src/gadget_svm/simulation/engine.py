"""The simulator: all nodes in this process, in one block or several, with mail handed over in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gadget_svm.algorithms.base import Run, models
from gadget_svm.algorithms.certificate import Certificate, CertificateSession, Echo, failed, few_edges, gather, longest
from gadget_svm.core.block import Block
from gadget_svm.core.messages import Delivery, Exchange, MessageBatch
from gadget_svm.core.types import Flags, Floats
from gadget_svm.gossip import Round
from gadget_svm.simulation.channel import Wire, padded

PATIENCE = 200
"""A certificate is given up when nobody has learned anything for so many exchanges."""
REJOIN_GRACE_ITERATIONS = 10
"""A node that is away for less than so many iterations may be back soon: a certificate waits for it."""


@dataclass
class LocalRuntime:
    """Drives every block through each iteration in step. ``exchange`` may be wrapped by faults."""

    run: Run
    blocks: Sequence[Block]
    exchange: Exchange | None = None  # None: all mail arrives, in the same round
    t: int = 0
    messages: int = 0
    nbytes: int = 0
    omitted_columns: int = (
        0  # numbers of every message that are zero for certain, and so left out here, but not on a wire
    )
    lam: float | None = None  # of the problem, where models are to be certified
    certificates: int = 0  # how many were asked for
    gone: dict[int, int] = field(default_factory=dict)  # who is away, and since which iteration

    def __post_init__(self) -> None:
        self._wire: Wire | None = None
        self._echo: tuple[tuple[int, bytes], Echo] | None = None  # who took part in a certificate, and how it went
        if self.lam is not None and self.exchange is not None and self.run.certifiable:
            self._wire = Wire(self.exchange, longest(self.blocks[0]))

    def advance(self, count: int) -> None:
        """``count`` iterations, in compiled leaps where nothing can happen in between."""
        block = self.blocks[0]
        if self._leaps():
            self._count(*self.run.advance_fused(block, count))
            self.t += count
            return
        for _ in range(count):
            self.t += 1
            self._iterate()

    def warm_up(self) -> None:
        """Compile every kernel an iteration needs, on a block without nodes, so that no clock counts it."""
        nobody = self.blocks[0].without_nodes()
        LocalRuntime(self.run, [nobody], None if self._leaps() else Delivery).advance(1)
        if self.lam is not None and self.run.certifiable:
            nothing = np.zeros(0, dtype=np.bool_)
            inquiry = CertificateSession(
                self.run, nobody, self.lam, 0, nothing, 0, 0, interpret=few_edges(self.blocks[0])
            )
            party = inquiry.conversation()
            party.send(Delivery(next(party)))

    def _leaps(self) -> bool:
        return self.exchange is None and len(self.blocks) == 1 and self.run.supports_fused(self.blocks[0])

    def _iterate(self) -> None:
        exchange = self._wire.learn if self._wire is not None else self.exchange or Delivery
        barrier_groups = [self.run.iteration(block, self.t) for block in self.blocks]
        outgoing: list[MessageBatch | None] = [next(party, None) for party in barrier_groups]
        while batches := [messages for messages in outgoing if messages is not None]:
            messages = MessageBatch.merge(batches)
            self._count(messages.n_messages, messages.nbytes)
            delivery = exchange(messages)
            self._note(delivery)
            outgoing = [
                None if mine is None else _send(party, delivery)
                for party, mine in zip(barrier_groups, outgoing, strict=True)
            ]

    def _note(self, delivery: Delivery) -> None:
        for node in delivery.left:
            self.gone.setdefault(node, self.t)
        for node in delivery.joined:
            self.gone.pop(node, None)

    def certify(self) -> Certificate:
        """One model for all nodes but the dead, and a bound of its gap, by an exchange of their own; learning rests.

        Nodes that have only just left take part when they return. Fails, and says why, if a node is away for long and
        its rows still count, or is cut off.
        """
        run, lam, first = self.run, self.lam, self.blocks[0]
        if lam is None or not run.certifiable:
            raise ValueError(
                UNCERTIFIABLE if lam is not None else "give LocalRuntime the problem's lam to certify models"
            )
        self.certificates += 1
        here = self.live_mask()
        if not here.any():
            return failed(first, "all nodes are away")
        counted = self._counted(run, here)
        for node in np.flatnonzero(counted & ~here).tolist():
            if (away := self.t - self.gone.get(node, self.t)) >= REJOIN_GRACE_ITERATIONS or self._wire is None:
                return failed(
                    first, f"node {node} is away for {away} iterations, and not declared dead: its rows count"
                )
        owner = int(np.argmax(here))
        parts = [
            CertificateSession(run, block, lam, owner, counted, self.certificates, self.t) for block in self.blocks
        ]
        self._inquire(parts, counted)
        certificate = gather(parts)
        self._count(certificate.messages, certificate.nbytes, certificate.vectors)
        return certificate

    def _counted(self, run: Run, here: Flags) -> Flags:
        """The nodes that are here, and those that are away and reached from them by edges that were not dropped."""
        counted, grows = here.copy(), not here.all()
        while grows:
            reached = counted.copy()
            for block in self.blocks:
                inside = np.repeat(counted[block.first : block.first + block.k], np.diff(block.links.indptr))
                reached[block.links.target[inside & run.counted(block)]] = True
            grows, counted = bool((reached & ~counted).any()), reached
        return counted

    def _inquire(self, parts: list[CertificateSession], counted: Flags) -> None:
        """Exchanges until every node knows the bound, or nobody learns anything any more.

        Where all messages arrive, certificates of the same nodes go alike: how is found out once, by empty messages.
        """
        who = parts[0].owner, counted.tobytes()
        if self.exchange is None and len(parts) == 1:
            if self._echo is None or self._echo[0] != who:
                trial = replace(parts[0], empty=True)
                self._echo = (who, trial.echo) if self._converse([trial]) else None
            if self._echo is not None:
                parts[0].repeat(self._echo[1])
                return
        self._converse(parts)

    def _converse(self, parts: list[CertificateSession]) -> bool:
        """Whether all nodes came to know the bound."""
        exchange = self._wire.certify if self._wire is not None else Delivery
        barrier_groups = [part.conversation() for part in parts]
        outgoing, known, quiet = [next(party) for party in barrier_groups], 0, 0
        while quiet < PATIENCE and not all((part.told | ~part.nodes.alive).all() for part in parts):
            delivery = exchange(padded(outgoing))
            outgoing = [party.send(delivery) for party in barrier_groups]
            news = sum(part.news for part in parts)
            known, quiet = news, quiet + 1 if news == known else 0
        return quiet < PATIENCE

    def _count(self, messages: int, nbytes: int, vectors: int | None = None) -> None:
        """``vectors``: how many of the messages carry a vector; None: all. Omitted columns count in those alone."""
        self.messages += messages
        self.nbytes += nbytes + 8 * self.omitted_columns * (messages if vectors is None else vectors)

    def models(self) -> Floats:
        """Every node's model, nodes x outputs x features."""
        parts = [models(self.run, block) for block in self.blocks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def weights(self) -> Floats:
        """Every node's last iterate, nodes x outputs x features."""
        parts = [self.run.weights(block) for block in self.blocks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def sizes(self) -> Floats:
        """n_i of every node."""
        return np.concatenate([block.n for block in self.blocks])

    def live_row_weights(self) -> Floats:
        """n_i of the nodes that are here, 0 for those that are away: who counts in the network's average."""
        here = self.live_mask()
        return self.sizes() * here if here.any() else self.sizes()

    def live_mask(self) -> Flags:
        """Which nodes are not away."""
        return np.concatenate([block.live_mask for block in self.blocks])

    def close(self) -> None:
        """Let the blocks' threads go."""
        for block in self.blocks:
            block.team.close()


UNCERTIFIABLE = (
    "a certificate is made of dual variables, which this algorithm does not keep: "
    "use algorithm='pdmm' (or 'mom-dsvm') on an undirected topology, or another stopping rule than 'gap'"
)


def distances(models: Floats, others: Floats) -> Floats:
    """How far each model is from its other (or all from one), a few thousand at a time so that memory stays bounded."""
    out = np.empty(len(models))
    stride = max(1, 2**20 // max(1, models[0].size))
    for i in range(0, len(models), stride):
        apart = models[i : i + stride] - (others[i : i + stride] if others.ndim == models.ndim else others)
        out[i : i + stride] = np.sqrt(np.einsum("mkd,mkd->m", apart, apart))
    return out


def _send(party: Round, delivery: Delivery) -> MessageBatch | None:
    try:
        return party.send(delivery)
    except StopIteration:
        return None
