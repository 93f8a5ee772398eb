"""peer.toml: what one site decides for itself, such as addresses, files and its pace. Owns the keys and their defaults.

What all sites agree on is in study.toml (`gadget_svm.study`). Opens none of the files that it names.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from gadget_svm.peers.names import check_endpoint, check_name
from gadget_svm.peers.settings import NodeSettings, Until
from gadget_svm.study.toml_file import ConfigError, Count, Positive, Section, Values, Where, load_toml
from gadget_svm.study.toml_file import template as toml_template

__all__ = ["ConfigError", "PeerConfig", "load", "template"]

WILDCARDS = ("0.0.0.0", "[::]", "*")
_NEW = "make a study.toml with 'gadget study new', and this file again with 'gadget peer new NAME --overwrite'"
OLDER = {
    "learn": f"what all sites agree on is now in study.toml; {_NEW}",
    "lockstep": f"peers no longer run in lock step; {_NEW}",
    "data.features": f"the number of features is now in study.toml; {_NEW}",
    "data.classes": f"the classes are now in study.toml; {_NEW}",
    "pace.checkpoint": f"the key is now [pace] snapshot; {_NEW}",
}
"""Sections and keys of older formats, and what to do."""


def _reachable(text: str) -> str:
    found = check_endpoint(text)
    if found.rpartition(":")[0] in WILDCARDS:
        raise ValueError(f"{text!r} stands for all of this machine's addresses: give the one by which others reach it")
    return found


Name = Annotated[str, AfterValidator(check_name)]
Listen = Annotated[str, AfterValidator(check_endpoint)]
Address = Annotated[str, AfterValidator(_reachable)]


class Peer(Section):
    """[peer]"""

    name: Name = Field(description="this peer's name; its certificate must have the same")
    study: Where = Field(default=Path("study.toml"), description="what all sites agree on; the same file everywhere")
    listen: Listen = Field(default="0.0.0.0:7400", description="where it listens")
    address: Address | None = Field(
        default=None, description="how others reach it, host:port", examples=["site.example.org:7400"]
    )
    reachable: Literal["auto"] | bool = Field(
        default="auto", description='whether others can connect to it: "auto" (found out), true or false'
    )
    join: Annotated[tuple[Address, ...], Field(strict=False)] = Field(
        default=(), description="peers to contact first; one that answers is enough, its own address does no harm"
    )
    state: Where = Field(default=Path("state"), description="folder for what must survive a restart")
    model: Where = Field(default=Path("model.safetensors"), description="file for the model")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(default=0, description="decides every draw of the algorithm")
    float32: bool = Field(default=False, description="send half as many bytes, with seven digits")

    @model_validator(mode="after")
    def _has_address(self) -> Self:
        if self.address is None and self.reachable is not False:
            raise ValueError("set address, or reachable = false for a site that accepts no connections")
        if self.address is None and not self.join:
            raise ValueError("a site that accepts no connections needs join, the addresses of peers to contact")
        return self


class Tls(Section):
    """[tls]"""

    cert: Where = Field(description="this peer's certificate, from 'gadget certs issue'")
    key: Where = Field(description="its private key: mode 0600, never leaves this machine")
    ca: Where = Field(description="the authority that all peers share")
    revoked: Where = Field(description="the authority's revocation list; a newer one is read while the peer runs")


class Data(Section):
    """[data]"""

    train: Where = Field(description="the rows of this site; they never leave it")
    label: Annotated[int, Field(ge=0)] | str | None = Field(
        default=None, description="the label's column, by name or number, if the file has columns", examples=["label"]
    )
    test: Where | None = Field(default=None, description="rows to measure accuracy on", examples=["test.svm"])
    zero_based: bool | None = Field(
        default=None, description="whether an svmlight file counts its columns from 0", examples=[False]
    )


class Pace(Section):
    """[pace], in seconds"""

    tick: Positive = Field(default=0.05, description="least time between two ticks of the algorithm")
    heartbeat: Positive = Field(default=1.0, description="time between two heartbeats")
    suspect: Positive = Field(default=5.0, description="silence after which a peer is suspected")
    dead: Positive = Field(default=5.0, description="suspicion after which it counts as dead")
    snapshot: Positive = Field(default=10.0, description="least time between two snapshots")
    export: Positive = Field(default=30.0, description="least time between two writings of the model")
    send_rate: Positive = Field(default=600_000.0, description="bytes of weights per second that it sends, on average")
    linger: Positive = Field(default=60.0, description="how long a certified peer waits for others before it ends")
    stop_after_seconds: Positive | None = Field(default=None, description="stop by itself", examples=[3600.0])
    stop_after_ticks: Count | None = Field(default=None, description="stop by itself", examples=[100_000])

    @model_validator(mode="after")
    def _suspects_late_enough(self) -> Self:
        if self.suspect <= self.heartbeat:
            raise ValueError(
                f"suspect ({self.suspect:g}) must be longer than heartbeat ({self.heartbeat:g}), or all are suspected"
            )
        return self


class Limits(Section):
    """[limits]"""

    message_rate: Positive = Field(default=200.0, description="messages a second from one sender")
    burst: Count = Field(default=400, description="messages at once from one sender")
    connections: Count = Field(default=256, description="open connections")
    members: Annotated[int, Field(ge=2)] = Field(default=10_000, description="peers to remember")


class Metrics(Section):
    """[metrics]"""

    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=0, description="for /metrics, /healthz and /status.json; 0: none"
    )
    host: Annotated[str, Field(min_length=1)] = Field(
        default="127.0.0.1", description="they are plain HTTP: keep them local"
    )


class Log(Section):
    """[log]"""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error"
    )
    format: Literal["json", "text"] = Field(default="json", description='"json" or "text"')


class PeerConfig(Section):
    """A peer.toml."""

    peer: Peer
    tls: Tls
    data: Data
    pace: Pace = Pace()
    limits: Limits = Limits()
    metrics: Metrics = Metrics()
    log: Log = Log()

    @model_validator(mode="after")
    def _different_ports(self) -> Self:
        if self.metrics.port and self.peer.listen.endswith(f":{self.metrics.port}"):
            raise ValueError(f"[metrics] port and [peer] listen are both {self.metrics.port}: change one of them")
        return self

    @property
    def local_address(self) -> str:
        """Where this machine reaches the peer."""
        host, _, port = self.peer.listen.rpartition(":")
        return f"{ ({'[::]': '[::1]'}.get(host, '127.0.0.1') if host in WILDCARDS else host) }:{port}"

    def missing(self) -> list[str]:
        """Return a sentence for each file that it names and that does not exist."""
        files = {f"tls.{key}": path for key, path in self.tls} | {"peer.study": self.peer.study}
        files["data.train"] = self.data.train
        if self.data.test is not None:
            files["data.test"] = self.data.test
        return [f"{key}: there is no file {path}" for key, path in files.items() if not path.is_file()]

    def node_settings(self, until: Until = "stopped") -> NodeSettings:
        """Return what the node needs to know of this file."""
        peer, pace = self.peer, self.pace
        return NodeSettings(
            name=peer.name, address=peer.address or "",
            reachable=None if peer.reachable == "auto" else peer.reachable,
            join=tuple(each for each in peer.join if each != peer.address), seed=peer.seed, float32=peer.float32,
            tick=pace.tick, heartbeat=pace.heartbeat, suspect=pace.suspect, dead=pace.dead,
            snapshot_interval=pace.snapshot, export_interval=pace.export, send_rate=pace.send_rate,
            max_members=self.limits.members, until=until, linger=pace.linger,
            stop_after_ticks=pace.stop_after_ticks, stop_after_seconds=pace.stop_after_seconds,
        )  # fmt: skip


def load(path: str | Path) -> PeerConfig:
    """Read a peer.toml; relative paths in it are relative to its folder.

    Raises
    ------
    ConfigError
        The file does not exist, something in it is wrong, or it has an older format; the message names the fix.
    """
    return load_toml(path, "peer.toml, as 'gadget peer new' writes it", PeerConfig, OLDER)


def template(name: str, values: Values) -> str:
    """Return a commented peer.toml for the peer ``name``, with these values by section and key."""
    first: dict[str, dict[str, Any]] = {
        "peer": {"name": name},
        "tls": {"cert": f"{name}.pem", "key": f"{name}.key", "ca": "ca.pem", "revoked": "revoked.pem"},
    }
    given = {
        section: {key: value for key, value in keys.items() if value is not None} for section, keys in values.items()
    }
    return toml_template(PeerConfig, {s: {**first.get(s, {}), **given.get(s, {})} for s in {**first, **given}})
