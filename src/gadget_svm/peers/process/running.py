"""A peer as a process: from its files to a host that runs, and what its errors mean for whoever started it."""

import asyncio
import logging
import random
import sys

from gadget_svm.peers.node import Node
from gadget_svm.peers.process.config import ConfigError, PeerConfig
from gadget_svm.peers.process.credential_files import CredentialFiles
from gadget_svm.peers.process.host import HostSettings, PeerHost
from gadget_svm.peers.process.ledger_file import LedgerFile
from gadget_svm.peers.process.logs import setup_logging
from gadget_svm.peers.process.model_export import write_model
from gadget_svm.peers.process.site_files import load_site
from gadget_svm.peers.process.snapshot_store import SnapshotError, SnapshotStore
from gadget_svm.peers.security.credentials import address_problem
from gadget_svm.peers.settings import Until
from gadget_svm.peers.wire.limits import Limits
from gadget_svm.study.study import Study
from gadget_svm.study.study_file import load_study

log = logging.getLogger(__name__)


class BrokenError(RuntimeError):
    """What ended a peer although its files are right: another start may succeed."""


def run_peer(config: PeerConfig, study: Study | None = None, *, fresh: bool = False, until: Until = "stopped") -> int:
    """Run a peer until it has left; return 0.

    Parameters
    ----------
    config : PeerConfig
        Its peer.toml.
    study : Study, optional
        By default, the one that the peer.toml names.
    fresh : bool
        Set the saved state aside and start from scratch.
    until : {"stopped", "certified", "finished"}
        Whether to leave when the study has ended.

    Raises
    ------
    ValueError
        A file or a setting is wrong; the message names the fix.
    BrokenError
        The address was not free, or the peer failed while it ran.
    """
    setup_logging(config.log.level, config.log.format, config.peer.name, sys.stderr)
    if missing := config.missing():
        raise ConfigError("; ".join(missing))
    host = make_host(config, load_study(config.peer.study) if study is None else study, until)
    try:
        asyncio.run(host.run(fresh=fresh))
    except SnapshotError as error:
        raise ConfigError(str(error)) from error
    except Exception as error:
        text = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
        raise BrokenError(" ".join(text.split())) from error
    return 0


def make_host(config: PeerConfig, study: Study, until: Until = "stopped") -> PeerHost:
    """Read the rows and the certificates; return a host that is not running yet."""
    credentials = CredentialFiles.of(config)
    if config.peer.address and (problem := address_problem(config.tls.cert, config.peer.address)):
        log.warning("%s", problem)
    ledger = LedgerFile(config.peer.ledger) if study.is_private else None
    node = Node(config.node_settings(until), study, load_site(config, study), random.SystemRandom())
    return PeerHost(
        node, HostSettings(config.peer.listen, config.limits, config.metrics, config.peer.model), Limits.of(study),
        credentials, SnapshotStore(config.peer.state), lambda document: write_model(config.peer.model, document, study),
        ledger,
    )  # fmt: skip
