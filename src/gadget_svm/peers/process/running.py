"""A peer as a process: set-up, signals, exit code."""

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gadget_svm.peers.calls import PeerError
from gadget_svm.peers.checkpoint import CheckpointError
from gadget_svm.peers.config import ConfigError, PeerConfig
from gadget_svm.peers.logs import setup_logging
from gadget_svm.peers.membership import Superseded
from gadget_svm.peers.vault import VaultError

if TYPE_CHECKING:
    from gadget_svm.peers.peer import Peer


class Broken(RuntimeError):  # noqa: N818 - what happened
    """What ended a peer though its files and terms are right: another start may do better."""


def run_peer(config: PeerConfig, fresh: bool = False) -> int:
    """Run until it has left; 0 if in good order. What is wrong with files or terms is an exception with a sentence, and
    anything else that ends it is `Broken`: its address was not free or not there yet, or it failed while it ran."""
    setup_logging(config.log.level, config.log.format, config.peer.name, sys.stderr)
    missing = config.missing()
    if missing:
        raise ConfigError("; ".join(missing))
    if config.lockstep is not None:
        from gadget_svm.peers.lockstep import run_lockstep

        asyncio.run(run_lockstep(config))
        return 0
    asyncio.run(_live(config, fresh))
    return 0


async def _live(config: PeerConfig, fresh: bool) -> None:
    from gadget_svm.peers.peer import Peer

    peer = Peer(config)
    with _signals(peer):
        try:
            await peer.live(fresh)
        except PeerError:
            raise
        except (VaultError, CheckpointError, Superseded) as error:
            raise ConfigError(str(error)) from error
        except Exception as error:
            said = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
            raise Broken(" ".join(said.split())) from error


@contextlib.contextmanager
def _signals(peer: "Peer"):  # type: ignore[no-untyped-def]
    """Those that let it leave, except signals it was started to ignore, as nohup does with SIGHUP."""
    loop, leaving = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heeded = [number for number in leaving if signal.getsignal(number) is not signal.SIG_IGN]
    for name in heeded:
        loop.add_signal_handler(name, peer.stop, f"signal {name.name}")
    try:
        yield
    finally:
        for name in heeded:
            loop.remove_signal_handler(name)


def export_saved(config: PeerConfig) -> Path:
    """The model of the last checkpoint, as a model file."""
    from gadget_svm.peers.peer import Peer

    return Peer(config).export_saved()
