"""What a peer writes: its state, so that a crash costs little, and its model. Owns when, and what was written last."""

from __future__ import annotations

import asyncio
import math
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from gadget_svm.peers import checkpoint, vault
from gadget_svm.peers.calls import PeerError
from gadget_svm.peers.export import export
from gadget_svm.peers.scale import Scale

if TYPE_CHECKING:
    from gadget_svm.peers.peer import Peer

Floats = NDArray[np.float64]


class Keeper:
    """Writes between two ticks what one peer has learned; a disk that refuses is a trouble, not an end.

    What is not made of finite numbers is a trouble too, and takes the place of no file. One thread writes all there is,
    in the order in which it was learned: what a slow disk delays takes the place of nothing later. Close it before the
    folder is given back, or leave it as a context.
    """

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.saved = self.exported = -math.inf
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="keeper")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for what is being written; there is no more. Again is no harm."""
        self._writer.shutdown()

    async def save(self) -> None:
        """The state, for the next start."""
        peer = self.peer
        try:
            seconds = await (await self._begun())
        except (checkpoint.CheckpointError, vault.VaultError) as error:
            peer.metrics.checkpoint_failures.inc()
            peer.complain("checkpoint", str(error))
            return
        self.saved = time.monotonic()
        peer.trouble.pop("checkpoint", None)
        peer.metrics.checkpoints.inc()
        peer.metrics.checkpoint_time.set_to_current_time()
        peer.metrics.checkpoint_seconds.observe(seconds)

    async def _begun(self) -> asyncio.Future[float]:
        """Pack the state as it is, and queue it before anybody else can: then the last queued is the newest."""
        peer, loop = self.peer, asyncio.get_running_loop()
        async with peer.study.between_ticks:
            addresses = {m.name: m.address for m in map(peer.members.get, peer.members.alive()) if m.address}
            packed = vault.pack(
                peer.charter, peer.fingerprint, peer.members.me.incarnation, {**peer.former, **addresses},
                peer.scaling, peer.learner, peer.discretion, peer.legacies.kept, peer.members.numbers(),
                peer.mailbox.voices(), learned=not peer.in_vain,
            )  # fmt: skip
            return loop.run_in_executor(self._writer, self._write_state, *packed)

    def _write_state(self, arrays: dict[str, Any], about: dict[str, Any]) -> float:
        start = time.perf_counter()
        checkpoint.save(self.peer.config.peer.state, arrays, about)
        return time.perf_counter() - start

    async def export(self) -> None:
        """The model, for `gadget predict`."""
        peer = self.peer
        loop = asyncio.get_running_loop()
        async with peer.study.between_ticks:
            if peer.learner is None or peer.scaling.scale is None:
                return
            learned = (peer.learner.model(), peer.scaling.scale, peer.ticks)  # what belongs together
            written = loop.run_in_executor(self._writer, self.write_model, *learned)
        try:
            await written
        except OSError as error:
            peer.complain("model", f"cannot write {peer.config.peer.model}: {error.strerror or error}")
            return
        except PeerError as error:
            peer.complain("model", str(error))
            return
        self.exported = time.monotonic()
        peer.trouble.pop("model", None)

    def write_model(self, weights: Floats, scale: Scale, ticks: int) -> Path:
        """As it is after so many ticks; where it is then. A PeerError if it is no model."""
        peer = self.peer
        if not np.isfinite(weights).all():
            raise PeerError(f"the weights are not finite: no model is written to {peer.config.peer.model}")
        return export(
            peer.config.peer.model, weights, scale, peer.charter, name=peer.name, ticks=ticks, columns=peer.site.columns
        )

    async def go_on(self) -> None:
        """Both, now and then, for ever."""
        peer, pace = self.peer, self.peer.config.pace
        save_at = time.monotonic() + pace.checkpoint
        export_at = time.monotonic() + min(pace.export, 5.0)
        while True:
            await asyncio.sleep(min(1.0, pace.checkpoint, pace.export))
            now = time.monotonic()
            if now >= save_at or peer.unsaved:
                peer.unsaved = False
                await self.save()
                save_at = time.monotonic() + pace.checkpoint
            if now >= export_at:
                await self.export()
                export_at = time.monotonic() + pace.export
