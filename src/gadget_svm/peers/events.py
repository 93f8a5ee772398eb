"""The events that a node handles, and the effects that it asks its host for. Owns no behaviour.

A host delivers events to `Node.handle(event, now)` and carries out the effects that it returns. ``now`` is in seconds
of a clock that the host chooses; wall-clock time enters once, with `Started`. Links have numbers that the host chooses
and never uses again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gadget_svm.peers.storage.ledger import Ledger
from gadget_svm.peers.storage.snapshot import ModelDocument, Snapshot
from gadget_svm.peers.wire.messages import Message

Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Started:
    """The node may begin. ``wall_time`` is the time of day, in seconds since 1970; private studies have a ledger."""

    wall_time: float
    snapshot: Snapshot | None = None
    ledger: Ledger | None = None


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time of the last `SetTimer` has come. Early or repeated timers do no harm."""


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A link is open, and its other end has proved its identity. ``dialled`` is the address if this end opened it."""

    link: int
    identity: str
    dialled: str | None = None


@dataclass(frozen=True, slots=True)
class DialFailed:
    """A `Dial` did not lead to a link."""

    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class LinkDown:
    """A link is closed. What was sent on it may not have arrived."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message that is well-formed and within its limits; its sender is the identity of the link."""

    link: int
    message: Message


@dataclass(frozen=True, slots=True)
class Rejected:
    """The host refused a message or a connection before the node saw it; for the status only."""

    reason: str
    text: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class StepDone:
    """The result of `RunStep`."""

    result: Any


@dataclass(frozen=True, slots=True)
class StepFailed:
    """`RunStep` raised an exception."""

    reason: str


@dataclass(frozen=True, slots=True)
class Saved:
    """A `Save`, an `Export` or a `Spend` is on disk, and survives a power cut."""

    number: int


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """A `Save`, an `Export` or a `Spend` failed; what was saved before is unharmed."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class CredentialsChanged:
    """The certificate's end, in seconds since 1970. The host closes the links of revoked peers itself."""

    expires: float


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Leave the network and finish."""

    reason: str


Event = (
    Started | TimerFired | LinkUp | DialFailed | LinkDown | Received | Rejected | StepDone | StepFailed | Saved
    | SaveFailed | CredentialsChanged | StopRequested
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a link to an address. ``name`` is the identity that must answer, or None for any. Answered by `LinkUp` with
    ``dialled`` or by `DialFailed`, always by one of them."""

    address: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close a link after what was sent on it. No `LinkDown` follows."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message. Messages of one link keep their order. A link that cannot take more is closed by the host."""

    link: int
    message: Message


@dataclass(frozen=True, slots=True)
class RunStep:
    """Call ``step``, in a thread if that helps, and return its result as `StepDone`. One step runs at a time."""

    step: Callable[[], Any]
    label: str = "tick"
    work: float = 0.0  # numbers touched, for simulated time


@dataclass(frozen=True, slots=True)
class Save:
    """Write a snapshot durably. Answered by `Saved` or `SaveFailed` with this number. Arrays do not change any more."""

    number: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Export:
    """Write a model file durably. Answered by `Saved` or `SaveFailed` with this number."""

    number: int
    model: ModelDocument


@dataclass(frozen=True, slots=True)
class Spend:
    """Replace the privacy ledger durably, and all of it or nothing. Answered by `Saved` or `SaveFailed`."""

    number: int
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Deliver `TimerFired` at this time. Replaces the timer before it."""

    at: float


@dataclass(frozen=True, slots=True)
class Report:
    """A line for the log."""

    level: Level
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finish:
    """The node has left, and its last snapshot is saved. ``error`` is empty if all is well."""

    reason: str
    error: str = ""


Effect = Dial | Hangup | Send | RunStep | Save | Export | Spend | SetTimer | Report | Finish
