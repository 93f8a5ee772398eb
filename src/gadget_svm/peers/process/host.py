"""The process around a node: an asyncio loop that delivers events to it and carries out its effects.

Owns time, threads, signals and files. Decides nothing about membership or learning. `PeerHost.deliver` is the whole
loop; the rest of this file is how each effect is carried out. All events are handled in one thread, in their order, and
a message is handled before the next one of its link is read, so that nothing is queued without bound.
"""

import asyncio
import logging
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gadget_svm.peers import events as ev
from gadget_svm.peers.process import config
from gadget_svm.peers.process.control import control_answers
from gadget_svm.peers.process.credential_files import CredentialFiles
from gadget_svm.peers.process.grpc_links import Links
from gadget_svm.peers.process.ledger_file import LedgerFile
from gadget_svm.peers.process.logs import fields
from gadget_svm.peers.process.model_export import model_path
from gadget_svm.peers.process.snapshot_store import SnapshotStore
from gadget_svm.peers.process.transport import Server
from gadget_svm.peers.storage.ledger import Ledger
from gadget_svm.peers.storage.snapshot import ModelDocument
from gadget_svm.peers.wire.limits import Limits

CHECK_INTERVAL_S = 2.0  # between two looks at the files with certificates
STUCK_S = 120.0  # a training step that takes longer is reported
COUNTS = (
    *("messages_sent", "messages_received", "bytes_sent", "bytes_received", "dial_failures"),
    *("snapshots", "snapshot_failures"),
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
log = logging.getLogger(__name__)


class DrivenNode(Protocol):
    """What a host needs of a node."""

    def handle(self, event: ev.Event, now: float) -> list[ev.Effect]:
        """Return what is to be done."""

    def status(self, now: float) -> dict[str, Any]:
        """Return plain values for people."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Where the process listens, what it lets other peers do, and its model file: parts of a peer.toml."""

    listen: str
    limits: config.Limits = field(default_factory=config.Limits)
    metrics: config.Metrics = field(default_factory=config.Metrics)
    model: Path = Path("model.safetensors")


class NodeFailedError(RuntimeError):
    """The node has ended with an error."""


class PeerHost:
    """Runs one node until it finishes.

    Parameters
    ----------
    node : DrivenNode
        The node; it has not been started.
    settings : HostSettings
        Addresses and limits.
    limits : Limits
        The sizes of messages, as the study implies them.
    credentials : CredentialFiles
        This peer's certificate, and the judgement of others.
    store : SnapshotStore
        Where snapshots go; it is opened and closed here.
    export : callable
        Writes a model file durably.
    ledger : LedgerFile or None
        The privacy ledger of a private study; it is opened and closed here.
    """

    def __init__(
        self, node: DrivenNode, settings: HostSettings, limits: Limits, credentials: CredentialFiles,
        store: SnapshotStore, export: Callable[[ModelDocument], Any], ledger: LedgerFile | None = None,
    ) -> None:  # fmt: skip
        self._node, self._settings, self._credentials = node, settings, credentials
        self._store, self._export, self._ledger = store, export, ledger
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self._seconds = {"step_seconds": 0.0, "snapshot_seconds": 0.0}
        self._step_began: float | None = None
        self.links = Links(credentials, limits, settings.limits, self.deliver, self.counts)
        answers = control_answers(credentials, self.status, self.stop, self.links.reject)
        bounds, proved = settings.limits.connections, self.links.handshakes.proved
        self._server = Server(self.links.serve, answers, limits.frame_bytes, bounds, proved)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="step")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="write")
        self.port = 0  # where it listens, when it runs
        self._events: deque[ev.Event] = deque()
        self._handling = False
        self._timer: asyncio.TimerHandle | None = None
        self._effects: dict[type, Callable[[Any], None]] = {
            ev.Dial: self.links.dial, ev.Hangup: self.links.hang_up, ev.Send: self.links.send,
            ev.RunStep: self._run_step, ev.SetTimer: self._set_timer, ev.Report: self._report,
            ev.Save: lambda effect: self._write(effect.number, self._store.save, effect.snapshot),
            ev.Export: lambda effect: self._write(effect.number, self._export, effect.model),
            ev.Spend: lambda effect: self._write(effect.number, self._save_ledger, effect.ledger),
            ev.Finish: lambda effect: self._finished.set_result(effect),
        }  # fmt: skip

    # The loop

    def deliver(self, event: ev.Event) -> None:
        """Hand an event to the node, and carry out what it returns; also the events that follow from that."""
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events and not self._finished.done():
                for effect in self._node.handle(self._events.popleft(), self._loop.time()):
                    self._effects[type(effect)](effect)
        except Exception as error:
            log.exception("the node failed")
            self._finished.set_exception(NodeFailedError(f"{type(error).__name__}: {error}"))
        finally:
            self._handling = False

    async def run(self, *, fresh: bool = False) -> None:
        """Run until the node has finished; a NodeFailedError if it did so with an error.

        ``fresh``: set earlier snapshots aside and start from scratch.
        """
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[ev.Finish] = self._loop.create_future()
        async with AsyncExitStack() as closing:  # in the opposite order, whatever fails
            closing.callback(self._store.close)
            closing.push_async_callback(asyncio.to_thread, self._writer.shutdown)
            closing.callback(self._worker.shutdown, wait=False, cancel_futures=True)
            closing.push_async_callback(self._server.stop, 1.0)
            closing.push_async_callback(self.links.close)
            closing.callback(self._finished.cancel)  # so that the node gets no more events
            if self._ledger is not None:
                closing.callback(self._ledger.close)
            self._store.open()
            if self._ledger is not None:
                self._ledger.open()
            if fresh:
                self._store.set_aside()
            snapshot = self._store.load()
            ledger = None if self._ledger is None else self._ledger.load()
            credentials = self._credentials.server_credentials(self.links.handshakes.began)
            self.port = await self._server.start(self._settings.listen, credentials)
            if port := self._settings.metrics.port:
                from gadget_svm.peers.process.status_server import serve_status

                server = await serve_status(self.status, self._settings.metrics.host, port)
                closing.push_async_callback(server.cleanup)
            self._stop_on_signals()
            self.deliver(ev.Started(time.time(), snapshot, ledger))
            self.deliver(ev.CredentialsChanged(self._credentials.expires))
            closing.callback(asyncio.create_task(self._check_now_and_then()).cancel)
            finish = await self._finished
        log.info("finished", extra=fields(reason=finish.reason))
        if finish.error:
            raise NodeFailedError(finish.error)

    def stop(self, reason: str) -> None:
        """Ask the node to leave."""
        self.deliver(ev.StopRequested(reason))

    def status(self) -> dict[str, Any]:
        """Return the status of the node and of this process, as plain values."""
        now = self._loop.time()
        found = {**self._node.status(now), **self.counts, **self._seconds, "links_open": len(self.links)}
        found["untrusted"] = dict(self.links.untrusted)
        for kind in ("certified", "partition"):
            path = model_path(self._settings.model, kind)
            if found.get(kind) and path.is_file():
                found[kind] = {**found[kind], "file": str(path)}
        if self._step_began is not None and now - self._step_began > STUCK_S:
            found["state"] = "stuck"
            found["why"] = [f"a training step has taken {now - self._step_began:.0f} s so far"]
        return found

    # Effects

    def _run_step(self, effect: ev.RunStep) -> None:
        began = self._step_began = self._loop.time()

        def done(future: asyncio.Future[Any]) -> None:
            self._step_began = None
            self._seconds["step_seconds"] += self._loop.time() - began
            error = future.exception()
            if error is None:
                self.deliver(ev.StepDone(future.result()))
            else:
                log.error("a training step failed", exc_info=error)
                self.deliver(ev.StepFailed(f"{type(error).__name__}: {error}"))

        self._loop.run_in_executor(self._worker, effect.step).add_done_callback(done)

    def _write(self, number: int, write: Callable[[Any], Any], content: Any) -> None:
        """Write in a thread, one after the other in the order of the effects."""
        began = self._loop.time()

        def done(future: asyncio.Future[Any]) -> None:
            self._seconds["snapshot_seconds"] += self._loop.time() - began
            error = future.exception()
            if error is None:
                self.counts["snapshots"] += 1
                self.deliver(ev.Saved(number))
            else:
                self.counts["snapshot_failures"] += 1
                log.debug("not written", exc_info=error)
                self.deliver(ev.SaveFailed(number, str(error) or type(error).__name__))

        self._loop.run_in_executor(self._writer, write, content).add_done_callback(done)

    def _save_ledger(self, ledger: Ledger) -> None:
        assert self._ledger is not None, "only nodes of private studies spend"
        self._ledger.save(ledger)

    def _set_timer(self, effect: ev.SetTimer) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(effect.at, self.deliver, ev.TimerFired())

    def _report(self, effect: ev.Report) -> None:
        level = logging.getLevelName(effect.level.upper())
        log.log(level, "%s", effect.text, extra=fields(**effect.fields))

    # Around the loop

    async def _check_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            if self._credentials.reload():
                self.deliver(ev.CredentialsChanged(self._credentials.expires))
            self.links.check_certificates()
            if failed := self.links.handshakes.take_failed():
                self.links.reject("handshake", f"{failed} connections without a certificate of our authority", failed)

    def _stop_on_signals(self) -> None:
        """Leave on these signals, except those that the process was started to ignore, as nohup does with SIGHUP."""
        with suppress(ValueError, RuntimeError):  # not in the main thread: the caller stops the host
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._loop.add_signal_handler(number, self.stop, f"signal {number.name}")
