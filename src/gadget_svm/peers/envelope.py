"""The wire format: bytes to values and back, with every check before anything else sees them.

Owns sizes, counts, names, finiteness and versions; refuses to know who may say what, or what a value is good for.
Decoders return a frozen dataclass or raise ``Malformed``; encoders refuse what the decoder at the other end would.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import AddressValueError, IPv6Address
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from gadget_svm.peers.member import Member as Member  # part of this interface
from gadget_svm.peers.member import State
from gadget_svm.peers.naming import NAME

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
TEXT_BYTES, CHARTER_BYTES, STATUS_BYTES = 1024, 64 * 1024, 4 * 1024 * 1024
CERTIFICATE_BYTES, SIGNATURE_BYTES = 16 * 1024, 1024
ENTRIES, STATISTICS_BYTES = 64, 16 * 1024 * 1024
FIELDS, SPARE = 64, 4096
"""Fields of one message beside the repeated ones, and bytes beside those we know: room for later minor versions."""

HOST = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?"
ADDRESS = re.compile(rf"(?:\[([0-9A-Fa-f:.]{{2,45}})\]|{HOST}):([1-9][0-9]{{0,4}})")


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


@dataclass(frozen=True, slots=True, eq=False)
class Letter:
    """One message of the algorithm, with a piece of the sender's view. ``receiver_incarnation`` 0: not known."""

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
    square: Floats | None = None
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


# The messages, in the order of their numbers: fields may be added at the end, none ever goes. "?" has presence,
# "*" repeats. wire.proto says the same.
_MESSAGES = {
    "Member": "name:string address:string incarnation:uint64 beat:uint64 state:State "
    "rows:double loss:double slack:double objective:double",
    "Letter": "version:uint32 run:bytes sender:string incarnation:uint64 receiver:string receiver_incarnation:uint64 "
    "seq:uint64 time:uint64 weight:double note:double? wanted:bool members:Member* vector:bytes? vector32:bytes?",
    "Ack": "version:uint32 status:Status incarnation:uint64 beat:uint64 text:string members:Member*",
    "Hello": "version:uint32 name:string address:string incarnation:uint64 nonce:bytes charter:string float32:bool "
    "members:Member*",
    "HelloReply": "version:uint32 name:string address:string incarnation:uint64 nonce:bytes charter:string "
    "float32:bool members:Member* accepted:bool text:string certificate:bytes signature:bytes",
    "Entry": "name:string rows:double sum:bytes? square:bytes? largest:bytes?",
    "Statistics": "version:uint32 name:string frozen:bytes entries:Entry*",
    "Notice": "version:uint32 name:string incarnation:uint64 text:string",
    "StatusReply": "version:uint32 text:string",
}


def file_descriptor() -> descriptor_pb2.FileDescriptorProto:
    """The messages, enums and the service as a descriptor: what protoc makes of wire.proto."""
    package, service = SERVICE.rsplit(".", 1)
    file = descriptor_pb2.FileDescriptorProto(name="wire.proto", package=package, syntax="proto3")
    enums: tuple[type[IntEnum], ...] = (State, Status)
    for enum in enums:
        kind = file.enum_type.add(name=enum.__name__)
        for value in enum:
            kind.value.add(name=f"{enum.__name__.upper()}_{value.name}", number=value)
    for name, fields in _MESSAGES.items():
        _add_message(file.message_type.add(name=name), fields.split(), {enum.__name__ for enum in enums})
    peer = file.service.add(name=service)
    for method, (asks, answers) in METHODS.items():
        peer.method.add(name=method, input_type=f".{package}.{asks}", output_type=f".{package}.{answers}")
    return file


def _add_message(message: descriptor_pb2.DescriptorProto, fields: Sequence[str], enums: set[str]) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, text in enumerate(fields, 1):
        name, kind = text.split(":")
        field = message.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL)
        if kind.endswith("*"):
            field.label = kinds.LABEL_REPEATED
        if kind.endswith("?"):  # presence, as protoc writes it: a oneof of one
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
        kind = kind.rstrip("*?")
        if kind in _MESSAGES or kind in enums:
            field.type = kinds.TYPE_ENUM if kind in enums else kinds.TYPE_MESSAGE
            field.type_name = f".{SERVICE.rsplit('.', 1)[0]}.{kind}"
        else:
            field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")


def _classes() -> Any:
    """One class for each message, from a pool of its own: whoever runs protoc over wire.proto meets no double."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file_descriptor().SerializeToString())
    found = {name: pool.FindMessageTypeByName(f"gadget.v1.{name}") for name in _MESSAGES}
    return SimpleNamespace(**{name: message_factory.GetMessageClass(each) for name, each in found.items()})


def _number_of(message: str, field: str) -> int:
    return [text.split(":")[0] for text in _MESSAGES[message].split()].index(field) + 1


_STATES = tuple(State)
_wire: Any = _classes()  # the one place where types end
_MEMBERS_AT = {name: _number_of(name, "members") for name, text in _MESSAGES.items() if "members:" in text}
_ENTRIES_AT = _number_of("Statistics", "entries")
_VECTOR, _VECTOR32 = _number_of("Letter", "vector"), _number_of("Letter", "vector32")
_BOUND = int(np.float64(LARGEST).view(np.int64))
_BOUND32 = int(np.float64(np.finfo(np.float32).max).view(np.int64))


def largest_letter(dimension: int) -> int:
    """Bytes an honest letter may take at most."""
    return 8 * dimension + MEMBERS * (MEMBER_BYTES + 4) + SPARE


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


def encode_letter(letter: Letter, float32: bool = False) -> bytes:
    """A letter as bytes; its vector is copied once. ``float32``: at half the size, rounded."""
    _check_letter(letter)
    head = _wire.Letter(
        version=VERSION, run=letter.run, sender=letter.sender, incarnation=letter.incarnation,
        receiver=letter.receiver, receiver_incarnation=letter.receiver_incarnation, seq=letter.seq, time=letter.time,
        weight=letter.weight, note=letter.note, wanted=letter.wanted,
    )  # fmt: skip
    _put_members(head, letter.members)
    start: bytes = head.SerializeToString()
    if letter.vector is None:
        return start
    values = _packed(letter.vector, float32)
    tag = (_VECTOR32 if float32 else _VECTOR) << 3 | 2  # below 128: one byte
    return b"".join((start, bytes((tag,)), _varint_bytes(values.nbytes), values.data))


def decode_letter(data: bytes, run: bytes, dimension: int) -> Letter:
    """The letter in ``data``, of this run and with a vector of this dimension or none."""
    _fits("letter", data, largest_letter(dimension))
    found = [field for field in _fields_of("Letter", data) if field[0] in (_VECTOR, _VECTOR32)]
    if len(found) > 1:
        raise Malformed("garbage", "a letter carries one vector or none, this one has several")
    head, vector = data, None
    if found:  # the large part never goes through protobuf
        [(number, tag, start, end)] = found
        head = data[:tag] + data[end:]
    message = _parse("Letter", head)
    if message.run != run:
        raise Malformed("run", f"a letter of run {message.run[:RUN_BYTES].hex() or 'none'}, here runs {run.hex()}")
    if found:
        vector = _unpacked(data[start:end], number == _VECTOR32, dimension)
    letter = Letter(
        message.run, message.sender, message.incarnation, message.receiver, message.receiver_incarnation, message.seq,
        message.time, vector, message.weight, message.note if message.HasField("note") else None, message.wanted,
        _get_members(message),
    )  # fmt: skip
    _check_letter(letter)
    return letter


def encode_ack(ack: Ack) -> bytes:
    """An answer as bytes."""
    _check_ack(ack)
    message = _wire.Ack(
        version=VERSION, status=int(ack.status), incarnation=ack.incarnation, beat=ack.beat, text=ack.text
    )
    return _sealed(_put_members(message, ack.members))


def decode_ack(data: bytes) -> Ack:
    """The answer in ``data``."""
    message = _open("Ack", data, TEXT_BYTES + MEMBERS * (MEMBER_BYTES + 4) + SPARE)
    if not 0 <= message.status < len(Status):
        raise Malformed("garbage", f"there is no status {message.status}: known are 0 to {len(Status) - 1}")
    ack = Ack(Status(message.status), message.incarnation, message.beat, message.text, _get_members(message))
    _check_ack(ack)
    return ack


def encode_hello(hello: Hello) -> bytes:
    """The first words as bytes."""
    _check_hello(hello)
    return _sealed(_put_members(_wire.Hello(version=VERSION, **_greeting(hello)), hello.members))


def decode_hello(data: bytes) -> Hello:
    """The first words in ``data``."""
    message = _open("Hello", data, _HELLO_BYTES)
    hello = Hello(**_greeting(message), members=_get_members(message))
    _check_hello(hello)
    return hello


def encode_hello_reply(reply: HelloReply) -> bytes:
    """The answer to the first words as bytes."""
    _check_hello_reply(reply)
    message = _wire.HelloReply(
        version=VERSION, accepted=reply.accepted, text=reply.text, certificate=reply.certificate,
        signature=reply.signature, **_greeting(reply),
    )  # fmt: skip
    return _sealed(_put_members(message, reply.members))


def decode_hello_reply(data: bytes) -> HelloReply:
    """The answer to the first words in ``data``."""
    message = _open("HelloReply", data, _HELLO_BYTES + TEXT_BYTES + CERTIFICATE_BYTES + SIGNATURE_BYTES)
    reply = HelloReply(
        **_greeting(message), members=_get_members(message), accepted=message.accepted, text=message.text,
        certificate=message.certificate, signature=message.signature,
    )  # fmt: skip
    _check_hello_reply(reply)
    return reply


def encode_statistics(statistics: Statistics) -> bytes:
    """The scaler's entries as bytes; at most ``entries_per_message`` of them."""
    _check_statistics(statistics)
    message = _wire.Statistics(version=VERSION, name=statistics.name, frozen=statistics.frozen)
    for entry in statistics.entries:
        vectors = {name: getattr(entry, name) for name in ("sum", "square", "largest")}
        packed = {name: _packed(vector, False).tobytes() for name, vector in vectors.items() if vector is not None}
        message.entries.add(name=entry.name, rows=entry.rows, **packed)
    return _sealed(message)


def decode_statistics(data: bytes, dimension: int) -> Statistics:
    """The scaler's entries in ``data``, with vectors of this dimension or none."""
    _fits("message of statistics", data, largest_statistics(dimension))
    entries = [field for field in _fields(data, 0, len(data), FIELDS + ENTRIES) if field[0] == _ENTRIES_AT]
    if len(entries) > entries_per_message(dimension):
        raise Malformed("members", f"{len(entries)} entries in one message, allowed {entries_per_message(dimension)}")
    for _, _, start, end in entries:
        _fields(data, start, end, FIELDS)
    message = _parse("Statistics", data)
    statistics = Statistics(
        message.name, tuple(_get_entry(entry, dimension) for entry in message.entries), message.frozen
    )
    _check_statistics(statistics)
    return statistics


def encode_notice(notice: Notice) -> bytes:
    """A notice as bytes."""
    _check_notice(notice)
    return _sealed(_wire.Notice(version=VERSION, name=notice.name, incarnation=notice.incarnation, text=notice.text))


def decode_notice(data: bytes) -> Notice:
    """The notice in ``data``."""
    message = _open("Notice", data, TEXT_BYTES + SPARE)
    notice = Notice(message.name, message.incarnation, message.text)
    _check_notice(notice)
    return notice


def encode_status_reply(reply: StatusReply) -> bytes:
    """A status as bytes."""
    _check_size(reply.text, STATUS_BYTES, "status")
    return _sealed(_wire.StatusReply(version=VERSION, text=reply.text))


def decode_status_reply(data: bytes) -> StatusReply:
    """The status in ``data``."""
    message = _open("StatusReply", data, STATUS_BYTES + SPARE)
    _check_size(message.text, STATUS_BYTES, "status")
    return StatusReply(message.text)


# From bytes to fields. The walk bounds what protobuf is given: two bytes of an empty member would cost it a hundred.

_HELLO_BYTES = CHARTER_BYTES + MEMBERS * (MEMBER_BYTES + 4) + SPARE


def _open(kind: str, data: bytes, most: int) -> Any:
    """A message within its size, with few enough fields, and of our version."""
    _fits(kind, data, most)
    _fields_of(kind, data)
    return _parse(kind, data)


def _fits(kind: str, data: bytes, most: int) -> None:
    if len(data) > most:
        raise Malformed("too-large", f"a {kind} of {len(data)} bytes, allowed {most}")


def _fields_of(kind: str, data: bytes) -> list[tuple[int, int, int, int]]:
    """The fields of a message that may carry members: few enough, and none of them too long."""
    fields = _fields(data, 0, len(data), FIELDS + MEMBERS)
    at, count = _MEMBERS_AT.get(kind), 0
    for number, _, start, end in fields:
        if number == at:
            count += 1
            if count > MEMBERS or end - start > MEMBER_BYTES:
                raise Malformed("members", f"more than {MEMBERS} members, or one of more than {MEMBER_BYTES} bytes")
    return fields


def _fields(data: bytes, at: int, end: int, most: int) -> list[tuple[int, int, int, int]]:
    """Number, start of tag, start and end of content of the fields that have a length; the others are walked over."""
    found, count = [], 0
    try:
        while at < end:
            tag, here = data[at], at
            at += 1
            if tag > 127:
                tag, at = _varint(data, here)
            kind = tag & 7
            if kind == 2:
                size = data[at]
                at += 1
                if size > 127:
                    size, at = _varint(data, at - 1)
                found.append((tag >> 3, here, at, at + size))
                at += size
            elif kind == 0:
                while data[at] > 127:
                    at += 1
                at += 1
            elif kind == 1:
                at += 8
            elif kind == 5:
                at += 4
            else:
                raise Malformed("garbage", f"wire type {kind} is not of this format")
            count += 1
            if count > most:
                raise Malformed("too-large", f"more than {most} fields in one message")
    except IndexError:
        at = end + 1
    if at != end:
        raise Malformed("garbage", "a field reaches past the end")
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise Malformed("garbage", "a varint of more than ten bytes")


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _parse(kind: str, data: bytes) -> Any:
    """Fields by name, of our version; protobuf keeps those it does not know, and nobody looks at them."""
    try:
        message = getattr(_wire, kind).FromString(data)
    except (DecodeError, ValueError, RecursionError) as error:  # the last two: protobuf without its compiled half
        raise Malformed("garbage", f"not a {kind}: {plain(str(error))[:80]}") from None
    if message.version != VERSION:
        says = f"speaks version {message.version}" if message.version else "says no version"
        fix = ": this peer needs a newer gadget-svm" if message.version > VERSION else ""
        raise Malformed("version", f"the other peer {says} of the wire format, this one version {VERSION}{fix}")
    return message


def _sealed(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _greeting(source: Any) -> dict[str, Any]:
    return {
        "name": source.name, "address": source.address, "incarnation": source.incarnation, "nonce": source.nonce,
        "charter": source.charter, "float32": source.float32,
    }  # fmt: skip


def _put_members(message: Any, members: Sequence[Member]) -> Any:
    add = message.members.add
    for m in members:
        add(
            name=m.name, address=m.address, incarnation=m.incarnation, beat=m.beat, state=_state(m.state), rows=m.rows,
            loss=m.loss, slack=m.slack, objective=m.objective,
        )  # fmt: skip
    return message


def _get_members(message: Any) -> tuple[Member, ...]:
    return tuple([
        Member(m.name, m.address, m.incarnation, m.beat, _state(m.state), m.rows, m.loss, m.slack, m.objective)
        for m in message.members
    ])  # fmt: skip


def _state(number: int) -> State:
    if not 0 <= number < len(_STATES):
        raise Malformed("members", f"there is no state {number} of a member: known are 0 to {len(_STATES) - 1}")
    return _STATES[number]


def _get_entry(entry: Any, dimension: int) -> Entry:
    vectors = [
        _unpacked(getattr(entry, name), False, dimension) if entry.HasField(name) else None
        for name in ("sum", "square", "largest")
    ]
    return Entry(entry.name, entry.rows, *vectors)


def _packed(vector: Floats, float32: bool) -> NDArray[Any]:
    """Contiguous and little-endian: the array itself where it is so already."""
    if not float32:
        return np.ascontiguousarray(vector, dtype="<f8")
    if not _within(vector, _BOUND32):
        raise Malformed("not-finite", "a number does not fit into float32: send float64")
    return np.ascontiguousarray(vector, dtype="<f4")


def _unpacked(content: bytes, float32: bool, dimension: int) -> Floats:
    """A read-only view of ``content`` as native float64; a copy only if it is not that already."""
    width = 4 if float32 else 8
    if len(content) != width * dimension:
        wanted = f"expected {dimension} numbers of {width}: do the peers share one charter?"
        raise Malformed("dimension", f"a vector of {len(content)} bytes, {wanted}")
    vector = np.frombuffer(content, dtype="<f4" if float32 else "<f8").astype(np.float64, copy=False)
    vector.setflags(write=False)
    return vector


# What every message promises: the same on the way out and on the way in.


def _within(vector: Floats, bound: int) -> bool:
    """All finite and within a bound, given as its bits: those of doubles order like the numbers, NaN beyond infinity.

    Signed, the largest is that of the positive ones; unsigned, that of the negative ones, which have the top bit.
    """
    if not len(vector):
        return True
    positive, negative = vector.view(np.int64).max(), vector.view(np.uint64).max()
    return int(positive) <= bound and int(negative) <= COUNT + bound


def _check_vector(vector: Floats) -> None:
    if vector.ndim != 1 or vector.dtype != np.float64:
        raise Malformed("dimension", f"a vector is one row of float64, this is {vector.dtype} of shape {vector.shape}")
    if not _within(vector, _BOUND):
        raise Malformed("not-finite", f"the vector holds NaN, infinity or a number beyond {LARGEST:g}")


def _check_number(value: float, what: str) -> None:
    if not -LARGEST <= value <= LARGEST:  # NaN is not
        raise Malformed("not-finite", f"{what} is {value!r}: not finite, or beyond {LARGEST:g}")


def _check_count(value: int, what: str, least: int = 0) -> None:
    if not least <= value < COUNT:
        raise Malformed("sequence", f"{what} is {value}, allowed {least} to 2**63 - 1")


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise Malformed("name", f"{name[:64]!r} is no name: 1 to 63 of a-z, 0-9, '.', '-', not at the ends")


def _check_address(address: str) -> None:
    match = ADDRESS.fullmatch(address)
    good = match is not None and int(match[2]) < 65536
    if match is not None and match[1] is not None:
        try:
            IPv6Address(match[1])
        except AddressValueError:
            good = False
    if not good:
        raise Malformed("name", f"{address[:80]!r} is no address: host:port or [IPv6]:port")


def _check_size(value: str, most: int, what: str) -> None:
    try:
        size = len(value) if len(value) > most or value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise Malformed("garbage", f"the {what} holds half a sign (a lone surrogate)") from None
    if size > most:
        raise Malformed("too-large", f"the {what} takes {size} bytes, allowed {most}")


def _check_text(text: str) -> None:
    if text:
        if not text.isprintable():
            raise Malformed("garbage", "the text is not one printable line")
        _check_size(text, TEXT_BYTES, "text")


def _check_bytes(value: bytes, what: str, least: int, most: int) -> None:
    if not least <= len(value) <= most:
        reason: Reason = "too-large" if len(value) > most else "garbage"
        raise Malformed(reason, f"the {what} has {len(value)} bytes, allowed {least} to {most}")


def _check_members(members: Sequence[Member]) -> None:
    if len(members) > MEMBERS:
        raise Malformed("members", f"{len(members)} members in one message, allowed {MEMBERS}")
    for m in members:
        _check_name(m.name)
        _check_address(m.address)
        _check_count(m.incarnation, "a member's incarnation", 1)
        _check_count(m.beat, "a member's beat")
        for value in (m.rows, m.loss, m.slack, m.objective):
            _check_number(value, "a member's number")
        if m.rows < 0:
            raise Malformed("members", f"a member with {m.rows} rows")


def _check_letter(letter: Letter) -> None:
    if len(letter.run) != RUN_BYTES:
        raise Malformed("run", f"a run is known by {RUN_BYTES} bytes, not {len(letter.run)}")
    _check_name(letter.sender)
    _check_name(letter.receiver)
    _check_count(letter.incarnation, "the sender's incarnation", 1)
    _check_count(letter.receiver_incarnation, "the receiver's incarnation")
    _check_count(letter.seq, "the sequence number")
    _check_count(letter.time, "the time")
    _check_number(letter.weight, "the weight")
    if letter.note is not None:
        _check_number(letter.note, "the note")
    if letter.vector is not None:
        _check_vector(letter.vector)
    _check_members(letter.members)


def _check_ack(ack: Ack) -> None:
    _check_count(ack.incarnation, "the incarnation", 1)
    _check_count(ack.beat, "the beat")
    _check_text(ack.text)
    _check_members(ack.members)


def _check_hello(hello: Hello) -> None:
    _check_name(hello.name)
    _check_address(hello.address)
    _check_count(hello.incarnation, "the incarnation", 1)
    _check_bytes(hello.nonce, "nonce", NONCE_BYTES, NONCE_BYTES)
    _check_size(hello.charter, CHARTER_BYTES, "charter")
    _check_members(hello.members)


def _check_hello_reply(reply: HelloReply) -> None:
    _check_hello(reply)
    _check_text(reply.text)
    _check_bytes(reply.certificate, "certificate", 0, CERTIFICATE_BYTES)
    _check_bytes(reply.signature, "signature", 0, SIGNATURE_BYTES)


def _check_statistics(statistics: Statistics) -> None:
    _check_name(statistics.name)
    if statistics.frozen:
        _check_bytes(statistics.frozen, "digest", DIGEST_BYTES, DIGEST_BYTES)
    lengths: set[int] = set()
    for entry in statistics.entries:
        _check_name(entry.name)
        _check_number(entry.rows, "the number of rows")
        if entry.rows < 0:
            raise Malformed("members", f"an entry of {entry.rows} rows")
        for vector in (entry.sum, entry.square, entry.largest):
            if vector is not None:
                _check_vector(vector)
                lengths.add(len(vector))
    if len(lengths) > 1:
        raise Malformed("dimension", f"vectors of several lengths in one message: {sorted(lengths)[:4]}")
    most = entries_per_message(max(lengths, default=0))
    if len(statistics.entries) > most:
        raise Malformed("members", f"{len(statistics.entries)} entries in one message, allowed {most}")
    if len({entry.name for entry in statistics.entries}) < len(statistics.entries):
        raise Malformed("members", "two entries of one site: it would count twice")


def _check_notice(notice: Notice) -> None:
    _check_name(notice.name)
    _check_count(notice.incarnation, "the incarnation")
    _check_text(notice.text)
