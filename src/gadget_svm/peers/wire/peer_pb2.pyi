from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_ALIVE: _ClassVar[State]
    STATE_SUSPECT: _ClassVar[State]
    STATE_DEAD: _ClassVar[State]
    STATE_LEFT: _ClassVar[State]

class EdgeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EDGE_ADMIN_DOWN: _ClassVar[EdgeState]
    EDGE_DOWN: _ClassVar[EdgeState]
    EDGE_INIT: _ClassVar[EdgeState]
    EDGE_UP: _ClassVar[EdgeState]

class RefusalReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_STUDY: _ClassVar[RefusalReason]
    REFUSAL_INCARNATION: _ClassVar[RefusalReason]
    REFUSAL_NAME: _ClassVar[RefusalReason]
    REFUSAL_BUSY: _ClassVar[RefusalReason]
    REFUSAL_LEAVING: _ClassVar[RefusalReason]
STATE_ALIVE: State
STATE_SUSPECT: State
STATE_DEAD: State
STATE_LEFT: State
EDGE_ADMIN_DOWN: EdgeState
EDGE_DOWN: EdgeState
EDGE_INIT: EdgeState
EDGE_UP: EdgeState
REFUSAL_STUDY: RefusalReason
REFUSAL_INCARNATION: RefusalReason
REFUSAL_NAME: RefusalReason
REFUSAL_BUSY: RefusalReason
REFUSAL_LEAVING: RefusalReason

class Member(_message.Message):
    __slots__ = ("name", "address", "incarnation", "beat", "state", "rows", "loss", "slack", "objective", "reachable", "certified", "rounds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    SLACK_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    CERTIFIED_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    incarnation: int
    beat: int
    state: State
    rows: float
    loss: float
    slack: float
    objective: float
    reachable: bool
    certified: str
    rounds: int
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., incarnation: _Optional[int] = ..., beat: _Optional[int] = ..., state: _Optional[_Union[State, str]] = ..., rows: _Optional[float] = ..., loss: _Optional[float] = ..., slack: _Optional[float] = ..., objective: _Optional[float] = ..., reachable: bool = ..., certified: _Optional[str] = ..., rounds: _Optional[int] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("version", "nonce", "certificate")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    version: int
    nonce: bytes
    certificate: bytes
    def __init__(self, version: _Optional[int] = ..., nonce: _Optional[bytes] = ..., certificate: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("name", "incarnation", "study", "digest", "address", "float32", "members")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FLOAT32_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    study: str
    digest: bytes
    address: str
    float32: bool
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., study: _Optional[str] = ..., digest: _Optional[bytes] = ..., address: _Optional[str] = ..., float32: bool = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class SignedHello(_message.Message):
    __slots__ = ("hello", "signature")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    hello: bytes
    signature: bytes
    def __init__(self, hello: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "text", "members")
    REASON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    reason: RefusalReason
    text: str
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, reason: _Optional[_Union[RefusalReason, str]] = ..., text: _Optional[str] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("number", "incarnation", "receiver_incarnation", "edge", "members", "dial_failed", "chosen")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    DIAL_FAILED_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    number: int
    incarnation: int
    receiver_incarnation: int
    edge: EdgeState
    members: _containers.RepeatedCompositeFieldContainer[Member]
    dial_failed: bool
    chosen: bool
    def __init__(self, number: _Optional[int] = ..., incarnation: _Optional[int] = ..., receiver_incarnation: _Optional[int] = ..., edge: _Optional[_Union[EdgeState, str]] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., dial_failed: bool = ..., chosen: bool = ...) -> None: ...

class Push(_message.Message):
    __slots__ = ("incarnation", "receiver_incarnation", "seq", "time", "weight", "note", "scale", "vector", "vector32")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    VECTOR32_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    receiver_incarnation: int
    seq: int
    time: int
    weight: float
    note: float
    scale: bytes
    vector: bytes
    vector32: bytes
    def __init__(self, incarnation: _Optional[int] = ..., receiver_incarnation: _Optional[int] = ..., seq: _Optional[int] = ..., time: _Optional[int] = ..., weight: _Optional[float] = ..., note: _Optional[float] = ..., scale: _Optional[bytes] = ..., vector: _Optional[bytes] = ..., vector32: _Optional[bytes] = ...) -> None: ...

class Acknowledgement(_message.Message):
    __slots__ = ("seq", "incarnation")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    seq: int
    incarnation: int
    def __init__(self, seq: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class SiteStatistics(_message.Message):
    __slots__ = ("name", "rows", "sum", "spread", "largest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    rows: float
    sum: bytes
    spread: bytes
    largest: bytes
    def __init__(self, name: _Optional[str] = ..., rows: _Optional[float] = ..., sum: _Optional[bytes] = ..., spread: _Optional[bytes] = ..., largest: _Optional[bytes] = ...) -> None: ...

class Statistics(_message.Message):
    __slots__ = ("entries", "frozen")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[SiteStatistics]
    frozen: bytes
    def __init__(self, entries: _Optional[_Iterable[_Union[SiteStatistics, _Mapping]]] = ..., frozen: _Optional[bytes] = ...) -> None: ...

class CertificateId(_message.Message):
    __slots__ = ("number", "initiator", "incarnation")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    INITIATOR_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    number: int
    initiator: str
    incarnation: int
    def __init__(self, number: _Optional[int] = ..., initiator: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class CoveredSite(_message.Message):
    __slots__ = ("name", "incarnation", "rows")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    rows: float
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., rows: _Optional[float] = ...) -> None: ...

class CertificateProbe(_message.Message):
    __slots__ = ("id", "time", "scale", "model", "parent")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    id: CertificateId
    time: float
    scale: bytes
    model: bytes
    parent: str
    def __init__(self, id: _Optional[_Union[CertificateId, _Mapping]] = ..., time: _Optional[float] = ..., scale: _Optional[bytes] = ..., model: _Optional[bytes] = ..., parent: _Optional[str] = ...) -> None: ...

class CertificateSums(_message.Message):
    __slots__ = ("id", "sums", "sites")
    ID_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    id: CertificateId
    sums: bytes
    sites: _containers.RepeatedCompositeFieldContainer[CoveredSite]
    def __init__(self, id: _Optional[_Union[CertificateId, _Mapping]] = ..., sums: _Optional[bytes] = ..., sites: _Optional[_Iterable[_Union[CoveredSite, _Mapping]]] = ...) -> None: ...

class Certified(_message.Message):
    __slots__ = ("id", "time", "scale", "model", "bounds", "duals", "sites", "ticks")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    DUALS_FIELD_NUMBER: _ClassVar[int]
    SITES_FIELD_NUMBER: _ClassVar[int]
    TICKS_FIELD_NUMBER: _ClassVar[int]
    id: CertificateId
    time: float
    scale: bytes
    model: bytes
    bounds: bytes
    duals: bytes
    sites: _containers.RepeatedCompositeFieldContainer[CoveredSite]
    ticks: int
    def __init__(self, id: _Optional[_Union[CertificateId, _Mapping]] = ..., time: _Optional[float] = ..., scale: _Optional[bytes] = ..., model: _Optional[bytes] = ..., bounds: _Optional[bytes] = ..., duals: _Optional[bytes] = ..., sites: _Optional[_Iterable[_Union[CoveredSite, _Mapping]]] = ..., ticks: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("incarnation", "reason")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    reason: str
    def __init__(self, incarnation: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("challenge", "hello", "refusal", "heartbeat", "push", "acknowledgement", "statistics", "certificate_probe", "certificate_sums", "certified", "leave")
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGEMENT_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_PROBE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_SUMS_FIELD_NUMBER: _ClassVar[int]
    CERTIFIED_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    challenge: Challenge
    hello: SignedHello
    refusal: Refusal
    heartbeat: Heartbeat
    push: Push
    acknowledgement: Acknowledgement
    statistics: Statistics
    certificate_probe: CertificateProbe
    certificate_sums: CertificateSums
    certified: Certified
    leave: Leave
    def __init__(self, challenge: _Optional[_Union[Challenge, _Mapping]] = ..., hello: _Optional[_Union[SignedHello, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., push: _Optional[_Union[Push, _Mapping]] = ..., acknowledgement: _Optional[_Union[Acknowledgement, _Mapping]] = ..., statistics: _Optional[_Union[Statistics, _Mapping]] = ..., certificate_probe: _Optional[_Union[CertificateProbe, _Mapping]] = ..., certificate_sums: _Optional[_Union[CertificateSums, _Mapping]] = ..., certified: _Optional[_Union[Certified, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ...) -> None: ...

class ControlRequest(_message.Message):
    __slots__ = ("version", "text")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    version: int
    text: str
    def __init__(self, version: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class ControlReply(_message.Message):
    __slots__ = ("version", "text")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    version: int
    text: str
    def __init__(self, version: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...
