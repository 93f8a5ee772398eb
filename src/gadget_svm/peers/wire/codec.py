"""Turns frames into bytes and back. The fields of a message have the names and types of its dataclass.

`decode` returns a message that keeps every rule of `validation`, or raises `MalformedError`; `encode` refuses what the
other end would refuse. Sizes and numbers of fields are checked before protobuf sees the bytes (`fields`). The vector
of a push never goes through protobuf: it is copied once, with the bytes before and after it.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import cache, partial
from typing import Any, get_args, get_origin

import numpy as np
from google.protobuf.message import DecodeError

from gadget_svm.core.types import Floats
from gadget_svm.peers.wire import limits as bounds
from gadget_svm.peers.wire import messages as m
from gadget_svm.peers.wire import peer_pb2 as pb
from gadget_svm.peers.wire import validation
from gadget_svm.peers.wire.fields import varint, walk
from gadget_svm.peers.wire.limits import Limits, MalformedError

SERVICE = "gadget.v2.Peer"
FrameContent = m.Message | m.Challenge | m.SignedHello

_KINDS: dict[int, Any] = dict(enumerate((
    m.Challenge, m.SignedHello, m.Refusal, m.Heartbeat, m.Push, m.Acknowledgement, m.Statistics, m.CertificateProbe,
    m.CertificateSums, m.Certified, m.Leave,
), 1))  # fmt: skip
"""The messages by the number of their field in a frame."""
_NUMBERS: dict[type[Any], int] = {kind: number for number, kind in _KINDS.items()}
_REPEATED: dict[type[Any], tuple[str, int]] = {
    kind: (name, getattr(pb, kind.__name__).DESCRIPTOR.fields_by_name[name].number)
    for kind in [m.Hello, *_KINDS.values()]
    for name in ("members", "sites", "entries")
    if name in kind.__slots__
}
_CONTROL: dict[bool, tuple[Any, int]] = {
    False: (pb.ControlRequest, bounds.SPARE), True: (pb.ControlReply, bounds.STATUS_BYTES),
}  # fmt: skip
_VECTOR, _VECTOR32 = pb.Push.VECTOR_FIELD_NUMBER, pb.Push.VECTOR32_FIELD_NUMBER


def encode(message: FrameContent, limits: Limits) -> bytes:
    """Return a message as the bytes of a frame. A `Hello` is encoded without a signature."""
    validation.check(message, limits)
    if isinstance(message, m.Hello):
        message = m.SignedHello(encode_hello(message, limits), b"")
    parts = _push_parts(message) if isinstance(message, m.Push) else [_filled(message).SerializeToString()]
    return b"".join((varint(_NUMBERS[type(message)] << 3 | 2), varint(sum(map(len, parts))), *parts))


def decode(data: bytes, limits: Limits) -> FrameContent:
    """Return the message in a frame. A hello is a `SignedHello`: verify the signature, then call `decode_hello`."""
    _check_size("frame", len(data), limits.frame_bytes)
    content = walk(data, 0, len(data), 1)
    if len(content) != 1 or content[0].number not in _KINDS:
        raise MalformedError("garbage", "a frame holds one message of a known kind, this one does not")
    message: FrameContent = _decoded(_KINDS[content[0].number], data, content[0].start, content[0].end, limits)
    return message


def encode_hello(hello: m.Hello, limits: Limits) -> bytes:
    """Return the bytes of a hello that are to be signed."""
    validation.check(hello, limits)
    data: bytes = _filled(hello).SerializeToString()
    return data


def decode_hello(data: bytes, limits: Limits) -> m.Hello:
    """Return the hello in the bytes of a `SignedHello`."""
    hello: m.Hello = _decoded(m.Hello, data, 0, len(data), limits)
    return hello


def encode_control(text: str, reply: bool = False) -> bytes:
    """Return the bytes of a request of the local command line or, with ``reply``, of the answer to one."""
    kind, most = _CONTROL[reply]
    data: bytes = kind(version=m.VERSION, text=text).SerializeToString()
    _check_size(kind.__name__, len(data), most)
    return data


def decode_control(data: bytes, reply: bool = False) -> str:
    """Return the text of a request of the local command line (one printable line) or, with ``reply``, of the answer."""
    kind, most = _CONTROL[reply]
    _check_size(kind.__name__, len(data), most)
    walk(data, 0, len(data))
    message = _parsed(kind, data)
    validation.check_version(message.version)
    text: str = message.text
    if not reply:
        validation.check_text(text, "text")
    return text


def _push_parts(push: m.Push) -> list[Any]:
    head = pb.Push(
        incarnation=push.incarnation, receiver_incarnation=push.receiver_incarnation, seq=push.seq, time=push.time,
        weight=push.weight, note=push.note, scale=push.scale,
    ).SerializeToString()  # fmt: skip
    float32 = push.float32 and validation.within(push.vector, validation.BOUND32)  # larger numbers need float64
    vector = np.ascontiguousarray(push.vector, dtype="<f4" if float32 else "<f8")
    tag = bytes(((_VECTOR32 if float32 else _VECTOR) << 3 | 2,))
    return [head, tag, varint(vector.nbytes), vector.data.cast("B")]


def _decoded(kind: type[Any], data: bytes, start: int, end: int, limits: Limits) -> Any:
    """Return the message of this kind between two positions in the data. MalformedError: it breaks a rule."""
    _check_size(kind.__name__, end - start, limits.sizes[kind.__name__])
    if kind is m.Push:
        message: Any = _decoded_push(data, start, end)
    else:
        _check_parts(kind, data, start, end, limits)
        message = _read(kind, _parsed(getattr(pb, kind.__name__), data[start:end]))
    validation.check(message, limits)
    return message


def _check_parts(kind: type[Any], data: bytes, start: int, end: int, limits: Limits) -> None:
    """Refuse too many fields, and too many or too large parts in the repeated field of a message."""
    name, number = _REPEATED.get(kind, ("", -1))
    most, size = limits.repeated.get(name, (0, 0))
    parts = [field for field in walk(data, start, end, bounds.FIELDS + most) if field.number == number]
    if len(parts) > most or any(part.end - part.start > size for part in parts):
        raise MalformedError("members", f"more than {most} {name} in one message, or one of more than {size} bytes")
    for part in parts:
        walk(data, part.start, part.end)


def _decoded_push(data: bytes, start: int, end: int) -> m.Push:
    found = [field for field in walk(data, start, end) if field.number in (_VECTOR, _VECTOR32)]
    if len(found) != 1:
        raise MalformedError("garbage", f"a push has one vector, this one has {len(found)}")
    number, tag, at, stop = found[0]
    head = _parsed(pb.Push, data[start:tag] + data[stop:end])
    note, float32 = head.note if head.HasField("note") else None, number == _VECTOR32
    vector = _unpacked(data[at:stop], "<f4" if float32 else "<f8")
    return m.Push(
        head.incarnation, head.receiver_incarnation, head.seq, head.time, vector, head.weight, note, head.scale, float32
    )


def _parsed(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except (DecodeError, ValueError, RecursionError) as error:  # the last two: protobuf without its compiled half
        raise MalformedError("garbage", f"not a {kind.__name__}: {bounds.printable(str(error))[:80]}") from None


def _check_size(what: str, size: int, most: int) -> None:
    if size > most:
        raise MalformedError("too-large", f"a {what} of {size} bytes, allowed {most}")


def _filled(message: Any) -> Any:
    """Return a message as a protobuf message; the fields have the same names."""
    values = {name: _written(getattr(message, name)) for name in message.__slots__}
    return getattr(pb, type(message).__name__)(**values)


def _written(value: Any) -> Any:
    if isinstance(value, int | float | str | bytes):
        return value
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value, dtype="<f8").tobytes()
    if isinstance(value, tuple):
        return [_filled(each) for each in value]
    return _filled(value) if is_dataclass(value) else value


def _read(kind: Any, source: Any) -> Any:
    """Return a protobuf message as an object of the dataclass ``kind``."""
    return kind(**{
        name: None if optional and not source.HasField(name) else read(getattr(source, name))
        for name, optional, read in _readers(kind)
    })  # fmt: skip


@cache
def _readers(kind: Any) -> list[tuple[str, bool, Callable[[Any], Any]]]:
    """Return the fields of a message, each with whether it may be missing, and how it is read."""
    found = []
    for each in fields(kind):
        optional = type(None) in get_args(each.type)
        found.append((each.name, optional, _reader(get_args(each.type)[0] if optional else each.type)))
    return found


def _reader(hint: Any) -> Callable[[Any], Any]:
    if get_origin(hint) is tuple:
        one = partial(_read, get_args(hint)[0])
        return lambda parts: tuple([one(part) for part in parts])
    if hint == Floats:
        return _unpacked
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(_read, hint)
    return partial(_one_of, hint) if issubclass(hint, IntEnum) else lambda value: value


def _one_of(kind: type[IntEnum], number: int) -> IntEnum:
    try:
        return kind(number)
    except ValueError:
        raise MalformedError("garbage", f"unknown {kind.__name__} {number}") from None


def _unpacked(content: bytes, code: str = "<f8") -> Floats:
    """Return the content as a read-only float64 array. It is a view of the bytes if these are float64 already."""
    if len(content) % np.dtype(code).itemsize:
        raise MalformedError("dimension", f"a vector of {len(content)} bytes: not a whole number of {code}")
    vector = np.frombuffer(content, dtype=code).astype(np.float64, copy=False)
    vector.setflags(write=False)
    return vector
