"""A walk over the fields of a message before protobuf sees it, so that its memory is bounded. Knows no values.

Without it, two bytes for an empty member would cost a hundred in memory.
"""

from typing import NamedTuple

from gadget_svm.peers.wire.limits import FIELDS, MalformedError

FIXED_BYTES = {1: 8, 5: 4}
"""The sizes of fixed-size fields, by wire type."""


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
            here = at
            tag, at = _varint(data, at) if data[at] > 127 else (data[at], at + 1)
            kind = tag & 7
            if kind in (0, 2):
                value, at = _varint(data, at) if data[at] > 127 else (data[at], at + 1)
                if kind == 2:
                    found.append(Field(tag >> 3, here, at, at + value))
                    at += value
            elif kind in FIXED_BYTES:
                at += FIXED_BYTES[kind]
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
