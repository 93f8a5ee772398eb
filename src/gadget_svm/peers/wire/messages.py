"""Messages between peers, as values, and how large each may be. Knows no bytes and makes no checks."""

from dataclasses import dataclass, field
from enum import IntEnum

from gadget_svm.core.types import Floats
from gadget_svm.peers.membership.member import Member

VERSION = 2


@dataclass(frozen=True, slots=True)
class Challenge:
    """The first frame of each end of a link: a new nonce, and who will sign. Between hosts; nodes do not see it."""

    version: int = field(default=VERSION, kw_only=True)
    nonce: bytes
    certificate: bytes  # PEM


@dataclass(frozen=True, slots=True)
class SignedHello:
    """A hello as the bytes that were signed. Between hosts; nodes see the `Hello` if the signature is right."""

    hello: bytes
    signature: bytes


class EdgeState(IntEnum):
    """The state of an edge at one end, as in Bidirectional Forwarding Detection (RFC 5880)."""

    ADMIN_DOWN = 0  # this end does not want the edge
    DOWN = 1  # wanted; nothing was heard from the other end
    INIT = 2  # the other end is heard, but has not said that it hears this end
    UP = 3  # both ends hear each other


class RefusalReason(IntEnum):
    """Why a peer is refused after its hello."""

    STUDY = 0
    INCARNATION = 1
    NAME = 2
    BUSY = 3
    LEAVING = 4


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message each way. ``study`` is the study in its canonical text, so that differences can be named.

    The host adds what proves the identity: a signature over the other end's nonce.
    """

    name: str
    incarnation: int
    study: str
    digest: bytes  # of the study
    address: str = ""
    float32: bool = False  # whether vectors may come as float32
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a hello that is not accepted; the link is closed after it."""

    reason: RefusalReason
    text: str
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life, the state of the edge, and a part of the sender's view.

    ``number`` grows with every heartbeat of a link's sender. ``receiver_incarnation`` is what the sender knows of the
    receiver; a heartbeat for another incarnation says nothing about the edge.
    """

    number: int
    incarnation: int
    receiver_incarnation: int
    edge: EdgeState
    members: tuple[Member, ...] = ()
    dial_failed: bool = False  # the sender could not dial the receiver's address
    chosen: bool = False  # whether the sender chose the edge itself, and does not only accept it


@dataclass(frozen=True, slots=True, eq=False)
class Push:
    """One message of the learning algorithm. ``scale`` is the digest of the feature scale that its vector is for."""

    incarnation: int
    receiver_incarnation: int
    seq: int
    time: int
    vector: Floats
    weight: float
    note: float | None = None
    scale: bytes = b""
    float32: bool = False  # whether the vector travels rounded, at half the size


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A push arrived. Sent for every push, also for one that is repeated or cannot be used."""

    seq: int
    incarnation: int


@dataclass(frozen=True, slots=True, eq=False)
class SiteStatistics:
    """What the common scale needs of one site."""

    name: str
    rows: float
    sum: Floats | None = None
    spread: Floats | None = None
    largest: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Statistics of sites as the sender knows them; ``frozen`` is the digest of the set that it settled on."""

    entries: tuple[SiteStatistics, ...] = ()
    frozen: bytes = b""


@dataclass(frozen=True, slots=True, order=True)
class CertificateId:
    """An attempt at a certificate. Numbers grow; a peer takes part in one attempt of each number."""

    number: int
    initiator: str
    incarnation: int


@dataclass(frozen=True, slots=True, order=True)
class CoveredSite:
    """A site whose rows a certificate covers."""

    name: str
    incarnation: int
    rows: float


@dataclass(frozen=True, slots=True, eq=False)
class CertificateProbe:
    """An attempt begins: the candidate model. Sent to all neighbours with an edge; the first sender is the parent.

    ``model`` is empty in answers, and in requests to those that have it.
    """

    id: CertificateId
    time: float  # the initiator's time of day
    scale: bytes
    model: Floats
    parent: str  # of the sender; the initiator is its own


@dataclass(frozen=True, slots=True, eq=False)
class CertificateSums:
    """The sums of a subtree, from a child to its parent (see `algorithms.certificate`)."""

    id: CertificateId
    sums: Floats
    sites: tuple[CoveredSite, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Certified:
    """A finished certificate: a model, its bound, and the sites that it covers. Passed on by everyone who has it."""

    id: CertificateId
    time: float
    scale: bytes
    model: Floats
    bounds: Floats  # per output, of F(model) - F*
    duals: Floats  # per output, lower bounds of F*
    sites: tuple[CoveredSite, ...]
    ticks: int


@dataclass(frozen=True, slots=True)
class Leave:
    """The sender leaves the network."""

    incarnation: int
    reason: str = ""


Message = (
    Hello | Refusal | Heartbeat | Push | Acknowledgement | Statistics | CertificateProbe | CertificateSums | Certified
    | Leave
)  # fmt: skip
