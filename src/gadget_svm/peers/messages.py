"""What peers say to each other, as values, and how large each may be. Knows no bytes and makes no checks."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gadget_svm.peers.member import Member

Floats = NDArray[np.float64]
Reason = Literal["garbage", "version", "run", "name", "dimension", "not-finite", "too-large", "sequence", "members"]

VERSION = 1
SERVICE = "gadget.v1.Peer"
METHODS = {
    "Hello": ("Hello", "HelloReply"),
    "Push": ("Letter", "Ack"),
    "Leave": ("Notice", "Ack"),
    "Status": ("Notice", "StatusReply"),
    "Stop": ("Notice", "Ack"),
    "Statistics": ("Statistics", "Statistics"),
}
"""Every call, with the message it takes and the one it answers."""

LARGEST = 1e100
"""No number on the wire is larger, so that sums and squares of a few stay finite."""
COUNT = 2**63
"""Counters stay below it: they fit an int64."""
RUN_BYTES, NONCE_BYTES, DIGEST_BYTES = 16, 32, 32
MEMBERS, MEMBER_BYTES = 32, 512
KEPT, KEPT_BYTES = 32, 128
TEXT_BYTES, CHARTER_BYTES, STATUS_BYTES = 1024, 64 * 1024, 4 * 1024 * 1024
CERTIFICATE_BYTES, SIGNATURE_BYTES = 16 * 1024, 1024
ENTRIES, STATISTICS_BYTES = 64, 16 * 1024 * 1024
FIELDS, SPARE = 64, 4096
"""Fields of one message beside the repeated ones, and bytes beside those we know: room for later minor versions."""


class Malformed(ValueError):  # noqa: N818 - what it is, not that it is one
    """A message that is not one; ``reason`` is a word for counters, the text a sentence for people."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Status(IntEnum):
    """What became of a letter or a notice."""

    OK = 0
    REPEATED = 1
    WRONG_RUN = 2
    UNKNOWN = 3
    MALFORMED = 4
    BUSY = 5
    LEFT = 6
    REFUSED = 7


class Kept(NamedTuple):
    """One who has left, as which incarnation, and whose pull somebody keeps as it was then."""

    name: str
    incarnation: int


@dataclass(frozen=True, slots=True, eq=False)
class Letter:
    """One message of the algorithm, with a piece of the sender's view. ``receiver_incarnation`` 0: not known.

    ``kept`` have left, and are part of the sender's own pull. ``last``: now it leaves too, and asks the receiver to
    keep what the letter says.
    """

    run: bytes
    sender: str
    incarnation: int
    receiver: str
    receiver_incarnation: int
    seq: int
    time: int
    vector: Floats | None
    weight: float
    note: float | None = None
    wanted: bool = False
    members: tuple[Member, ...] = ()
    last: bool = False
    kept: tuple[Kept, ...] = ()


@dataclass(frozen=True, slots=True)
class Ack:
    """The answer to a letter or a notice."""

    status: Status
    incarnation: int
    beat: int
    text: str = ""
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class Hello:
    """The first words between two peers; the charter is JSON text that this module does not read."""

    name: str
    address: str
    incarnation: int
    nonce: bytes
    charter: str
    float32: bool = False
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class HelloReply(Hello):
    """The answer: the same of the other side, and whether it agrees."""

    accepted: bool = False
    text: str = ""
    certificate: bytes = b""
    signature: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """What the scaler needs of one site; ``rows`` is their number or weight."""

    name: str
    rows: float
    sum: Floats | None = None
    spread: Floats | None = None
    largest: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Sites' entries as ``name`` knows them; ``frozen`` is the digest of the set it settled on, or empty."""

    name: str
    entries: tuple[Entry, ...] = ()
    frozen: bytes = b""


@dataclass(frozen=True, slots=True)
class Notice:
    """Leave, stop, or a question for the status. ``incarnation`` 0: the sender is no running peer."""

    name: str
    incarnation: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class StatusReply:
    """How a peer is, as JSON text that this module does not read."""

    text: str


def largest_letter(dimension: int) -> int:
    """Bytes an honest letter may take at most."""
    return 8 * dimension + MEMBERS * (MEMBER_BYTES + 4) + KEPT * (KEPT_BYTES + 4) + SPARE


def entries_per_message(dimension: int) -> int:
    """How many entries one ``Statistics`` may carry: more go in several."""
    return max(1, min(ENTRIES, STATISTICS_BYTES // _entry_bytes(dimension)))


def largest_statistics(dimension: int) -> int:
    """Bytes honest statistics may take at most."""
    return entries_per_message(dimension) * _entry_bytes(dimension) + SPARE


def _entry_bytes(dimension: int) -> int:
    return 3 * 8 * dimension + MEMBER_BYTES


def plain(text: str) -> str:
    """Any text as one that may be sent: on one line, printable, not too long."""
    line = "".join(sign if sign.isprintable() else " " for sign in text[:TEXT_BYTES])
    return line.encode()[:TEXT_BYTES].decode(errors="ignore")
