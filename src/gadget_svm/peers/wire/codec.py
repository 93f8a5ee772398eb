"""The wire format: from bytes to values and back. Owns the encoders and the decoders, a pair for every message.

Decoders return a frozen dataclass, every check made, or raise ``Malformed``; encoders refuse what the decoder at the
other end would. What a value may be is in `checks`, what bytes may be in `wire`; who may say what is nobody's business
here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.peers import checks, wire
from gadget_svm.peers.member import Member, State
from gadget_svm.peers.messages import (
    CERTIFICATE_BYTES,
    CHARTER_BYTES,
    ENTRIES,
    FIELDS,
    MEMBER_BYTES,
    MEMBERS,
    RUN_BYTES,
    SIGNATURE_BYTES,
    SPARE,
    STATUS_BYTES,
    TEXT_BYTES,
    VERSION,
    Ack,
    Entry,
    Floats,
    Hello,
    HelloReply,
    Kept,
    Letter,
    Malformed,
    Notice,
    Statistics,
    Status,
    StatusReply,
    entries_per_message,
    largest_letter,
    largest_statistics,
)

_STATES = tuple(State)
_HELLO_BYTES = CHARTER_BYTES + MEMBERS * (MEMBER_BYTES + 4) + SPARE


def encode_letter(letter: Letter, float32: bool = False) -> bytes:
    """A letter as bytes; its vector is copied once. ``float32``: at half the size, rounded."""
    checks.check_letter(letter)
    head = wire.KINDS.Letter(
        version=VERSION, run=letter.run, sender=letter.sender, incarnation=letter.incarnation,
        receiver=letter.receiver, receiver_incarnation=letter.receiver_incarnation, seq=letter.seq, time=letter.time,
        weight=letter.weight, note=letter.note, wanted=letter.wanted,
    )  # fmt: skip
    _put_members(head, letter.members)
    for each in letter.kept:
        head.kept.add(name=each.name, incarnation=each.incarnation)
    if letter.last:
        head.last = True
    start: bytes = head.SerializeToString()
    if letter.vector is None:
        return start
    values = _packed(letter.vector, float32)
    tag = (wire.VECTOR32 if float32 else wire.VECTOR) << 3 | 2  # below 128: one byte
    return b"".join((start, bytes((tag,)), wire.varint_bytes(values.nbytes), values.data))


def decode_letter(data: bytes, run: bytes, dimension: int) -> Letter:
    """The letter in ``data``, of this run and with a vector of this dimension or none."""
    wire.fits("letter", data, largest_letter(dimension))
    found = [field for field in wire.fields_of("Letter", data) if field[0] in (wire.VECTOR, wire.VECTOR32)]
    if len(found) > 1:
        raise Malformed("garbage", "a letter carries one vector or none, this one has several")
    head, vector = data, None
    if found:  # the large part never goes through protobuf
        [(number, tag, start, end)] = found
        head = data[:tag] + data[end:]
    message = wire.parse("Letter", head)
    if message.run != run:
        raise Malformed("run", f"a letter of run {message.run[:RUN_BYTES].hex() or 'none'}, here runs {run.hex()}")
    if found:
        vector = _unpacked(data[start:end], number == wire.VECTOR32, dimension)
    letter = Letter(
        message.run, message.sender, message.incarnation, message.receiver, message.receiver_incarnation, message.seq,
        message.time, vector, message.weight, message.note if message.HasField("note") else None, message.wanted,
        _get_members(message), message.last, tuple(Kept(each.name, each.incarnation) for each in message.kept),
    )  # fmt: skip
    checks.check_letter(letter)
    return letter


def encode_ack(ack: Ack) -> bytes:
    """An answer as bytes."""
    checks.check_ack(ack)
    message = wire.KINDS.Ack(
        version=VERSION, status=int(ack.status), incarnation=ack.incarnation, beat=ack.beat, text=ack.text
    )
    return wire.sealed(_put_members(message, ack.members))


def decode_ack(data: bytes) -> Ack:
    """The answer in ``data``."""
    message = wire.opened("Ack", data, TEXT_BYTES + MEMBERS * (MEMBER_BYTES + 4) + SPARE)
    if not 0 <= message.status < len(Status):
        raise Malformed("garbage", f"there is no status {message.status}: known are 0 to {len(Status) - 1}")
    ack = Ack(Status(message.status), message.incarnation, message.beat, message.text, _get_members(message))
    checks.check_ack(ack)
    return ack


def encode_hello(hello: Hello) -> bytes:
    """The first words as bytes."""
    checks.check_hello(hello)
    return wire.sealed(_put_members(wire.KINDS.Hello(version=VERSION, **_greeting(hello)), hello.members))


def decode_hello(data: bytes) -> Hello:
    """The first words in ``data``."""
    message = wire.opened("Hello", data, _HELLO_BYTES)
    hello = Hello(**_greeting(message), members=_get_members(message))
    checks.check_hello(hello)
    return hello


def encode_hello_reply(reply: HelloReply) -> bytes:
    """The answer to the first words as bytes."""
    checks.check_hello_reply(reply)
    message = wire.KINDS.HelloReply(
        version=VERSION, accepted=reply.accepted, text=reply.text, certificate=reply.certificate,
        signature=reply.signature, **_greeting(reply),
    )  # fmt: skip
    return wire.sealed(_put_members(message, reply.members))


def decode_hello_reply(data: bytes) -> HelloReply:
    """The answer to the first words in ``data``."""
    message = wire.opened("HelloReply", data, _HELLO_BYTES + TEXT_BYTES + CERTIFICATE_BYTES + SIGNATURE_BYTES)
    reply = HelloReply(
        **_greeting(message), members=_get_members(message), accepted=message.accepted, text=message.text,
        certificate=message.certificate, signature=message.signature,
    )  # fmt: skip
    checks.check_hello_reply(reply)
    return reply


def encode_statistics(statistics: Statistics) -> bytes:
    """The scaler's entries as bytes; at most ``entries_per_message`` of them."""
    checks.check_statistics(statistics)
    message = wire.KINDS.Statistics(version=VERSION, name=statistics.name, frozen=statistics.frozen)
    for entry in statistics.entries:
        vectors = {name: getattr(entry, name) for name in ("sum", "spread", "largest")}
        packed = {name: _packed(vector, False).tobytes() for name, vector in vectors.items() if vector is not None}
        message.entries.add(name=entry.name, rows=entry.rows, **packed)
    return wire.sealed(message)


def decode_statistics(data: bytes, dimension: int) -> Statistics:
    """The scaler's entries in ``data``, with vectors of this dimension or none."""
    wire.fits("message of statistics", data, largest_statistics(dimension))
    entries = [field for field in wire.walk(data, 0, len(data), FIELDS + ENTRIES) if field[0] == wire.ENTRIES_AT]
    if len(entries) > entries_per_message(dimension):
        raise Malformed("members", f"{len(entries)} entries in one message, allowed {entries_per_message(dimension)}")
    for _, _, start, end in entries:
        wire.walk(data, start, end, FIELDS)
    message = wire.parse("Statistics", data)
    statistics = Statistics(
        message.name, tuple(_get_entry(entry, dimension) for entry in message.entries), message.frozen
    )
    checks.check_statistics(statistics)
    return statistics


def encode_notice(notice: Notice) -> bytes:
    """A notice as bytes."""
    checks.check_notice(notice)
    return wire.sealed(
        wire.KINDS.Notice(version=VERSION, name=notice.name, incarnation=notice.incarnation, text=notice.text)
    )


def decode_notice(data: bytes) -> Notice:
    """The notice in ``data``."""
    message = wire.opened("Notice", data, TEXT_BYTES + SPARE)
    notice = Notice(message.name, message.incarnation, message.text)
    checks.check_notice(notice)
    return notice


def encode_status_reply(reply: StatusReply) -> bytes:
    """A status as bytes."""
    checks.check_size(reply.text, STATUS_BYTES, "status")
    return wire.sealed(wire.KINDS.StatusReply(version=VERSION, text=reply.text))


def decode_status_reply(data: bytes) -> StatusReply:
    """The status in ``data``."""
    message = wire.opened("StatusReply", data, STATUS_BYTES + SPARE)
    checks.check_size(message.text, STATUS_BYTES, "status")
    return StatusReply(message.text)


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
        for name in ("sum", "spread", "largest")
    ]
    return Entry(entry.name, entry.rows, *vectors)


def _packed(vector: Floats, float32: bool) -> NDArray[Any]:
    """Contiguous and little-endian: the array itself where it is so already."""
    if not float32:
        return np.ascontiguousarray(vector, dtype="<f8")
    if not checks.within(vector, checks.BOUND32):
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
