"""Frames as bytes, and back. Owns what is specific to each kind of message.

`decode` returns a message that keeps every rule of `validation`, or raises `MalformedError`; `encode` refuses what the
other end would. Sizes and numbers of fields are checked before protobuf sees the bytes (`fields`). The vector of a push
never goes through protobuf: it is copied once, with the bytes before and after it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from gadget_svm.core.types import Floats
from gadget_svm.peers.membership.member import Member, State
from gadget_svm.peers.wire import limits as bounds
from gadget_svm.peers.wire import messages as m
from gadget_svm.peers.wire import peer_pb2 as pb
from gadget_svm.peers.wire import validation
from gadget_svm.peers.wire.fields import check_repeated, varint, walk
from gadget_svm.peers.wire.limits import Limits, MalformedError

SERVICE = "gadget.v2.Peer"
FrameContent = m.Message | m.Challenge | m.SignedHello

_VECTOR, _VECTOR32 = pb.Push.VECTOR_FIELD_NUMBER, pb.Push.VECTOR32_FIELD_NUMBER
_STATES, _EDGE_STATES, _REASONS = tuple(State), tuple(m.EdgeState), tuple(m.RefusalReason)


def encode(message: FrameContent, limits: Limits) -> bytes:
    """Return a message as the bytes of a frame. A `Hello` is encoded without a signature."""
    validation.check(message, limits)
    if isinstance(message, m.Push):
        return _encode_push(message)
    if isinstance(message, m.Hello):
        message = m.SignedHello(encode_hello(message, limits), b"")
    content = _filled(getattr(pb, type(message).__name__)(), message).SerializeToString()
    return b"".join((varint(_NUMBERS[type(message)] << 3 | 2), varint(len(content)), content))


def decode(data: bytes, limits: Limits) -> FrameContent:
    """Return the message in a frame; a hello as a `SignedHello`, for `decode_hello` when its signature was verified."""
    _check_size("frame", data, limits.frame_bytes)
    content = walk(data, 0, len(data), 1)
    if len(content) != 1 or content[0].number not in _KINDS:
        raise MalformedError("garbage", "a frame holds one message of a known kind, this one does not")
    number, _, start, end = content[0]
    kind = _KINDS[number]
    if end - start > limits.sizes[kind.__name__]:
        raise MalformedError("too-large", f"a {kind.__name__} of {end - start} bytes: {limits.sizes[kind.__name__]}")
    if kind is m.Push:
        message: FrameContent = _decode_push(data, start, end, limits)
    else:
        message = _decode_content(kind, data[start:end], limits)
    validation.check(message, limits)
    return message


def encode_hello(hello: m.Hello, limits: Limits) -> bytes:
    """Return the bytes of a hello that are to be signed."""
    validation.check(hello, limits)
    data: bytes = _filled(pb.Hello(), hello).SerializeToString()
    return data


def decode_hello(data: bytes, limits: Limits) -> m.Hello:
    """Return the hello in the bytes of a `SignedHello`."""
    _check_size("hello", data, limits.sizes["Hello"])
    hello: m.Hello = _decode_content(m.Hello, data, limits)
    validation.check(hello, limits)
    return hello


def encode_control(text: str, reply: bool = False) -> bytes:
    """Return a request of the local command line, or the answer, which is at most `STATUS_BYTES` long."""
    validation.check_size(text, bounds.STATUS_BYTES, "text")
    kind = pb.ControlReply if reply else pb.ControlRequest
    data: bytes = kind(version=m.VERSION, text=text).SerializeToString()
    return data


def decode_control(data: bytes, reply: bool = False) -> str:
    """Return the text of a request of the local command line, which is one bounds.printable line, or of the answer."""
    _check_size("reply" if reply else "request", data, bounds.STATUS_BYTES if reply else bounds.SPARE)
    walk(data, 0, len(data))
    message = _parsed(pb.ControlReply if reply else pb.ControlRequest, data)
    _check_version(message.version)
    text: str = message.text
    if not reply:
        validation.check_text(text)
    return text


def _encode_push(push: m.Push) -> bytes:
    head = pb.Push(
        incarnation=push.incarnation, receiver_incarnation=push.receiver_incarnation, seq=push.seq, time=push.time,
        weight=push.weight, note=push.note, scale=push.scale,
    ).SerializeToString()  # fmt: skip
    float32 = push.float32 and validation.within(push.vector, validation.BOUND32)  # larger numbers need float64
    vector = np.ascontiguousarray(push.vector, dtype="<f4" if float32 else "<f8")
    tag = bytes(((_VECTOR32 if float32 else _VECTOR) << 3 | 2,)) + varint(vector.nbytes)
    size = len(head) + len(tag) + vector.nbytes
    return b"".join((bytes((_NUMBERS[m.Push] << 3 | 2,)), varint(size), head, tag, vector.data))


def _decode_push(data: bytes, start: int, end: int, limits: Limits) -> m.Push:
    found = [field for field in walk(data, start, end) if field.number in (_VECTOR, _VECTOR32)]
    if len(found) != 1:
        raise MalformedError("garbage", f"a push has one vector, this one has {len(found)}")
    number, tag, at, stop = found[0]
    head = _parsed(pb.Push, data[start:tag] + data[stop:end])
    return m.Push(
        head.incarnation, head.receiver_incarnation, head.seq, head.time,
        _unpacked(data[at:stop], limits.dimension, number == _VECTOR32), head.weight,
        head.note if head.HasField("note") else None, head.scale, number == _VECTOR32,
    )  # fmt: skip


def _decode_content(kind: type[Any], data: bytes, limits: Limits) -> Any:
    parsed, repeated = getattr(pb, kind.__name__), _REPEATED.get(kind, "")
    if not repeated:
        walk(data, 0, len(data))
    else:
        number = parsed.DESCRIPTOR.fields_by_name[repeated].number
        most, size = {
            "members": (bounds.MEMBERS, bounds.MEMBER_BYTES), "sites": (limits.sites, bounds.SITE_BYTES),
            "entries": (limits.entries, len(data)),
        }[repeated]  # fmt: skip
        for field in check_repeated(data, 0, len(data), number, most, size, repeated):
            walk(data, field.start, field.end)
    return _READERS[kind](_parsed(parsed, data), limits)


def _parsed(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except (DecodeError, ValueError, RecursionError) as error:  # the last two: protobuf without its compiled half
        raise MalformedError("garbage", f"not a {kind.__name__}: {bounds.printable(str(error))[:80]}") from None


def _check_size(what: str, data: bytes, most: int) -> None:
    if len(data) > most:
        raise MalformedError("too-large", f"a {what} of {len(data)} bytes, allowed {most}")


def _check_version(version: int) -> None:
    if version != m.VERSION:
        says = f"speaks version {version}" if version else "states no version"
        fix = ": this peer needs a newer gadget-svm" if version > m.VERSION else ""
        raise MalformedError("version", f"the other peer {says} of the protocol, this one version {m.VERSION}{fix}")


def _filled(target: Any, message: Any) -> Any:
    """Copy the fields of a message to those of the same name."""
    for name in message.__slots__:
        value = getattr(message, name)
        if isinstance(value, np.ndarray):
            setattr(target, name, np.ascontiguousarray(value, dtype="<f8").tobytes())
        elif isinstance(value, tuple):
            add = getattr(target, name).add
            for each in value:
                _filled(add(), each)
        elif isinstance(value, m.CertificateId):
            _filled(getattr(target, name), value)
        elif value is not None:
            setattr(target, name, value)
    if isinstance(message, m.Challenge):
        target.version = m.VERSION
    return target


def _unpacked(content: bytes, length: int, float32: bool = False) -> Floats:
    """Return a read-only view of the content as float64; a copy only if it is not that already."""
    width = 4 if float32 else 8
    if len(content) != width * length:
        wanted = f"expected {length} numbers of {width}: do the peers have the same study?"
        raise MalformedError("dimension", f"a vector of {len(content)} bytes, {wanted}")
    vector = np.frombuffer(content, dtype="<f4" if float32 else "<f8").astype(np.float64, copy=False)
    vector.setflags(write=False)
    return vector


def _one_of(values: tuple[Any, ...], number: int, what: str) -> Any:
    if not 0 <= number < len(values):
        raise MalformedError("garbage", f"unknown {what} {number}: 0 to {len(values) - 1} are known")
    return values[number]


def _members(source: Any) -> tuple[Member, ...]:
    return tuple([
        Member(
            each.name, each.address, each.incarnation, each.beat, _one_of(_STATES, each.state, "state of a member"),
            each.rows, each.loss, each.slack, each.objective, each.reachable, each.certified,
        )
        for each in source.members
    ])  # fmt: skip


def _sites(source: Any) -> tuple[m.CoveredSite, ...]:
    return tuple([m.CoveredSite(each.name, each.incarnation, each.rows) for each in source.sites])


def _id(source: Any) -> m.CertificateId:
    return m.CertificateId(source.id.number, source.id.initiator, source.id.incarnation)


def _challenge(source: Any, _: Limits) -> m.Challenge:
    _check_version(source.version)
    return m.Challenge(source.nonce, source.certificate)


def _hello(source: Any, _: Limits) -> m.Hello:
    return m.Hello(
        source.name, source.incarnation, source.study, source.digest, source.address, source.float32, _members(source)
    )


def _refusal(source: Any, _: Limits) -> m.Refusal:
    return m.Refusal(_one_of(_REASONS, source.reason, "reason of a refusal"), source.text, _members(source))


def _heartbeat(source: Any, _: Limits) -> m.Heartbeat:
    return m.Heartbeat(
        source.number, source.incarnation, source.receiver_incarnation,
        _one_of(_EDGE_STATES, source.edge, "state of an edge"), _members(source), source.dial_failed, source.chosen,
    )  # fmt: skip


def _statistics(source: Any, limits: Limits) -> m.Statistics:
    def entry(each: Any) -> m.SiteStatistics:
        vectors = (
            _unpacked(getattr(each, name), limits.features) if each.HasField(name) else None
            for name in ("sum", "spread", "largest")
        )
        return m.SiteStatistics(each.name, each.rows, *vectors)

    return m.Statistics(tuple([entry(each) for each in source.entries]), source.frozen)


def _probe(source: Any, limits: Limits) -> m.CertificateProbe:
    model = _unpacked(source.model, limits.dimension if source.model else 0)
    return m.CertificateProbe(_id(source), source.time, source.scale, model, source.parent)


def _sums(source: Any, limits: Limits) -> m.CertificateSums:
    return m.CertificateSums(_id(source), _unpacked(source.sums, limits.sums), _sites(source))


def _certified(source: Any, limits: Limits) -> m.Certified:
    return m.Certified(
        _id(source), source.time, source.scale, _unpacked(source.model, limits.dimension),
        _unpacked(source.bounds, limits.outputs), _unpacked(source.duals, limits.outputs), _sites(source),
        source.ticks,
    )  # fmt: skip


_READERS: dict[type[Any], Callable[[Any, Limits], Any]] = {
    m.Challenge: _challenge,
    m.SignedHello: lambda source, _: m.SignedHello(source.hello, source.signature),
    m.Hello: _hello,
    m.Refusal: _refusal,
    m.Heartbeat: _heartbeat,
    m.Acknowledgement: lambda source, _: m.Acknowledgement(source.seq, source.incarnation),
    m.Statistics: _statistics,
    m.CertificateProbe: _probe,
    m.CertificateSums: _sums,
    m.Certified: _certified,
    m.Leave: lambda source, _: m.Leave(source.incarnation, source.reason),
}
_REPEATED: dict[type[Any], str] = {
    m.Hello: "members", m.Refusal: "members", m.Heartbeat: "members", m.Statistics: "entries",
    m.CertificateSums: "sites", m.Certified: "sites",
}  # fmt: skip
_KINDS: dict[int, type[Any]] = dict(enumerate((
    m.Challenge, m.SignedHello, m.Refusal, m.Heartbeat, m.Push, m.Acknowledgement, m.Statistics, m.CertificateProbe,
    m.CertificateSums, m.Certified, m.Leave,
), 1))  # fmt: skip
"""The messages by the number of their field in a frame."""
_NUMBERS = {kind: number for number, kind in _KINDS.items()}
