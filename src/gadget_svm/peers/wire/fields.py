"""Bytes and fields: the messages of wire.proto as protobuf's classes, and a walk over bytes before protobuf sees any.

The walk bounds what protobuf is given: two bytes of an empty member would cost it a hundred. Knows no values.
"""

from collections.abc import Sequence
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from gadget_svm.peers.member import State
from gadget_svm.peers.messages import (
    FIELDS,
    KEPT,
    KEPT_BYTES,
    MEMBER_BYTES,
    MEMBERS,
    METHODS,
    SERVICE,
    VERSION,
    Malformed,
    Status,
    plain,
)

# The messages, in the order of their numbers: fields may be added at the end, none ever goes. "?" has presence,
# "*" repeats. wire.proto says the same.
_MESSAGES = {
    "Member": "name:string address:string incarnation:uint64 beat:uint64 state:State "
    "rows:double loss:double slack:double objective:double",
    "Kept": "name:string incarnation:uint64",
    "Letter": "version:uint32 run:bytes sender:string incarnation:uint64 receiver:string receiver_incarnation:uint64 "
    "seq:uint64 time:uint64 weight:double note:double? wanted:bool members:Member* vector:bytes? vector32:bytes? "
    "last:bool kept:Kept*",
    "Ack": "version:uint32 status:Status incarnation:uint64 beat:uint64 text:string members:Member*",
    "Hello": "version:uint32 name:string address:string incarnation:uint64 nonce:bytes charter:string float32:bool "
    "members:Member*",
    "HelloReply": "version:uint32 name:string address:string incarnation:uint64 nonce:bytes charter:string "
    "float32:bool members:Member* accepted:bool text:string certificate:bytes signature:bytes",
    "Entry": "name:string rows:double sum:bytes? spread:bytes? largest:bytes?",
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


KINDS: Any = _classes()
"""The class of every message by its name: the one place where types end."""
_MEMBERS_AT = {name: _number_of(name, "members") for name, text in _MESSAGES.items() if "members:" in text}
_KEPT_AT = _number_of("Letter", "kept")
ENTRIES_AT = _number_of("Statistics", "entries")
VECTOR, VECTOR32 = _number_of("Letter", "vector"), _number_of("Letter", "vector32")


def opened(kind: str, data: bytes, most: int) -> Any:
    """A message within its size, with few enough fields, and of our version."""
    fits(kind, data, most)
    fields_of(kind, data)
    return parse(kind, data)


def fits(kind: str, data: bytes, most: int) -> None:
    """No longer than allowed."""
    if len(data) > most:
        raise Malformed("too-large", f"a {kind} of {len(data)} bytes, allowed {most}")


def fields_of(kind: str, data: bytes) -> list[tuple[int, int, int, int]]:
    """The fields of a message that may carry members: few enough, and none of them too long."""
    fields = walk(data, 0, len(data), FIELDS + MEMBERS + KEPT)
    _few(fields, _MEMBERS_AT.get(kind), MEMBERS, MEMBER_BYTES, "members")
    if kind == "Letter":
        _few(fields, _KEPT_AT, KEPT, KEPT_BYTES, "who are kept")
    return fields


def _few(fields: Sequence[tuple[int, int, int, int]], at: int | None, most: int, size: int, what: str) -> None:
    sizes = [end - start for number, _, start, end in fields if number == at]
    if len(sizes) > most or max(sizes, default=0) > size:
        raise Malformed("members", f"more than {most} {what}, or one of more than {size} bytes")


def walk(data: bytes, at: int, end: int, most: int) -> list[tuple[int, int, int, int]]:
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


def varint_bytes(value: int) -> bytes:
    """A length as protobuf writes it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def parse(kind: str, data: bytes) -> Any:
    """Fields by name, of our version; protobuf keeps those it does not know, and nobody looks at them."""
    try:
        message = getattr(KINDS, kind).FromString(data)
    except (DecodeError, ValueError, RecursionError) as error:  # the last two: protobuf without its compiled half
        raise Malformed("garbage", f"not a {kind}: {plain(str(error))[:80]}") from None
    if message.version != VERSION:
        says = f"speaks version {message.version}" if message.version else "says no version"
        fix = ": this peer needs a newer gadget-svm" if message.version > VERSION else ""
        raise Malformed("version", f"the other peer {says} of the wire format, this one version {VERSION}{fix}")
    return message


def sealed(message: Any) -> bytes:
    """As bytes."""
    data: bytes = message.SerializeToString()
    return data
