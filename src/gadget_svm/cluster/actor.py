"""What runs inside an actor: one block of nodes with its rows, driven by a `Worker`. Knows handles of other actors.

Imports no Ray: an actor is this class wrapped by whoever makes it. `ray_telemetry` writes its logs and metrics.
"""

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from gadget_svm.algorithms.base import Run
from gadget_svm.cluster import checkpoints
from gadget_svm.cluster.row_digests import digests
from gadget_svm.cluster.telemetry import NoTelemetry, RayTelemetry, Telemetry
from gadget_svm.cluster.worker import Batch, Finding, Key, Worker
from gadget_svm.core.block import Block, Links
from gadget_svm.core.rows import Rows
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.kernels import ThreadTeam


class Source(Protocol):
    """How an actor comes by its rows. It is sent to the actor, which keeps it."""

    def rows(self) -> Rows:
        """The rows of the actor's nodes, as arrays of its own."""


@dataclass(frozen=True)
class Given:
    """Rows that the driver has."""

    given: Rows

    def rows(self) -> Rows:
        """Copies: what came through Ray cannot be written, and kernels would be compiled a second time for it."""
        copies: tuple[Any, ...] = tuple(np.array(part) if isinstance(part, np.ndarray) else part for part in self.given)
        return Rows(*copies)


@dataclass(frozen=True)
class Charge:
    """What an actor is to do, beside its rows."""

    index: int
    bounds: Ints
    run: Run
    links: Links
    n: Floats
    shape: tuple[int, int]  # outputs x features
    seed: int
    lam: float | None
    threads: int
    memory: dict[str, Any] = field(default_factory=dict)  # arrays of the block to begin with
    digest: bool = False  # whether to say what its rows are
    fingerprint: str = ""  # of the run, for its checkpoints


class Begun(NamedTuple):
    """What an actor says when its block is there."""

    pid: int
    digests: list[str]  # of every node's rows, where they were asked for


class Saved(NamedTuple):
    """What an actor says of its checkpoint."""

    t: int  # the iteration its block is of
    why: str = ""  # it could not be written


class Host:
    """The actor: a worker, and the others' handles. Several of its methods run at a time."""

    def __init__(self, source: Any, name: str = "") -> None:
        """``name``: of an actor of Ray's; without one nothing is logged or measured."""
        self.source, self.name = source, name
        self.telemetry: Telemetry = RayTelemetry(name) if name else NoTelemetry()
        self.worker: Any = None
        self.fingerprint = ""
        self.others: list[Any] = []
        self._saving = threading.Lock()  # who asks may be interrupted, and ask again

    def __repr__(self) -> str:
        """The name by which Ray's logs call it."""
        return self.name or type(self).__name__

    def ping(self) -> int:
        """Say that the actor runs; returns its process number."""
        return os.getpid()

    def ask(self, method: str, *args: Any) -> Any:
        """Something of the rows' source."""
        return getattr(self.source, method)(*args)

    def take_over(self, questions: list[tuple[Any, ...]], charge: Charge) -> Begun:
        """All that the one before was asked of its rows, in that order, then `begin`. Calls of their own might overtake
        one another."""
        for method, *args in questions:
            self.ask(method, *args)
        return self.begin(charge)

    def begin(self, charge: Charge) -> Begun:
        """Make the block."""
        first, last = (int(bound) for bound in charge.bounds[charge.index : charge.index + 2])
        self.fingerprint = charge.fingerprint
        (K, F), k = charge.shape, last - first
        links = Links(*(np.array(part) for part in charge.links))
        width = K * F
        block = Block(
            first, charge.seed, np.array(charge.n), links, self.source.rows(), np.zeros((k, K, F)),
            np.zeros((k, width)), np.zeros(k), np.zeros((k, width)), np.zeros((k, K, F)), np.zeros(k, dtype=np.int64),
            np.zeros(k, dtype=np.int64), np.ones(k, dtype=np.bool_), team=ThreadTeam(charge.threads),
        )  # fmt: skip
        memory = dict(charge.memory)
        block.exchanges = memory.pop("exchanges", 0)
        for name, value in memory.items():
            getattr(block, name)[:] = value
        self.worker = Worker(charge.index, np.array(charge.bounds), charge.run, block, self._post, lam=charge.lam)
        self.worker.warm_up()
        rows = len(block.rows.order)
        self.telemetry.log(f"nodes {first} to {last - 1}, {rows} rows, {charge.threads} threads, process {os.getpid()}")
        self.telemetry.gauge("gadget_rows", rows)
        return Begun(os.getpid(), digests(block.rows) if charge.digest else [])

    def meet(self, others: list[Any], t: int) -> None:
        """The handles of all actors."""
        self.others, self.worker.t = others, t

    def welcome(self, index: int, handle: Any) -> None:
        """A new actor in the place of one that was lost."""
        self.others[index] = handle
        self.worker.welcome(index)
        self.telemetry.log(f"actor {index} is replaced")

    def rejoin(self, others: list[Any], t: int, exchanges: int, folder: str | None, saved: int | None) -> None:
        """Take the place of an actor that was lost, from its checkpoint where there is one."""
        if folder is not None and saved is not None:
            self._restore(folder, saved)
        self.others = others
        for index, other in enumerate(others):
            if other is None:
                self.worker.forget(index)
        self.worker.start_over(t, exchanges)
        self.telemetry.log(f"joined at iteration {t} in place of a lost actor")

    def _post(self, to: int, key: Key, batch: Batch) -> None:
        if (other := self.others[to]) is not None:  # it may be forgotten at any moment
            other.receive.remote(self.worker.index, key, batch)

    def receive(self, source: int, key: Key, batch: Batch) -> None:
        """Mail of another actor."""
        self.worker.receive(source, key, batch)

    def forget(self, index: int) -> None:
        """An actor is gone. Before the others were met that is no matter for this one: the start ends with an error."""
        if self.others:
            self.worker.forget(index)
            self.others[index] = None
            self.telemetry.log(f"actor {index} is lost")

    def status(self) -> tuple[Key, list[int]]:
        """How far it is, and whose mail it waits for."""
        found: tuple[Key, list[int]] = self.worker.whereabouts()
        return found

    def advance(self, count: int) -> tuple[int, int]:
        """Iterations; returns the messages sent and their bytes."""
        messages, nbytes = self.worker.messages, self.worker.nbytes
        self.worker.advance(count)
        sent = self.worker.messages - messages, self.worker.nbytes - nbytes
        self.telemetry.gauge("gadget_iteration", self.worker.t)
        self.telemetry.count("gadget_messages", sent[0])
        self.telemetry.count("gadget_bytes", sent[1])
        return sent

    def certify(self, owner: int, here: Flags, serial: int) -> Finding:
        """Its part in a certificate."""
        found: Finding = self.worker.certify(owner, here, serial)
        return found

    def values(self, name: str) -> Any:
        """An array of the block."""
        return self.worker.values(name)

    def exchanges(self) -> int:
        """How often the block has sent."""
        return int(self.worker.block.exchanges)

    def losses(self, models: Floats) -> tuple[Floats, Floats, float]:
        """Of models, on its own rows."""
        found: tuple[Floats, Floats, float] = self.worker.losses(np.array(models))
        return found

    def save(self, folder: str) -> Saved:
        """A checkpoint. What a disk does is no error here: only of this one it is known to be about the checkpoint."""
        block = self.worker.block
        nodes = (block.first, block.first + block.k)
        with self._saving:
            arrays, counters = self.worker.state()
            try:
                checkpoints.save_block(Path(folder), *nodes, arrays, counters, self.fingerprint)
            except OSError as error:
                self.telemetry.log(f"checkpoint of iteration {counters['t']} failed: {error}")
                return Saved(counters["t"], str(error))
        self.telemetry.log(f"checkpoint of iteration {counters['t']} written")
        self.telemetry.gauge("gadget_checkpoint_iteration", counters["t"])
        return Saved(counters["t"])

    def restore(self, folder: str, t: int) -> None:
        """Go on from a checkpoint, as if nothing had been in between."""
        self._restore(folder, t)

    def _restore(self, folder: str, t: int) -> None:
        block = self.worker.block
        nodes = (block.first, block.first + block.k)
        self.worker.restore(*checkpoints.load_block(Path(folder), *nodes, t, self.fingerprint))
        self.telemetry.log(f"restored from the checkpoint of iteration {t}")
