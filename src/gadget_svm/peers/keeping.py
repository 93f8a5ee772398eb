"""What a peer writes: its state, so that a crash costs little, and its model. Owns when, and what was written last."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.peers import checkpoint, vault
from gadget_svm.peers.calls import PeerError
from gadget_svm.peers.export import export

if TYPE_CHECKING:
    from gadget_svm.peers.peer import Peer

Floats = NDArray[np.float64]


class Keeper:
    """Writes between two ticks what one peer has learned; a disk that refuses is a trouble, not an end.

    What is not made of finite numbers is a trouble too, and takes the place of no file.
    """

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.saved = self.exported = -math.inf

    async def save(self) -> None:
        """The state, for the next start."""
        peer = self.peer
        try:
            arrays, about = await self._packed()
            start = time.perf_counter()
            await asyncio.to_thread(checkpoint.save, peer.config.peer.state, arrays, about)
        except (checkpoint.CheckpointError, vault.VaultError) as error:
            peer.metrics.checkpoint_failures.inc()
            peer.complain("checkpoint", str(error))
            return
        self.saved = time.monotonic()
        peer.trouble.pop("checkpoint", None)
        peer.metrics.checkpoints.inc()
        peer.metrics.checkpoint_time.set_to_current_time()
        peer.metrics.checkpoint_seconds.observe(time.perf_counter() - start)

    async def _packed(self) -> tuple[dict[str, Any], dict[str, Any]]:
        peer = self.peer
        addresses = {m.name: m.address for m in map(peer.members.get, peer.members.alive()) if m.address}
        async with peer.study.between_ticks:
            return vault.pack(
                peer.charter, peer.fingerprint, peer.members.me.incarnation, {**peer.former, **addresses},
                peer.scaling, peer.learner, peer.discretion, peer.legacies.kept, peer.members.numbers(),
                peer.mailbox.voices(), learned=not peer.in_vain,
            )  # fmt: skip

    async def export(self) -> None:
        """The model, for `gadget predict`."""
        peer = self.peer
        if peer.learner is None or peer.scaling.scale is None:
            return
        async with peer.study.between_ticks:
            weights, ticks = peer.learner.model(), peer.ticks
        try:
            await asyncio.to_thread(self.write_model, weights, ticks)
        except OSError as error:
            peer.complain("model", f"cannot write {peer.config.peer.model}: {error.strerror or error}")
            return
        except PeerError as error:
            peer.complain("model", str(error))
            return
        self.exported = time.monotonic()
        peer.trouble.pop("model", None)

    def write_model(self, weights: Floats, ticks: int) -> Path:
        """As it is after so many ticks; where it is then. A PeerError if it is no model."""
        peer = self.peer
        if not np.isfinite(weights).all():
            raise PeerError(f"the weights are not finite: no model is written to {peer.config.peer.model}")
        assert peer.scaling.scale is not None
        return export(
            peer.config.peer.model, weights, peer.scaling.scale, peer.charter, name=peer.name, ticks=ticks,
            columns=peer.site.columns,
        )  # fmt: skip

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
