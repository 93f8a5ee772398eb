"""A town of peers for tests: an authority, sites with small files, configurations, and peers that live in one loop.

Ill-meant callers are here too: a channel with any credentials and no limits of its own."""

import asyncio
import contextlib
import json
import random
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import scipy.sparse as sp
from gadget_svm.peers.identity import Identity
from gadget_svm.peers.member import Member
from gadget_svm.peers.messages import SERVICE, Letter
from gadget_svm.peers.peer import Peer
from sklearn.datasets import dump_svmlight_file

from gadget_svm.peers import certs, config

QUICK = {"tick": 0.01, "heartbeat": 0.1, "suspect": 2.0, "dead": 2.0, "checkpoint": 30.0, "lam": 0.01, "level": "error"}
"""The pace of peers in tests: all a test waits for happens within a second or two."""


def rows(n: int = 40, d: int = 12, seed: int = 0, density: float = 1.0) -> tuple[sp.csr_matrix, np.ndarray]:
    """Rows of a noisy linear rule that is the same for every seed."""
    rng = np.random.default_rng([7, seed])
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    rule = np.random.default_rng(d).normal(size=d)
    y = np.where(X @ rule + 0.3 * rng.normal(size=n) > 0, 1, -1)
    y[:2] = (-1, 1)
    X[:, -1] += 1e-9  # the last feature occurs, so that a file knows its width
    return sp.csr_matrix(X), y


def free_port() -> int:
    """A port nobody listens on now, below those that the system gives to outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(12_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Town:
    """One authority's folder, and a folder for every site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        certs.init_ca(folder / "ca")

    def issue(self, name: str, **options: Any) -> Path:
        """The folder with the certificate of ``name``, issued when first asked for."""
        bundle = self.folder / "ca" / "peers" / name
        if options or not bundle.exists():
            certs.issue(self.folder / "ca", name, ["127.0.0.1", "localhost"], **options)
        return bundle

    def identity(self, name: str) -> Identity:
        """The credentials of ``name``."""
        return Identity.load(*self.files(name).values())

    def files(self, name: str) -> dict[str, Path]:
        """The four files of ``name``."""
        bundle = self.issue(name)
        places = {"cert": f"{name}.pem", "key": f"{name}.key", "ca": "ca.pem", "revoked": "revoked.pem"}
        return {key: bundle / file for key, file in places.items()}

    def revoke(self, name: str, *told: str) -> None:
        """Revoke the certificates of ``name`` and bring the new list to those who are told."""
        certs.revoke(self.folder / "ca", name)
        for other in told:
            self.files(other)["revoked"].write_bytes((self.folder / "ca" / "revoked.pem").read_bytes())

    def config(
        self, name: str, data: tuple[Any, Any] | None = None, *, join: tuple[str, ...] = (), **values: Any
    ) -> config.PeerConfig:
        """A peer.toml for ``name``, written and read; anything in it may be given by its key."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        X, y = rows() if data is None else data
        dump_svmlight_file(X, y, str(home / "train.svm"), zero_based=False)
        address = f"127.0.0.1:{free_port()}"
        given = {"address": address, "listen": address, "train": "train.svm", "features": X.shape[1], **QUICK}
        text = config.template(name, **{**given, **self.files(name), "join": list(join), **values})
        (home / "peer.toml").write_text(text)
        return config.load(home / "peer.toml")

    def peer(self, name: str, data: tuple[Any, Any] | None = None, **values: Any) -> Peer:
        """A peer that is not started yet."""
        return Peer(self.config(name, data, **values))

    def peers(self, names: str, datas: list[Any] | None = None, **values: Any) -> list[Peer]:
        """Peers by one letter each, who all join the first."""
        made: list[Peer] = []
        for i, name in enumerate(names):
            join = (made[0].address,) if made else ()
            made.append(self.peer(name, rows(seed=i) if datas is None else datas[i], join=join, **values))
        return made


@contextlib.asynccontextmanager
async def living(*peers: Peer) -> AsyncIterator[None]:
    """The peers live inside; whatever ended one of them is raised at the end."""
    tasks = [asyncio.create_task(peer.live()) for peer in peers]
    try:
        for peer, task in zip(peers, tasks, strict=True):
            await until(lambda p=peer, t=task: t.done() or listening(p))
            if task.done():
                task.result()
        yield
    finally:
        for peer in peers:
            peer.stop("the test is over")
        await asyncio.gather(*tasks)


def listening(peer: Peer) -> bool:
    """Whether it is up and has taken a step, if it can."""
    return peer.keeper.saved > 0 and (peer.learner is None or peer.ticks > 0)


async def until(condition: Callable[[], Any], patience: float = 120.0) -> None:
    """Wait for something to become true; the first to learn may compile a kernel."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.01)


async def goes_on(peer: Peer, ticks: int = 10) -> None:
    """The peer learns on, and its weights are numbers."""
    goal = peer.ticks + ticks
    await until(lambda: peer.ticks >= goal)
    assert np.isfinite(peer.learner.model()).all()


def refused(peer: Peer) -> dict[str, int]:
    """What the peer turned away, by reason, as its status shows it."""
    return json.loads(peer.status())["refused"]


class Caller:
    """A client of one peer, with its own credentials or none, that sends any bytes."""

    def __init__(self, peer: Peer, credentials: Any) -> None:
        limits = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
        ]
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(peer.address, options=limits)
        else:
            options = [*limits, ("grpc.ssl_target_name_override", peer.name)]
            self.channel = grpc.aio.secure_channel(peer.address, credentials, options=options)

    async def __aenter__(self) -> "Caller":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    async def __call__(self, method: str, data: bytes, timeout: float = 20.0) -> bytes:
        answer: bytes = await self.channel.unary_unary(f"/{SERVICE}/{method}")(data, timeout=timeout)
        return answer

    async def code(self, method: str, data: bytes) -> grpc.StatusCode:
        """How the call ends."""
        try:
            await self(method, data)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK


def letter(sender: str, peer: Peer, **changes: Any) -> Letter:
    """A letter to a peer as one of its run would write it, but for the changes."""
    size, narrow = peer.dimension, peer.charter.algorithm == "pdmm"
    said = {
        "run": peer.run, "sender": sender, "incarnation": 1000, "receiver": peer.name, "receiver_incarnation": 0,
        "seq": 0, "time": 1, "vector": np.full(size, 0.01), "weight": 1.0, "note": 1.0 if narrow else None,
    }  # fmt: skip
    said["members"] = (Member(sender, "127.0.0.1:9", changes.get("incarnation", 1000), 1, rows=30.0, slack=-1.0),)
    return Letter(**{**said, **changes})
