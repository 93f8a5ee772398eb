"""A walk over the fields of a message before protobuf sees it, so that its memory is bounded. Knows no values.

Without it, two bytes for an empty member would cost a hundred in memory.
"""

from typing import NamedTuple

from gadget_svm.peers.wire.limits import FIELDS, MalformedError


class Field(NamedTuple):
    """A field that has a length, by where it is in the data."""

    number: int
    tag: int  # where its tag begins
    start: int
    end: int


def walk(data: bytes, at: int, end: int, most: int = FIELDS) -> list[Field]:
    """Return the fields that have a length, between two places in the data; skip the others, but count them."""
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
                found.append(Field(tag >> 3, here, at, at + size))
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
                raise MalformedError("garbage", f"wire type {kind} is not allowed")
            count += 1
            if count > most:
                raise MalformedError("too-large", f"more than {most} fields in one message")
    except IndexError:
        at = end + 1
    if at != end:
        raise MalformedError("garbage", "a field reaches past the end of its message")
    return found


def check_repeated(data: bytes, at: int, end: int, number: int, most: int, size: int, what: str) -> list[Field]:
    """Walk a message with a repeated field: at most ``most`` of them, of at most ``size`` bytes each; return these."""
    repeated = [field for field in walk(data, at, end, FIELDS + most) if field.number == number]
    if len(repeated) > most or any(field.end - field.start > size for field in repeated):
        raise MalformedError("members", f"more than {most} {what} in one message, or one of more than {size} bytes")
    return repeated


def varint(value: int) -> bytes:
    """Return a number as protobuf writes lengths and tags."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise MalformedError("garbage", "a varint of more than ten bytes")
