"""One state file: named arrays and a JSON description as bytes, and back. Knows of one file, not of generations.

A file: a preamble (magic, version, generation, sizes, CRC-32), a JSON header, each array's bytes at a multiple of 64,
and the BLAKE2b digest of all before it. Nothing in a file is ever executed, or looked at before the digest fits.
"""

import errno
import json
import math
import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
T = TypeVar("T")

MAGIC = b"GADGETCP"
VERSION = 1
PREAMBLE = struct.Struct("<8sIIQQ")  # magic, version, bytes of the header, generation, bytes of the file
CHECK = struct.Struct("<I")  # CRC-32 of the preamble: sizes and generation are believed before the rest is read
START = PREAMBLE.size + CHECK.size
DIGEST = 32
ALIGN = 64
CHUNK = 1 << 20
LARGEST_HEADER = 16 << 20
LONGEST_NAME = 200
DTYPES = {
    np.dtype(kind).str: np.dtype(kind)
    for kind in ("<f8", "<f4", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1")
}


class CheckpointError(RuntimeError):
    """The state cannot be saved or read; the text says why and what to do."""


class Damaged(Exception):  # noqa: N818 - a finding about one file, for `checkpoint` alone
    """One file is not what was written; the other generation may be."""


class Preamble(NamedTuple):
    """What a file says of itself."""

    header: int
    generation: int
    size: int


# Writing


def header_of(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> bytes:
    """The JSON header, padded with blanks so that the first array is aligned."""
    for name, array in arrays.items():
        _check_name(name, TypeError)
        if type(array) is not np.ndarray or array.dtype.str not in DTYPES:
            kind = getattr(array, "dtype", type(array).__name__)
            raise TypeError(f"a checkpoint cannot hold {name!r} ({kind}): only arrays of {', '.join(sorted(DTYPES))}")
    entries = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    try:
        text = json.dumps({"arrays": entries, "about": dict(about)}, separators=(",", ":")).encode()
    except (ValueError, RecursionError) as error:
        raise TypeError(f"the description of a checkpoint is not plain JSON: {error}") from error
    _check_keys(about)
    if len(text) > LARGEST_HEADER:
        raise ValueError(f"the description of a checkpoint takes {len(text)} bytes, at most {LARGEST_HEADER} are kept")
    return text + b" " * (-(START + len(text)) % ALIGN)


def _check_keys(value: Any) -> None:
    """JSON would turn the key 7 into "7" without a word."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(
                    f"the description of a checkpoint has the key {key!r}: only texts come back as they were"
                )
            _check_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner)


def _check_name(name: Any, kind: type[Exception]) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise kind(f"an array is called {str(name)[:80]!r}: names are texts of 1 to {LONGEST_NAME} characters")


def fill(descriptor: int, generation: int, header: bytes, arrays: Mapping[str, Array]) -> None:
    """Write a whole file; `header_of` has seen the arrays."""
    size = START + len(header) + sum(_padded(array.nbytes) for array in arrays.values()) + DIGEST
    preamble = PREAMBLE.pack(MAGIC, VERSION, len(header), generation, size)
    digest = blake2b(digest_size=DIGEST)
    for piece in (preamble + CHECK.pack(zlib.crc32(preamble)), header):
        digest.update(piece)
        _put(descriptor, piece)
    for array in arrays.values():
        for piece in _pieces(array):
            digest.update(piece)
            _put(descriptor, piece)
    _put(descriptor, digest.digest())


def _pieces(array: Array) -> Iterator[bytes]:
    """Copies of a chunk each, so that what is hashed is what is written; then the blanks up to the next array."""
    view = np.asarray(array, order="C").reshape(-1).view(np.uint8)
    for start in range(0, view.size, CHUNK):
        yield view[start : start + CHUNK].tobytes()
    yield bytes(-view.size % ALIGN)


def _put(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        taken = os.write(descriptor, rest)  # a disk that is filling up takes a part before it refuses
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[taken:]


def _padded(size: int) -> int:
    return size + -size % ALIGN


# Reading


def glance(path: Path) -> Preamble | Damaged | None:
    """What the file says of itself, without reading the rest; None if there is none."""
    try:
        return _open(path, _preamble)
    except FileNotFoundError:
        return None
    except Damaged as finding:
        return finding


def read(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the description of a file; Damaged if it is not what was written."""
    return _open(path, _read)


def _open(path: Path, read: Callable[[FileIO, Path], T]) -> T:
    """Neither links nor pipes are followed. A disk that cannot give the bytes back has damaged them."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CheckpointError(f"{path} is not a file: move it away")
        return read(FileIO(descriptor, closefd=False), path)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise Damaged("cannot be read from the disk") from error
    finally:
        os.close(descriptor)


def _preamble(file: FileIO, path: Path) -> Preamble:
    """Its own check is made first: only what was written by us, by this version or another, is believed."""
    start = file.read(START)
    if len(start) < START:
        raise Damaged("is cut off" if start else "is empty")
    front, (check,) = start[: PREAMBLE.size], CHECK.unpack(start[PREAMBLE.size :])
    magic, version, header, generation, size = PREAMBLE.unpack(front)
    if magic != MAGIC or zlib.crc32(front) != check:
        raise Damaged("does not begin like a state file")
    if version != VERSION:
        raise CheckpointError(
            f"{path} is of format {version}, this program reads {VERSION}: use the version that wrote it"
        )
    there = os.fstat(file.fileno()).st_size
    if size != there:
        raise Damaged(f"has {there} bytes instead of {size}")
    if header > LARGEST_HEADER or START + header + DIGEST > size or (START + header) % ALIGN:
        raise Damaged("has a header of impossible size")
    return Preamble(header, generation, size)


def _read(file: FileIO, path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The whole file in one buffer of just its size; nothing of it is looked at before the digest fits."""
    front = _preamble(file, path)
    file.seek(0)
    buffer = np.empty(front.size, dtype=np.uint8)
    rest = buffer.data
    while rest:
        taken = file.readinto(rest[:CHUNK])
        if not taken:
            raise Damaged("is cut off")
        rest = rest[taken:]
    if blake2b(buffer[:-DIGEST].data, digest_size=DIGEST).digest() != buffer[-DIGEST:].tobytes():
        raise Damaged("does not match its checksum")
    header = buffer[START : START + front.header].tobytes()
    return _parse(header, buffer[START + front.header : -DIGEST])


def _parse(header: bytes, body: Array) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays, as views of the body, and the description."""
    try:
        content = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise Damaged("has a header that is not JSON") from error
    match content:
        case {"arrays": list(entries), "about": dict(about), **others} if not others:
            pass
        case _:
            raise Damaged("has a header without arrays or description")
    arrays: dict[str, Array] = {}
    start = 0
    for entry in entries:
        name, kind, shape, size = _entry(entry)
        if name in arrays or size > body.size - start:
            raise Damaged(f"has an array {name!r} twice or beyond its end")
        arrays[name] = _array(body[start : start + size], kind, shape)
        start += _padded(size)
    if start != body.size:
        raise Damaged("has bytes that belong to no array")
    return arrays, about


def _entry(entry: Any) -> tuple[str, np.dtype[Any], list[int], int]:
    match entry:
        case [name, str(kind), list(shape)] if kind in DTYPES and len(shape) <= 32:
            _check_name(name, Damaged)
        case _:
            raise Damaged("has an array of unknown kind")
    if not all(type(length) is int and 0 <= length < 2**62 for length in shape):
        raise Damaged(f"has an array {name!r} of impossible shape")
    return name, DTYPES[kind], shape, math.prod(shape) * DTYPES[kind].itemsize


def _array(data: Array, kind: np.dtype[Any], shape: list[int]) -> Array:
    if kind.kind == "b" and data.size and data.max() > 1:
        raise Damaged("has truth values that are neither true nor false")
    try:
        return data.view(kind).reshape(shape)
    except ValueError as error:  # no elements, and lengths that numpy cannot multiply
        raise Damaged("has an array of impossible shape") from error
