"""An actor: holds one block of nodes with its rows, a `Worker` that drives them, and handles of the other actors.

Imports no Ray: `Cluster.create` wraps `Host` as an actor. Log lines go to stderr, which Ray keeps in the actor's
log file. Metrics go to Ray's exporter, which Prometheus reads.
"""

import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from gadget_svm.algorithms.base import Run
from gadget_svm.algorithms.certificate import CertificateState
from gadget_svm.cluster.checkpoints import SaveFailedError, load_block, row_digests, save_block
from gadget_svm.cluster.worker import Worker
from gadget_svm.core.block import Block, Links
from gadget_svm.core.messages import MessageBatch
from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.kernels import ThreadTeam

Question = tuple[Any, ...]
"""A method of the rows' source and its arguments."""
RETRY_INTERVAL_S = 0.2


class NotReadyError(RuntimeError):
    """The actor has no block, because Ray has restarted it and its former state is lost."""


class Source(Protocol):
    """Gives an actor its rows. The driver sends the source to the actor, which keeps a copy."""

    def rows(self) -> Rows:
        """Return the rows of the actor's nodes, as arrays of its own."""


@dataclass(frozen=True)
class Given:
    """A source whose rows the driver already holds, and sends to the actor."""

    given: Rows

    def rows(self) -> Rows:
        """Return copies: arrays that came through Ray are read-only, and kernels would be compiled again for them."""
        copies: tuple[Any, ...] = tuple(np.array(part) if isinstance(part, np.ndarray) else part for part in self.given)
        return Rows(*copies)


@dataclass(frozen=True)
class ActorSpec:
    """What an actor needs, besides its rows, to make its block."""

    index: int
    bounds: Ints
    run: Run
    links: Links
    n: Floats
    shape: tuple[int, int]  # outputs x features
    seed: int
    lam: float | None
    threads: int
    state: dict[str, Any] = field(default_factory=dict)  # arrays of the block at the start
    digest_rows: bool = False


class Group(NamedTuple):
    """The actors that learn together from iteration ``t`` on."""

    number: int  # messages of an earlier group are dropped
    actors: list[Any]
    lost: list[int]
    t: int
    fingerprint: str = ""  # identifies the run in its checkpoints
    checkpoint: str | None = None  # the folder to restore blocks of iteration t from


class Host:
    """The actor. Several of its methods run at a time, each in a thread.

    Parameters
    ----------
    source : Source
        Where the rows come from.
    name : str, default=""
        The name of an actor on Ray; without a name nothing is logged or measured.
    """

    def __init__(self, source: Source, name: str = "") -> None:
        self.source, self.name = source, name
        self.telemetry = RayTelemetry(name) if name else Telemetry()
        self.group = Group(-1, [], [], 0)
        self._spec: ActorSpec | None = None
        self._rows: Rows | None = None
        self._worker: Worker | None = None
        self._lock = threading.Lock()  # the driver may call a method again before it has returned

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

    def ask(self, method: str, *args: Any) -> Any:
        """Call a method of the source of rows."""
        return getattr(self.source, method)(*args)

    def begin(self, spec: ActorSpec, questions: Sequence[Question] = (), patience_s: float = 0.0) -> list[str]:
        """Read the rows and compile; return the digests of every node's rows if they are asked for.

        Parameters
        ----------
        spec : ActorSpec
            How to make the block.
        questions : sequence
            The calls that the source got before Ray restarted the actor. They are repeated.
        patience_s : float
            How long to try again if a file or server is missing.
        """
        end = time.monotonic() + patience_s
        with self._lock:
            while True:
                try:
                    for method, *args in questions:
                        self.ask(method, *args)
                    self._spec, self._rows = spec, self.source.rows()
                    break
                except OSError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(RETRY_INTERVAL_S)
            self._make_worker(spec, self._rows, self.group).runtime.warm_up()
            return row_digests(self._rows) if spec.digest_rows else []

    def _make_worker(self, spec: ActorSpec, rows: Rows, group: Group) -> Worker:
        """Return a worker with the block as it is at the start of the run."""
        links = Links(*(np.array(part) for part in spec.links))
        team, first = ThreadTeam(spec.threads), int(spec.bounds[spec.index])
        block = Block(links, rows, np.array(spec.n), *spec.shape, first=first, seed=spec.seed, team=team)
        state = dict(spec.state)
        block.exchanges = state.pop("exchanges", 0)
        for name, value in state.items():
            getattr(block, name)[:] = value
        return Worker(spec.index, np.array(spec.bounds), spec.run, block, partial(self._post, group), spec.lam)

    def join(self, group: Group) -> None:
        """Join a group. Take the block from the group's checkpoint, or as it was at the start of the run."""
        spec, rows = self._spec, self._rows
        if spec is None or rows is None:
            raise NotReadyError("the actor was restarted")
        worker = self._make_worker(spec, rows, group)  # a worker of an earlier group posts to that one
        first, last, worker.runtime.t = worker.block.first, worker.block.first + worker.block.k, group.t
        self.telemetry.log(f"nodes {first} to {last - 1}, {len(rows.order)} rows, {spec.threads} threads")
        self.telemetry.gauge("gadget_rows", len(rows.order))
        if group.checkpoint is not None:
            worker.restore(*load_block(Path(group.checkpoint), first, last, group.t, group.fingerprint))
            self.telemetry.log(f"restored from the checkpoint of iteration {group.t}")
        for index in group.lost:
            worker.forget(index)
        self._worker, self.group = worker, group

    # calls from other actors

    def _post(self, group: Group, to: int, number: int, messages: MessageBatch) -> None:
        group.actors[to].receive.remote(group.number, self.worker.index, number, messages)

    def receive(self, group: int, source: int, number: int, messages: MessageBatch) -> None:
        """Store messages of an exchange from another actor."""
        if group == self.group.number:
            self.worker.receive(source, number, messages)

    def forget(self, index: int) -> None:
        """Note that an actor is lost."""
        if self._worker is not None:
            self._worker.forget(index)
            self.telemetry.log(f"actor {index} is lost")

    def status(self) -> tuple[int, list[int]]:
        """Return how far the actor is, and the actors whose messages it waits for."""
        return (0, []) if self._worker is None else self._worker.status()

    # learning

    def advance(self, count: int) -> tuple[int, int]:
        """Do iterations; return the number of messages sent and their bytes."""
        runtime = self.worker.runtime
        messages, nbytes = runtime.messages, runtime.nbytes
        self.worker.advance(count)
        sent = runtime.messages - messages, runtime.nbytes - nbytes
        self.telemetry.gauge("gadget_iteration", runtime.t)
        self.telemetry.count("gadget_messages", sent[0])
        self.telemetry.count("gadget_bytes", sent[1])
        return sent

    def certify(self, owner: int, live: Flags, serial: int) -> list[CertificateState]:
        """Do some exchanges of a certificate."""
        return self.worker.certify(owner, live, serial)

    def values(self, name: str) -> Any:
        """Return an array of the block with an entry per node; "models" are those that the nodes would predict with."""
        return self.worker.runtime.gather(name)

    def exchanges(self) -> int:
        """Return how often the block has sent."""
        return self.worker.runtime.exchanges()

    def losses(self, models: Floats) -> tuple[Floats, Floats, float]:
        """Return the losses of models on the actor's own rows."""
        return self.worker.losses(np.array(models))

    def save(self, folder: str, keep: int) -> None:
        """Write the block's checkpoint file; keep the file of iteration ``keep``."""
        with self._lock:
            block, (arrays, counters) = self.worker.block, self.worker.state()
            about = {**counters, "fingerprint": self.group.fingerprint}
            try:
                save_block(Path(folder), block.first, block.first + block.k, arrays, about, keep)
            except SaveFailedError as error:
                self.telemetry.log(f"checkpoint of iteration {counters['t']} failed: {error}")
                raise
        self.telemetry.log(f"checkpoint of iteration {counters['t']} written")
        self.telemetry.gauge("gadget_checkpoint_iteration", counters["t"])


FORMAT = "%(asctime)s %(name)s %(levelname)s %(message)s"
METRICS = {
    "gadget_iteration": ("Gauge", "Current iteration of the actor's nodes."),
    "gadget_rows": ("Gauge", "Training rows of the actor's nodes."),
    "gadget_checkpoint_iteration": ("Gauge", "Iteration of the last checkpoint that the actor wrote."),
    "gadget_messages": ("Counter", "Messages that the actor's nodes sent."),
    "gadget_bytes": ("Counter", "Bytes that the actor's nodes sent."),
}
"""The metrics of an actor: their kinds and texts. All have the tag ``actor``, which is the actor's name."""


class Telemetry:
    """Reports nothing: the telemetry of an actor outside Ray."""

    def log(self, text: str) -> None:
        """Write a line to the actor's log file."""

    def gauge(self, name: str, value: float) -> None:
        """Set a metric."""

    def count(self, name: str, amount: float) -> None:
        """Add to a metric."""


class RayTelemetry(Telemetry):
    """Reports to Ray under the name of the actor that creates it."""

    def __init__(self, name: str) -> None:
        self._tags, kinds = {"actor": name}, import_module("ray.util.metrics")
        self._metrics: dict[str, Any] = {
            metric: getattr(kinds, kind)(metric, description=about, tag_keys=("actor",))
            for metric, (kind, about) in METRICS.items()
        }
        self._logger = logging.getLogger(name)
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False  # Ray's own handlers would write the line again
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(FORMAT))
        self._logger.addHandler(handler)

    def log(self, text: str) -> None:
        self._logger.info(text)

    def gauge(self, name: str, value: float) -> None:
        self._metrics[name].set(value, tags=self._tags)

    def count(self, name: str, amount: float) -> None:
        if amount > 0:  # Ray refuses to add 0
            self._metrics[name].inc(amount, tags=self._tags)
