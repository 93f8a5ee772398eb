"""An actor: holds one block of nodes with its rows, a `Worker` that drives them, and handles of the other actors.

Imports no Ray: `Cluster.create` wraps `Host` as an actor. Telemetry writes its logs and metrics.
"""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from gadget_svm.algorithms.base import Run
from gadget_svm.cluster.checkpoints import SaveResult, load_block, row_digests, save_block
from gadget_svm.cluster.telemetry import RayTelemetry, Telemetry
from gadget_svm.cluster.worker import Batch, CertificatePart, Key, Worker
from gadget_svm.core.block import Block, Links
from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.kernels import ThreadTeam

Question = tuple[Any, ...]
"""A method of the rows' source and its arguments."""


class NotReadyError(RuntimeError):
    """The actor has no block, because Ray has restarted it and its former state is lost."""


class Source(Protocol):
    """How an actor gets its rows. It is sent to the actor, which keeps its copy."""

    def rows(self) -> Rows:
        """Return the rows of the actor's nodes, as arrays of its own."""


@dataclass(frozen=True)
class Given:
    """Rows that the driver has."""

    given: Rows

    def rows(self) -> Rows:
        """Return copies: arrays that came through Ray are read-only, and kernels would be compiled again for them."""
        copies: tuple[Any, ...] = tuple(np.array(part) if isinstance(part, np.ndarray) else part for part in self.given)
        return Rows(*copies)


@dataclass(frozen=True)
class ActorSpec:
    """What an actor needs beside its rows to make its block."""

    index: int
    bounds: Ints
    run: Run
    links: Links
    n: Floats
    shape: tuple[int, int]  # outputs x features
    seed: int
    lam: float | None
    threads: int
    memory: dict[str, Any] = field(default_factory=dict)  # arrays of the block at the start
    digest_rows: bool = False
    fingerprint: str = ""  # of the run, for its checkpoints


class ActorReady(NamedTuple):
    """What an actor reports when its block is made."""

    pid: int
    row_digests: list[str]  # of every node's rows, if asked for


class Group(NamedTuple):
    """The actors that learn together from iteration ``t`` on."""

    number: int  # messages of an earlier group are dropped
    actors: list[Any]
    lost: list[int]
    t: int
    checkpoint: str | None = None  # the folder to restore blocks of iteration t from


class Host:
    """The actor. Several of its methods run at a time, each in a thread."""

    def __init__(self, name: str = "") -> None:
        """``name``: the name of an actor on Ray; without a name nothing is logged or measured."""
        self.source: Any = None
        self.name = name
        self.telemetry = RayTelemetry(name) if name else Telemetry()
        self.group = Group(-1, [], [], 0)
        self._worker: Worker | None = None
        self._spec: ActorSpec | None = None
        self._saving = threading.Lock()  # an interrupted driver may ask for a second save

    def __repr__(self) -> str:
        """Return the name, which Ray's logs show."""
        return self.name or type(self).__name__

    @property
    def worker(self) -> Worker:
        """The worker, once the actor has its block."""
        if self._worker is None:
            raise NotReadyError("the actor was restarted")
        return self._worker

    def ping(self) -> int:
        """Return the process number, to show that the actor runs."""
        return os.getpid()

    # start

    def ask(self, source: Any, method: str, *args: Any) -> Any:
        """Call a method of the source of rows. The source of the first call is kept."""
        self.source = source if self.source is None else self.source
        return getattr(self.source, method)(*args)

    def begin(self, source: Any, spec: ActorSpec, questions: Sequence[Question] = ()) -> ActorReady:
        """Make the block. ``questions``: what the source was asked before Ray restarted the actor."""
        self.source = source if self.source is None else self.source
        for method, *args in questions:
            self.ask(source, method, *args)
        block = self._make_block(spec)
        return ActorReady(os.getpid(), row_digests(block.rows) if spec.digest_rows else [])

    def _make_block(self, spec: ActorSpec) -> Block:
        """Make the block as it is at the start of the run, and its worker."""
        first, last = (int(bound) for bound in spec.bounds[spec.index : spec.index + 2])
        (K, F), k = spec.shape, last - first
        links = Links(*(np.array(part) for part in spec.links))
        width = K * F
        block = Block(
            first, spec.seed, np.array(spec.n), links, self.source.rows(), np.zeros((k, K, F)),
            np.zeros((k, width)), np.zeros(k), np.zeros((k, width)), np.zeros((k, K, F)), np.zeros(k, dtype=np.int64),
            np.zeros(k, dtype=np.int64), np.ones(k, dtype=np.bool_), team=ThreadTeam(spec.threads),
        )  # fmt: skip
        memory = dict(spec.memory)
        block.exchanges = memory.pop("exchanges", 0)
        for name, value in memory.items():
            getattr(block, name)[:] = value
        post = partial(self._post, self.group)
        worker = Worker(spec.index, np.array(spec.bounds), spec.run, block, post, lam=spec.lam)
        worker.warm_up()
        self._worker, self._spec, rows = worker, spec, len(block.rows.order)
        self.telemetry.log(f"nodes {first} to {last - 1}, {rows} rows, {spec.threads} threads, process {os.getpid()}")
        self.telemetry.gauge("gadget_rows", rows)
        return block

    def join(self, group: Group) -> None:
        """Become part of a group: from its checkpoint, or from the start of the run."""
        if self._spec is None:
            raise NotReadyError("the actor was restarted")
        if self.group.number >= 0:  # it was part of another group
            self._make_block(self._spec)
        worker, block = self.worker, self.worker.block
        worker.t = group.t
        if group.checkpoint is not None:
            nodes = block.first, block.first + block.k
            worker.restore(*load_block(Path(group.checkpoint), *nodes, group.t, self._fingerprint))
            self.telemetry.log(f"restored from the checkpoint of iteration {group.t}")
        for index in group.lost:
            worker.forget(index)
        worker.post = partial(self._post, group)  # a worker that still runs for an earlier group posts to that one
        self.group = group

    # calls from other actors

    def _post(self, group: Group, to: int, key: Key, batch: Batch) -> None:
        group.actors[to].receive.remote(group.number, self.worker.index, key, batch)

    def receive(self, group: int, source: int, key: Key, batch: Batch) -> None:
        """Store a batch from another actor."""
        if group == self.group.number:
            self.worker.receive(source, key, batch)

    def forget(self, index: int) -> None:
        """Note that an actor is lost."""
        if self._worker is not None:
            self._worker.forget(index)
            self.telemetry.log(f"actor {index} is lost")

    def status(self) -> tuple[Key, list[int]]:
        """Return how far the actor is, and the actors whose batches it waits for."""
        return self.worker.status()

    # learning

    def advance(self, count: int) -> tuple[int, int]:
        """Do iterations; return the number of messages sent and their bytes."""
        worker = self.worker
        messages, nbytes = worker.messages, worker.nbytes
        worker.advance(count)
        sent = worker.messages - messages, worker.nbytes - nbytes
        self.telemetry.gauge("gadget_iteration", worker.t)
        self.telemetry.count("gadget_messages", sent[0])
        self.telemetry.count("gadget_bytes", sent[1])
        return sent

    def certify(self, owner: int, live: Flags, serial: int) -> CertificatePart:
        """Take part in a certificate."""
        return self.worker.certify(owner, live, serial)

    def values(self, name: str) -> Any:
        """Return an array of the block."""
        return self.worker.values(name)

    def exchanges(self) -> int:
        """Return how often the block has sent."""
        return int(self.worker.block.exchanges)

    def losses(self, models: Floats) -> tuple[Floats, Floats, float]:
        """Return the losses of models on the actor's own rows."""
        return self.worker.losses(np.array(models))

    def save(self, folder: str, keep: int) -> SaveResult:
        """Write the block's checkpoint file. A disk error is returned: the caller could not tell it from others."""
        with self._saving:
            block, (arrays, counters) = self.worker.block, self.worker.state()
            about = {**counters, "fingerprint": self._fingerprint}
            try:
                save_block(Path(folder), block.first, block.first + block.k, arrays, about, keep)
            except OSError as error:
                self.telemetry.log(f"checkpoint of iteration {counters['t']} failed: {error}")
                return SaveResult(counters["t"], str(error))
        self.telemetry.log(f"checkpoint of iteration {counters['t']} written")
        self.telemetry.gauge("gadget_checkpoint_iteration", counters["t"])
        return SaveResult(counters["t"])

    @property
    def _fingerprint(self) -> str:
        return "" if self._spec is None else self._spec.fingerprint
