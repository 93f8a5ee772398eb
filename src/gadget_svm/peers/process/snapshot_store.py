"""A peer's durable state: two generations on disk, and the lock of the folder. `statefile` has the file format.

Owns what survives a kill or a full disk, and the sentences about both; knows nothing of learning. A save takes the
older of the slots ``state.0`` and ``state.1``, by one rename.
"""

import errno
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from filelock import FileLock

from gadget_svm.core.file_lock import FileInUseError, lock_file
from gadget_svm.peers.statefile import Array, Damaged, Preamble, fill, glance, header_of, read
from gadget_svm.peers.statefile import CheckpointError as CheckpointError  # part of this interface

SLOTS = ("state.0", "state.1")
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


@dataclass(frozen=True)
class Loaded:
    """A state as it was saved, the file it came from, and what a person should know about the way there."""

    arrays: dict[str, Array]
    about: dict[str, Any]
    path: Path
    warnings: list[str] = field(default_factory=list)


def save(folder: Path, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> Path:
    """Write a new generation over the older one; when this returns, it survives a kill and a power cut.

    The arrays are streamed: beyond them it needs one chunk, and a copy of one array where that is not contiguous.
    They must not change meanwhile. On an error the newest generation is as it was.
    """
    header = header_of(arrays, about)
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
    """One process per folder: a lock on the file ``lock``, which the death of its holder releases.

    Whoever has it knows that nobody is writing, so taking it also removes what killed writers left behind.
    """

    def __init__(self, folder: Path, lock: FileLock) -> None:
        self.folder, self._lock = folder, lock

    @classmethod
    def acquire(cls, folder: Path) -> Self:
        """Take the folder, made if missing; if another process has it, the error says which."""
        try:
            _make(folder)
            lock = lock_file(folder / "lock")
            try:
                _clean(folder)
            except BaseException:
                lock.release()
                raise
        except FileInUseError as error:
            raise CheckpointError(
                f"the state in {folder} is in use by {error}: stop that peer, or give this one its own [peer] state "
                "folder"
            ) from error
        except OSError as error:
            raise _explained("cannot lock the state", folder, error) from error
        return cls(folder, lock)

    def release(self) -> None:
        """Give the folder back. Idempotent."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


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


def _turn(folder: Path) -> tuple[Path, int]:
    """The slot to write next - an empty one, else a damaged one, else the older - and its generation."""
    found = {slot: glance(folder / slot) for slot in SLOTS}
    generations = [seen.generation for seen in found.values() if isinstance(seen, Preamble)]

    def worth(slot: str) -> int:
        seen = found[slot]
        return -2 if seen is None else -1 if isinstance(seen, Damaged) else seen.generation

    return folder / min(SLOTS, key=worth), max(generations, default=0) + 1


def _write(folder: Path, slot: Path, generation: int, header: bytes, arrays: Mapping[str, Array]) -> None:
    descriptor, name = tempfile.mkstemp(prefix="state.", suffix=".part", dir=folder)  # 0600, and nobody else's
    try:
        try:
            fill(descriptor, generation, header, arrays)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(name, slot)  # noqa: PTH105 - tests make each of these calls fail in turn
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            os.unlink(name)  # noqa: PTH108
        raise
    _sync(folder)


def _newest(folder: Path) -> Loaded | None:
    found = {folder / slot: glance(folder / slot) for slot in SLOTS}
    damaged = {path: seen for path, seen in found.items() if isinstance(seen, Damaged)}
    ages = {path: seen.generation for path, seen in found.items() if isinstance(seen, Preamble)}
    for path in sorted(ages, key=lambda path: ages[path], reverse=True):
        try:
            arrays, about = read(path)
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


def _explained(what: str, folder: Path, error: OSError) -> CheckpointError:
    reason = error.strerror or str(error)
    fix = FIXES.get(error.errno or 0, "check the disk and the folder's permissions")
    return CheckpointError(f"{what} in {folder}: {reason}; {fix}")
