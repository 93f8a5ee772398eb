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


def _key(text: str, default: Any = ..., example: Any = None) -> Any:
    """Return a key, with its comment; one that may be missing has an example."""
    return Field(default=default, description=text, examples=[example])


Name = Annotated[str, AfterValidator(check_name)]
Listen = Annotated[str, AfterValidator(check_endpoint)]
Address = Annotated[str, AfterValidator(_reachable)]
Level = Literal["debug", "info", "warning", "error"]


class Peer(Section):
    """The section [peer] of peer.toml."""

    name: Name = _key("this peer's name; its certificate must have the same")
    study: Where = _key("what all sites agree on; the same file everywhere", Path("study.toml"))
    listen: Listen = _key("where it listens", "0.0.0.0:7400")
    address: Address | None = _key("how others reach it, host:port", None, "site.example.org:7400")
    reachable: Literal["auto"] | bool = _key(
        'whether others can connect to it: "auto" (found out), true or false', "auto"
    )
    join: Annotated[tuple[Address, ...], Field(strict=False)] = _key(
        "peers to contact first; one that answers is enough, its own address does no harm", ()
    )
    state: Where = _key("folder for what must survive a restart", Path("state"))
    model: Where = _key("file for the model", Path("model.safetensors"))
    ledger: Where = _key("what the rows have spent in all private studies; never delete it", Path("ledger.json"))
    seed: Annotated[int, Field(ge=0, lt=2**63)] = _key("decides every draw of the algorithm", 0)
    float32: bool = _key("send vectors as float32: half the bytes, about seven digits", False)

    @model_validator(mode="after")
    def _has_address(self) -> Self:
        if self.address is None and self.reachable is not False:
            raise ValueError("set [peer] address, or [peer] reachable = false for a site that accepts no connections")
        if self.address is None and not self.join:
            raise ValueError("a site that accepts no connections needs [peer] join, the addresses of peers to contact")
        return self


class Tls(Section):
    """The section [tls] of peer.toml."""

    cert: Where = _key("this peer's certificate, from 'gadget certs issue'")
    key: Where = _key("its private key: mode 0600, never leaves this machine")
    ca: Where = _key("the authority that all peers share")
    revoked: Where = _key("the authority's revocation list; a newer one is read while the peer runs")


class Data(Section):
    """The section [data] of peer.toml."""

    train: Where = _key("the rows of this site; they never leave it")
    label: Annotated[int, Field(ge=0)] | str | None = _key(
        "the label's column, by name or number, if the file has columns", None, "label"
    )
    test: Where | None = _key("rows to measure accuracy on", None, "test.svm")
    zero_based: bool | None = _key("whether an svmlight file counts its columns from 0", None, False)


class Privacy(Section):
    """[privacy], for private studies"""

    epsilon_limit: Positive | None = _key("take no part in a study that would bring the total above this", None, 4.0)
    delta: Annotated[float, Field(gt=0, lt=0.1)] = _key("of that limit", 1e-6)


class Pace(Section):
    """The section [pace] of peer.toml; times are in seconds."""

    tick: Positive = _key("least time between two ticks of the algorithm", 0.05)
    heartbeat: Positive = _key("time between two heartbeats", 1.0)
    suspect: Positive = _key("silence after which a peer is suspected", 5.0)
    dead: Positive = _key("suspicion after which it counts as dead", 5.0)
    snapshot: Positive = _key("least time between two snapshots", 10.0)
    export: Positive = _key("least time between two writings of the model", 30.0)
    send_rate: Positive = _key("bytes of weights per second that it sends, on average", 600_000.0)
    linger: Positive = _key("how long a certified peer waits for others before it ends", 60.0)
    stop_after_seconds: Positive | None = _key("stop by itself", None, 3600.0)
    stop_after_ticks: Count | None = _key("stop by itself", None, 100_000)

    @model_validator(mode="after")
    def _suspects_late_enough(self) -> Self:
        if self.suspect <= self.heartbeat:
            raise ValueError(
                f"[pace] suspect ({self.suspect:g}) must be longer than [pace] heartbeat ({self.heartbeat:g}), or all "
                "are suspected"
            )
        return self


class Limits(Section):
    """The section [limits] of peer.toml."""

    message_rate: Positive = _key("messages a second from one sender", 200.0)
    burst: Count = _key("messages at once from one sender", 400)
    connections: Count = _key("open connections", 256)
    members: Annotated[int, Field(ge=2)] = _key("peers to remember", 10_000)


class Metrics(Section):
    """The section [metrics] of peer.toml."""

    port: Annotated[int, Field(ge=0, le=65535)] = _key("for /metrics, /healthz and /status.json; 0: none", 0)
    host: Annotated[str, Field(min_length=1)] = _key("they are plain HTTP: keep them local", "127.0.0.1")


class Log(Section):
    """The section [log] of peer.toml."""

    level: Level = _key("debug, info, warning or error", "info")
    format: Literal["json", "text"] = _key('"json" or "text"', "json")


class PeerConfig(Section):
    """A peer.toml."""

    peer: Peer
    tls: Tls
    data: Data
    privacy: Privacy = Privacy()
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
        peer, pace = self.peer, dict(self.pace)
        return NodeSettings(
            name=peer.name, address=peer.address or "",
            reachable=None if peer.reachable == "auto" else peer.reachable,
            join=tuple(each for each in peer.join if each != peer.address), seed=peer.seed, float32=peer.float32,
            snapshot_interval=pace.pop("snapshot"), export_interval=pace.pop("export"),
            max_members=self.limits.members, until=until, epsilon_limit=self.privacy.epsilon_limit,
            limit_delta=self.privacy.delta, **pace,
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
    tls = {"cert": f"{name}.pem", "key": f"{name}.key", "ca": "ca.pem", "revoked": "revoked.pem"}
    merged: dict[str, dict[str, Any]] = {"peer": {"name": name}, "tls": tls}
    for section, keys in values.items():
        merged.setdefault(section, {}).update({key: value for key, value in keys.items() if value is not None})
    return toml_template(PeerConfig, merged)
