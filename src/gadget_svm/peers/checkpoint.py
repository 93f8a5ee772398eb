"""A peer's durable state: named arrays and a JSON description in two generations on disk, and the lock of the folder.

Owns the file format, what survives a kill or a full disk, and the sentences about both. Knows nothing of learning,
and nothing in a file is ever executed. A save takes the older of the slots ``state.0`` and ``state.1``, by one rename.

A file: a preamble (magic, version, generation, sizes, CRC-32), a JSON header, each array's bytes at a multiple of 64,
and the BLAKE2b digest of all before it.
"""

import errno
import fcntl
import json
import math
import os
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
T = TypeVar("T")

SLOTS = ("state.0", "state.1")
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

FIXES = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some space or raise the quota",
    errno.EROFS: "mount the file system writable, or set [peer] state to another folder",
    errno.EACCES: "give the peer's user the right to read and write there",
    errno.EPERM: "give the peer's user the right to read and write there",
    errno.ENOTDIR: "set [peer] state to a folder",
    errno.EEXIST: "set [peer] state to a folder",
    errno.ELOOP: "put a real file or folder in place of the link",
    errno.EIO: "check the disk",
    errno.ENOLCK: "put the state on a local disk",
    errno.EOPNOTSUPP: "put the state on a local disk",
}


class CheckpointError(RuntimeError):
    """The state cannot be saved or read; the text says why and what to do."""


class Damaged(Exception):  # noqa: N818 - a finding about one file, never seen outside
    """One file is not what was written; the other generation may be."""


@dataclass(frozen=True)
class Loaded:
    """A state as it was saved, the file it came from, and what a person should know about the way there."""

    arrays: dict[str, Array]
    about: dict[str, Any]
    path: Path
    warnings: list[str] = field(default_factory=list)


class Preamble(NamedTuple):
    header: int
    generation: int
    size: int


def save(folder: Path, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> Path:
    """Write a new generation over the older one; when this returns, it survives a kill and a power cut.

    The arrays are streamed: beyond them it needs one chunk, and a copy of one array where that is not contiguous.
    They must not change meanwhile. On an error the newest generation is as it was.
    """
    header = _header(arrays, about)
    try:
        _make(folder)
        slot, generation = _turn(folder)
        _write(folder, slot, generation, header, arrays)
    except OSError as error:
        raise _explained("cannot save the state", folder, error) from error
    return slot


def load(folder: Path) -> Loaded | None:
    """The newest good generation, or None where nothing was ever saved.

    A damaged file is named in the warnings and set aside as ``*.damaged``. If no good one is left, nothing is moved
    and it is an error: a peer must not start from nothing unasked.
    """
    try:
        return _newest(folder)
    except OSError as error:
        raise _explained("cannot read the state", folder, error) from error
    except MemoryError as error:
        raise CheckpointError(f"cannot read the state in {folder}: it does not fit into memory") from error


class Lock:
    """One process per folder: an flock on ``lock``, which the death of its holder releases. Children by fork share it.

    Whoever has it knows that nobody is writing, so taking it also removes what killed writers left behind.
    """

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, folder: Path) -> Self:
        """Take the folder, made if missing; if another process has it, the error says which."""
        try:
            _make(folder)
            descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                _take(descriptor, folder)
                _clean(folder)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise _explained("cannot lock the state", folder, error) from error
        return cls(folder, descriptor)

    def release(self) -> None:
        """Give the folder back; again is no harm. The file stays: removing it would race with the next holder."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _take(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        text = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        holder = f"process {text}" if text.isdigit() else "another process"
        raise CheckpointError(
            f"the state in {folder} is in use by {holder}: stop that peer, or give this one its own [peer] state folder"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _clean(folder: Path) -> None:
    for stale in folder.glob("state.*.part"):
        stale.unlink(missing_ok=True)


def _make(folder: Path) -> None:
    """The folder and those above it, for this user alone, and on disk before anything in them is."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        _make(folder.parent)
    with suppress(FileExistsError):  # by a process that starts at the same time; if by a file, what follows says so
        folder.mkdir(mode=0o700)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---- writing


def _header(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> bytes:
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


def _turn(folder: Path) -> tuple[Path, int]:
    """The slot to write next - an empty one, else a damaged one, else the older - and its generation."""
    found = {slot: _glance(folder / slot) for slot in SLOTS}
    generations = [seen.generation for seen in found.values() if isinstance(seen, Preamble)]

    def worth(slot: str) -> int:
        seen = found[slot]
        return -2 if seen is None else -1 if isinstance(seen, Damaged) else seen.generation

    return folder / min(SLOTS, key=worth), max(generations, default=0) + 1


def _write(folder: Path, slot: Path, generation: int, header: bytes, arrays: Mapping[str, Array]) -> None:
    descriptor, name = tempfile.mkstemp(prefix="state.", suffix=".part", dir=folder)  # 0600, and nobody else's
    try:
        try:
            _fill(descriptor, generation, header, arrays)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(name, slot)  # noqa: PTH105 - tests make each of these calls fail in turn
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            os.unlink(name)  # noqa: PTH108
        raise
    _sync(folder)


def _fill(descriptor: int, generation: int, header: bytes, arrays: Mapping[str, Array]) -> None:
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


# ---- reading


def _newest(folder: Path) -> Loaded | None:
    found = {folder / slot: _glance(folder / slot) for slot in SLOTS}
    damaged = {path: seen for path, seen in found.items() if isinstance(seen, Damaged)}
    ages = {path: seen.generation for path, seen in found.items() if isinstance(seen, Preamble)}
    for path in sorted(ages, key=lambda path: ages[path], reverse=True):
        try:
            arrays, about = _open(path, _read)
        except Damaged as finding:
            damaged[path] = finding
        else:
            return Loaded(arrays, about, path, [_set_aside(*one, path) for one in damaged.items()])
    if not damaged:
        return None
    findings = "; ".join(f"{path.name} {finding}" for path, finding in sorted(damaged.items()))
    raise CheckpointError(
        f"no good state is left in {folder}: {findings}. "
        "Restore a copy, or move the files away (--fresh does) to start from nothing"
    )


def _set_aside(path: Path, finding: Damaged, good: Path) -> str:
    """Keep the damaged file for whoever looks into it; the sentence for the log."""
    saved = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(good.stat().st_mtime))
    aside = path.with_name(path.name + ".damaged")
    try:
        os.replace(path, aside)  # noqa: PTH105
        kept = f"kept as {aside.name}"
    except OSError as error:
        kept = f"left where it is, moving it failed ({error.strerror})"
    return f"{path} {finding}: going on from {good.name}, saved {saved}; the damaged file is {kept}"


def _glance(path: Path) -> Preamble | Damaged | None:
    """What the file says of itself, without reading the rest; None if there is none."""
    try:
        return _open(path, _preamble)
    except FileNotFoundError:
        return None
    except Damaged as finding:
        return finding


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


def _explained(what: str, folder: Path, error: OSError) -> CheckpointError:
    reason = error.strerror or str(error)
    fix = FIXES.get(error.errno or 0, "check the disk and the folder's permissions")
    return CheckpointError(f"{what} in {folder}: {reason}; {fix}")
