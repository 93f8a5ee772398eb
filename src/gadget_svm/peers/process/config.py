"""peer.toml: what a peer is told before it starts. Owns the keys, their defaults and what is wrong with them.

Reads that one file and opens none of those it names. The template is made from the same fields, so that it cannot rot.
"""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from pydantic_core import ErrorDetails, PydanticUndefined

from gadget_svm.core.lookup import unknown
from gadget_svm.peers.naming import check_endpoint, check_name

WILDCARDS = ("0.0.0.0", "[::]", "*")


class ConfigError(ValueError):
    """What is wrong with a peer.toml: the file, the key, the fault and what is allowed."""


def _absolute(path: Path, info: ValidationInfo) -> Path:
    """Relative to the file, not to where the program was started."""
    folder: Path = (info.context or {}).get("folder", Path())
    return folder / path.expanduser()


def _reachable(text: str) -> str:
    found = check_endpoint(text)
    if found.rpartition(":")[0] in WILDCARDS:
        raise ValueError(f"{text!r} stands for all of this machine's addresses: give the one others reach it by")
    return found


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("only printable characters")
    return text


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError("each only once")
    return values


Name = Annotated[str, AfterValidator(check_name)]
Listen = Annotated[str, AfterValidator(check_endpoint)]
Address = Annotated[str, AfterValidator(_reachable)]
Where = Annotated[Path, Field(strict=False), AfterValidator(_absolute)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Label = int | float | str


class Section(BaseModel):
    """Values of the right type and of known names; nothing is changed later."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, validate_default=True)


class Peer(Section):
    """[peer]"""

    name: Name = Field(description="who this peer is; its certificate must say the same")
    listen: Listen = Field(default="0.0.0.0:7400", description="where it listens")
    address: Address = Field(description="how others reach it, host:port")
    join: Annotated[tuple[Address, ...], Field(strict=False)] = Field(
        default=(), description="peers to ask first; one that answers is enough, its own address does no harm"
    )
    state: Where = Field(default=Path("state"), description="folder for what must survive a restart")
    model: Where = Field(default=Path("model.safetensors"), description="file for the model, written again and again")


class Tls(Section):
    """[tls]"""

    cert: Where = Field(description="this peer's certificate, from 'gadget certs issue'")
    key: Where = Field(description="its private key: mode 0600, never leaves this machine")
    ca: Where = Field(description="the authority all peers share")
    revoked: Where = Field(description="the authority's revocation list; a newer one is taken up while running")


class Data(Section):
    """[data]"""

    train: Where = Field(description="the rows of this site; they never leave it")
    label: Annotated[int, Field(ge=0)] | str | None = Field(
        default=None, description="the label's column, by name or number, if the file has columns", examples=["label"]
    )
    test: Where | None = Field(default=None, description="rows to measure accuracy on", examples=["test.svm"])
    features: Count | None = Field(default=None, description="how many features all sites agree on", examples=[123])
    classes: Annotated[tuple[Label, ...], Field(strict=False, min_length=2), AfterValidator(_distinct)] | None = Field(
        default=None, description="all labels there are, for sites that lack some", examples=[[-1, 1]]
    )
    zero_based: bool | None = Field(
        default=None, description="how an svmlight file counts its columns", examples=[False]
    )


class Learn(Section):
    """[learn]"""

    run: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_printable)] = Field(
        default="default", description="the run's name; only peers of one run and one [learn] exchange weights"
    )
    lam: Positive = Field(description="the regulariser's weight, the same everywhere")
    algorithm: Literal["pdmm", "gadget"] = Field(default="pdmm", description='"pdmm" or "gadget"')
    intercept: bool = Field(default=True, description="a constant feature that travels with the weights")
    scaling: Literal["none", "max-abs", "deviation"] = Field(
        default="none", description='"none", or by statistics of all sites: "max-abs" or "deviation"'
    )
    sites: Annotated[int, Field(ge=0)] = Field(
        default=0, description="sites whose statistics scaling waits for, the same everywhere"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(default=0, description="decides every draw")
    degree: Annotated[int, Field(ge=2, multiple_of=2)] = Field(
        default=4, description="neighbours of a peer, an even number"
    )
    float32: bool = Field(default=False, description="send half as many bytes, at the cost of digits")

    @model_validator(mode="after")
    def _scaled(self) -> Self:
        if self.scaling != "none" and self.sites < 1:
            raise ValueError(
                f"scaling = {self.scaling!r} needs sites, the number of sites whose statistics it waits for"
            )
        return self


class Pace(Section):
    """[pace], in seconds"""

    tick: Positive = Field(default=0.05, description="between ticks, at least")
    heartbeat: Positive = Field(default=1.0, description="between two signs of life")
    suspect: Positive = Field(default=5.0, description="silence after which a peer is suspected")
    dead: Positive = Field(default=5.0, description="suspicion after which it is given up")
    checkpoint: Positive = Field(default=10.0, description="between two checkpoints")
    export: Positive = Field(default=30.0, description="between two writings of the model")
    stop_after_seconds: Positive | None = Field(default=None, description="stop by itself", examples=[3600.0])
    stop_after_ticks: Count | None = Field(default=None, description="stop by itself", examples=[100_000])

    @model_validator(mode="after")
    def _patient(self) -> Self:
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
    members: Annotated[int, Field(ge=2)] = Field(default=10_000, description="peers to keep in mind")


class Metrics(Section):
    """[metrics]"""

    port: Annotated[int, Field(ge=0, le=65535)] = Field(default=0, description="for /metrics and /healthz; 0: none")
    host: Annotated[str, Field(min_length=1)] = Field(
        default="127.0.0.1", description="they are plain HTTP: keep them local"
    )


class Log(Section):
    """[log]"""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error"
    )
    format: Literal["json", "text"] = Field(default="json", description='"json" or "text"')


class Lockstep(Section):
    """[lockstep]: a fixed network whose peers wait for each other, for tests"""

    node: Annotated[int, Field(ge=0)] = Field(description="this peer's number")
    topology: Annotated[str, Field(min_length=1)] = Field(description="such as ring")
    nodes: Count = Field(description="how many there are")
    ticks: Count = Field(description="when to stop")
    addresses: Annotated[tuple[Address, ...], Field(strict=False)] = Field(description="of node 0, 1, ...")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.node >= self.nodes:
            raise ValueError(f"node {self.node} of {self.nodes}: nodes are numbered from 0")
        if len(self.addresses) != self.nodes:
            raise ValueError(f"{len(self.addresses)} addresses for {self.nodes} nodes: give one for each")
        return self


class PeerConfig(Section):
    """All of a peer.toml."""

    peer: Peer
    tls: Tls
    data: Data
    learn: Learn
    pace: Pace = Pace()
    limits: Limits = Limits()
    metrics: Metrics = Metrics()
    log: Log = Log()
    lockstep: Lockstep | None = None

    @model_validator(mode="after")
    def _ports(self) -> Self:
        if self.metrics.port and self.peer.listen.endswith(f":{self.metrics.port}"):
            raise ValueError(f"metrics.port and peer.listen are both {self.metrics.port}: choose another for one")
        return self

    def missing(self) -> list[str]:
        """The files it names that are not there, a sentence each."""
        files = {**{f"tls.{key}": path for key, path in self.tls}, "data.train": self.data.train}
        if self.data.test is not None:
            files["data.test"] = self.data.test
        return [f"{key}: there is no file {path}" for key, path in files.items() if not path.is_file()]


SECTIONS: dict[str, type[Section]] = {
    "peer": Peer,
    "tls": Tls,
    "data": Data,
    "learn": Learn,
    "pace": Pace,
    "limits": Limits,
    "metrics": Metrics,
    "log": Log,
    "lockstep": Lockstep,
}


def load(path: str | Path) -> PeerConfig:
    """Read a peer.toml; relative paths in it are relative to its folder."""
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"{source} does not exist: name a peer.toml") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{source} is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8"
        ) from error
    except OSError as error:
        raise ConfigError(f"{source} cannot be read ({error.strerror}): name a peer.toml") from error
    return parse(text, str(source), source.parent.absolute())


def parse(text: str, source: str, folder: Path) -> PeerConfig:
    """The text of a peer.toml; ``source`` is what errors call it."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        end = f"at line {text.rstrip().count(chr(10)) + 1}, the last"
        raise ConfigError(f"{source}: {str(error).replace('at end of document', end)}") from error
    try:
        return PeerConfig.model_validate(values, context={"folder": folder})
    except ValidationError as error:
        raise ConfigError(f"{source}: " + "; ".join(dict.fromkeys(map(_sentence, error.errors())))) from error


def template(name: str, **values: Any) -> str:
    """A commented peer.toml for ``name``; ``values`` by key, such as address="a.example.org:7400" or lam=0.001."""
    first: dict[str, Any] = {"address": f"{name}:7400", "train": "train.svm", "lam": 1e-4, "ca": "ca.pem"}
    first |= {"cert": f"{name}.pem", "key": f"{name}.key", "revoked": "revoked.pem"}
    known = {key: section for section, model in SECTIONS.items() for key in model.model_fields}
    for key in values:
        if key not in known:
            raise ConfigError(unknown("key", key, known))
    given = {**first, **{key: value for key, value in values.items() if value is not None}, "name": name}
    wanted = [section for section in SECTIONS if section != "lockstep" or any(known[key] == section for key in given)]
    text = "\n".join(line for section in wanted for line in (*_lines(section, given), "")).rstrip() + "\n"
    parse(text, "the template", Path())
    return text


def _lines(section: str, given: dict[str, Any]) -> Iterator[str]:
    """A section: its keys with their defaults; those that are optional and not given stand behind a #."""
    yield f"[{section}]"
    for key, about in SECTIONS[section].model_fields.items():
        value = given.get(key, about.default)
        if value is PydanticUndefined:
            continue  # parse says that it is missing
        line = f"{key} = {_toml(value if value is not None else (about.examples or [''])[0])}  # {about.description}"
        yield line if value is not None else f"# {line}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _sentence(error: ErrorDetails) -> str:
    """One fault in words: where, what, what is allowed."""
    section = str(error["loc"][0]) if error["loc"] else ""
    key = str(error["loc"][1]) if len(error["loc"]) > 1 else ""
    place = f"[{section}] {key}".strip() if section else ""
    match error["type"]:
        case "extra_forbidden" if key:
            return f"[{section}] " + unknown("key", key, SECTIONS[section].model_fields).rstrip(".")
        case "extra_forbidden":
            return unknown("section", section, SECTIONS).rstrip(".")
        case "missing":
            return f"{place} is missing"
        case "value_error":
            text = str(error["ctx"]["error"])
            return f"{place}: {text}" if place else text
        case "model_type":
            return f"{place} must be a section with keys of its own, got {error['input']!r}"
    return f"{place}: {error['msg'].replace('Input should', 'must')}, got {error['input']!r}"
