"""What a node is told about itself and its pace. All of it is local; what all sites agree on is the study."""

from dataclasses import dataclass
from typing import Literal

Until = Literal["stopped", "certified", "finished"]


@dataclass(frozen=True)
class NodeSettings:
    """Settings of one node. Times are in seconds."""

    name: str
    address: str = ""  # where others reach it; empty for a site that only dials out
    reachable: bool | None = None  # None: detected
    join: tuple[str, ...] = ()  # addresses of peers to dial first
    seed: int = 0
    float32: bool = False  # accept and send vectors with half the bytes
    tick: float = 0.05  # least time between two ticks
    heartbeat: float = 1.0
    suspect: float = 5.0
    dead: float = 5.0
    snapshot_interval: float = 10.0
    export_interval: float = 30.0
    send_rate: float = 600_000.0  # bytes of vectors per second, on average
    max_members: int = 10_000
    until: Until = "stopped"
    linger: float = 60.0  # how long a certified peer waits for the confirmations of others
    noise: Literal["secret", "seeded"] = "secret"  # of a private study; seeded noise protects nothing
    epsilon_limit: float | None = None  # for all private studies of the rows together
    limit_delta: float = 1e-6  # of that limit
    stop_after_ticks: int | None = None
    stop_after_seconds: float | None = None
