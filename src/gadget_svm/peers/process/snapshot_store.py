"""Snapshots on disk: two generations in one folder that a single process holds.

Owns the lock of the folder, the order of writes, and the error messages. The format of a file is that of
`core.state_file`; what a snapshot contains is the node's business. A folder with snapshots of an older program is
refused, and its files are never overwritten.
"""

import errno
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from gadget_svm.core.file_lock import FileInUseError, lock_file
from gadget_svm.core.state_file import (
    StateFileError,
    UnsupportedStateError,
    encode_state,
    read_state,
    write_atomically,
)
from gadget_svm.peers.storage.snapshot import Snapshot

KIND, VERSION = "peer snapshot", 2
SLOTS = ("snapshot-0.safetensors", "snapshot-1.safetensors")
OLD_SLOTS = ("state.0", "state.1")  # of version 1
FIXES = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some space or raise the quota",
    errno.EROFS: "mount the file system writable, or set [peer] state to another folder",
    errno.EACCES: "give the peer's user the right to read and write there",
    errno.EPERM: "give the peer's user the right to read and write there",
    errno.ENOTDIR: "set [peer] state to a folder",
    errno.EEXIST: "set [peer] state to a folder",
    errno.EIO: "check the disk",
    errno.ENOLCK: "put the state on a local disk",
    errno.EOPNOTSUPP: "put the state on a local disk",
}


class SnapshotError(RuntimeError):
    """A snapshot cannot be written or read; the message says why and what to do."""


class SnapshotStore:
    """The snapshots of one peer. Open it before use; the death of the process releases the folder.

    ``save`` is for one thread at a time. ``warnings`` names the damaged files that `load` has set aside.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warnings: list[str] = []
        self._lock: FileLock | None = None
        self._generation = 0
        self._next = SLOTS[0]  # the slot to write next: never the newest good one

    def open(self) -> None:
        """Take the folder, which is made if missing; remove what killed writers left in it."""
        try:
            _make_folder(self.folder)
            self._lock = lock_file(self.folder / "lock")
            for slot in SLOTS:
                (self.folder / f"{slot}.part").unlink(missing_ok=True)
        except FileInUseError as error:
            raise SnapshotError(
                f"the state in {self.folder} is in use by {error}: stop that peer, or give this one its own [peer] "
                "state folder"
            ) from error
        except OSError as error:
            self.close()
            raise _explained("cannot lock the state", self.folder, error) from error

    def close(self) -> None:
        """Release the folder. Idempotent."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def load(self) -> Snapshot | None:
        """Return the newest undamaged snapshot, or None if nothing was ever saved.

        If the store is open, a damaged file is set aside as ``*.damaged``. If no undamaged one is left, nothing is
        moved and it is an error: a peer must not restart from scratch unasked.
        """
        try:
            return self._load()
        except OSError as error:
            raise _explained("cannot read the state", self.folder, error) from error
        except MemoryError as error:
            raise SnapshotError(f"cannot read the state in {self.folder}: it does not fit into memory") from error

    def save(self, snapshot: Snapshot) -> None:
        """Write a new generation; on return it survives a kill and a power cut. On an error the old ones stay."""
        about = {"generation": self._generation + 1, "about": dict(snapshot.about)}
        content = encode_state(KIND, VERSION, snapshot.arrays, about)
        try:
            write_atomically(self.folder / self._next, content, mode=0o600)
        except OSError as error:
            raise _explained("cannot save the state", self.folder, error) from error
        self._generation += 1
        self._next = _other(self._next)

    def set_aside(self) -> list[Path]:
        """Rename all snapshots, also of older programs, so that the next start is from scratch. Return the new names.

        A name that is taken gets a number.
        """
        try:
            found = [path for slot in (*SLOTS, *OLD_SLOTS) if (path := self.folder / slot).exists()]
            moved = [path.rename(_free_name(path, "old")) for path in found]
            _sync(self.folder)
        except OSError as error:
            raise _explained("cannot set the state aside", self.folder, error) from error
        self._generation, self._next = 0, SLOTS[0]
        return moved

    def _load(self) -> Snapshot | None:
        old = [slot for slot in OLD_SLOTS if (self.folder / slot).exists()]
        if old:
            raise SnapshotError(
                f"{self.folder} has the state of an older version of this program ({', '.join(old)}), which this one "
                "does not read: finish with the old version, or start with --fresh, which sets it aside"
            )
        good: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        damaged: dict[str, StateFileError] = {}
        for slot in SLOTS:
            path = self.folder / slot
            try:
                path.open("rb").close()  # that it cannot be opened is no damage
                good[slot] = read_state(path, KIND, VERSION)
            except FileNotFoundError:
                continue
            except UnsupportedStateError as error:
                raise SnapshotError(f"{error}; or start with --fresh, which sets it aside") from error
            except StateFileError as error:
                damaged[slot] = error
        if not good:
            if damaged:
                raise SnapshotError(
                    f"no undamaged state is left in {self.folder}: {'; '.join(map(str, damaged.values()))}. Restore a "
                    "copy, or start from scratch with --fresh, which sets the files aside"
                )
            return None
        newest = max(good, key=lambda slot: good[slot][1]["generation"])
        arrays, about = good[newest]
        self._generation, self._next = about["generation"], _other(newest)
        self.warnings = [self._set_aside_damaged(slot, error, newest) for slot, error in damaged.items()]
        return Snapshot(arrays, about["about"])

    def _set_aside_damaged(self, slot: str, finding: StateFileError, newest: str) -> str:
        """Keep a damaged file for whoever examines it; return the sentence for the log."""
        good, bad = self.folder / newest, self.folder / slot
        saved = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(good.stat().st_mtime))
        aside = bad.with_name(f"{slot}.damaged")
        try:
            if self._lock is not None:
                bad.replace(aside)
            kept = f"kept as {aside.name}" if self._lock is not None else "left in place"
        except OSError as error:
            kept = f"not moved ({error.strerror})"
        return f"{finding}; {newest}, saved {saved}, is used instead; the damaged file is {kept}"


def _other(slot: str) -> str:
    return SLOTS[1 - SLOTS.index(slot)]


def _free_name(path: Path, suffix: str) -> Path:
    """Return a name beside the file that is not taken."""
    candidate, number = path.with_name(f"{path.name}.{suffix}"), 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}.{suffix}{number}")
    return candidate


def _make_folder(folder: Path) -> None:
    """Make the folder and its parents, for this user only, and sync each parent."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        _make_folder(folder.parent)
    with suppress(FileExistsError):  # made by a process that starts at the same time; a file is reported by the lock
        folder.mkdir(mode=0o700)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explained(what: str, folder: Path, error: OSError) -> SnapshotError:
    fix = FIXES.get(error.errno or 0, "check the disk and the folder's permissions")
    return SnapshotError(f"{what} in {folder}: {error.strerror or error}; {fix}")
