"""A scenario: how many peers, what they learn, what the network and the disks are like, which faults occur when.

Owns the file format (TOML) and its checks. A number may be given as a range [low, high], within which the seed draws.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

Range = tuple[float, float]
Counts = tuple[int, int]


class ScenarioError(ValueError):
    """A scenario file that cannot be used, and what to change."""


@dataclass(frozen=True)
class DataPlan:
    """Generated rows, a shard for each peer."""

    rows: Counts = (20, 40)  # of a peer
    features: Counts = (5, 8)
    noise: float = 0.3  # of the labels' plane
    skew: float = 0.5  # how far the shards' means are apart
    classes: Counts = (2, 2)
    units: float = 0.0  # features are shifted, and their units differ by up to so many powers of ten


@dataclass(frozen=True)
class LinkPlan:
    """The network. Loss, duplicates, reordering and resets end when the faults stop."""

    latency: Range = (0.005, 0.05)  # seconds one way; each pair of machines has its own within this range
    jitter: float = 0.2  # standard deviation of a message's latency, relative
    bandwidth: float = 12.5e6  # bytes per second that a machine can send
    loss: Range = (0.0, 0.0)  # the probability that a message vanishes; the link stays
    duplicate: Range = (0.0, 0.0)
    reorder: Range = (0.0, 0.0)  # the probability that later messages overtake one
    resets: Range = (0.0, 0.0)  # of any link, per second


@dataclass(frozen=True)
class DiskPlan:
    """The disks of all machines."""

    latency: Range = (0.002, 0.02)  # seconds until a write is synced
    tear: float = 0.34  # the probability that a kill tears the file that is being written


@dataclass(frozen=True)
class FaultPlan:
    """Something that happens to some peers, or to the network, ``count`` times."""

    kind: str
    at: Range  # when it begins
    seconds: Range | None = None  # how long it lasts; None: until the end
    count: Counts = (1, 1)
    size: Range = (1.0, 1.0)  # how strong: what it means depends on the kind


@dataclass(frozen=True)
class Scenario:
    """All of it. ``settings`` and ``study`` replace fields of `NodeSettings` and `Study`."""

    name: str
    title: str = ""
    peers: Counts = (3, 6)
    outbound_only: Range = (0.0, 0.0)  # the share of peers that accept no connection
    step_seconds: Range = (0.002, 0.01)  # of training
    clock_drift: float = 0.0  # clocks differ from virtual time by at most this, relative
    wire: float = 0.05  # the share of seeds whose messages are encoded and decoded
    faults_stop: float = 30.0
    settle: float = 120.0  # after the faults have stopped, at most so many seconds until everything is checked
    tolerance: float = 0.01  # of the objective, relative to the optimum of the live rows
    certified: bool = True  # whether a certificate that covers all live rows must follow
    finish: bool = False  # whether all peers must end by themselves, with a certified model
    data: DataPlan = field(default_factory=DataPlan)
    links: LinkPlan = field(default_factory=LinkPlan)
    disks: DiskPlan = field(default_factory=DiskPlan)
    faults: tuple[FaultPlan, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    study: Mapping[str, Any] = field(default_factory=dict)


FAULT_KINDS = (
    "kill", "power-off", "pause", "slow", "clock-jump", "wall-jump", "one-way-cut", "cut", "partition", "disk-full",
    "disk-slow", "revoke", "stop", "join-late", "same-name", "intruder", "hostile-neighbour", "other-study",
    "kill-fresh", "kill-older",
)  # fmt: skip
LOCAL = resources.files("gadget_svm.peers.world") / "scenarios"


def names() -> list[str]:
    """Return the names of the scenarios that come with the package."""
    return sorted(item.name.removesuffix(".toml") for item in LOCAL.iterdir() if item.name.endswith(".toml"))


def load(name: str | Path) -> Scenario:
    """Read a scenario that comes with the package, by its name, or one from a TOML file, by its path."""
    if str(name) in names():
        return parse(str(name), (LOCAL / f"{name}.toml").read_text(encoding="utf-8"))
    path = Path(name)
    if path.suffix != ".toml":
        known = ", ".join(names())
        raise ScenarioError(f"no scenario is called {str(name)!r}: there are {known}; or give a .toml file")
    try:
        return parse(path.stem, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text file"
        raise ScenarioError(f"cannot read the scenario {path}: {reason}") from error


def parse(name: str, text: str) -> Scenario:
    """Return a scenario from its TOML text."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{name}: not TOML: {error}") from error
    faults = tuple(_fault(name, part) for part in raw.pop("fault", []))
    parts: dict[str, Any] = {}
    for key, kind in (("data", DataPlan), ("links", LinkPlan), ("disks", DiskPlan)):
        parts[key] = _filled(f"{name} [{key}]", kind(), raw.pop(key, {}))
    whole: Scenario = _filled(name, Scenario(name), raw)
    return replace(whole, faults=faults, **parts)


def _fault(name: str, raw: dict[str, Any]) -> FaultPlan:
    kind = raw.pop("kind", "")
    if kind not in FAULT_KINDS:
        raise ScenarioError(f"{name}: no fault is called {kind!r}: there are {', '.join(FAULT_KINDS)}")
    if "at" not in raw:
        raise ScenarioError(f"{name}: the fault {kind!r} needs a time: at = 5.0, or at = [5.0, 20.0]")
    plan: FaultPlan = _filled(f"{name} {kind}", FaultPlan(kind, (0.0, 0.0)), raw)
    return plan


def _filled(where: str, plan: Any, raw: Mapping[str, Any]) -> Any:
    """Return the plan with the values of a table; a number stands for a range of one value."""
    known = {item.name: item for item in fields(plan)}
    if unknown := set(raw) - set(known):
        raise ScenarioError(f"{where}: unknown key {min(unknown)!r}; there are {', '.join(known)}")
    return replace(plan, **{key: _value(where, key, known[key].type, value) for key, value in raw.items()})


def _value(where: str, key: str, kind: Any, value: Any) -> Any:
    if kind in (Range, Range | None, Counts):
        pair = value if isinstance(value, list) else [value, value]
        if len(pair) != 2 or not all(isinstance(x, int | float) for x in pair) or pair[0] > pair[1]:
            raise ScenarioError(f"{where}: {key} = {value!r} is neither a number nor a range [low, high]")
        convert = int if kind == Counts else float
        return convert(pair[0]), convert(pair[1])
    if kind in (float, str, bool):
        value = float(value) if kind is float and type(value) is int else value
        if type(value) is not kind:
            raise ScenarioError(f"{where}: {key} = {value!r} is not a {kind.__name__}")
    return value
