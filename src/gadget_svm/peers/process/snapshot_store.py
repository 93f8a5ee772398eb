"""Snapshots on disk: two generations in one folder that a single process holds.

Owns the lock of the folder, the order of writes, and the error messages. The format of a file is that of
`core.state_file`; what a snapshot contains is the node's business. A folder with snapshots of an older program is
refused, and its files are never overwritten.
"""

import errno
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock

from gadget_svm.core import state_file
from gadget_svm.core.file_lock import FileInUseError, lock_file
from gadget_svm.peers.storage.snapshot import Snapshot

KIND, VERSION = "peer snapshot", 2
SLOTS = ("snapshot-0.safetensors", "snapshot-1.safetensors")
OLD_SLOTS = ("state.0", "state.1")  # of version 1
FIXES = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some space or raise the quota",
    errno.EROFS: "mount the file system writable, or set [peer] state to another folder",
    errno.EIO: "check the disk",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "give the peer's user the right to read and write there"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "set [peer] state to a folder"),
    **dict.fromkeys((errno.ENOLCK, errno.EOPNOTSUPP), "put the state on a local disk"),
}
log = logging.getLogger(__name__)


class SnapshotError(RuntimeError):
    """A snapshot cannot be written or read; the message says why and what to do."""


class SnapshotStore:
    """The snapshots of one peer. Open it before use; the death of the process releases the folder.

    ``save`` is for one thread at a time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: FileLock | None = None
        self._generation = 0  # of the newest good snapshot; the next one goes to the other slot

    def open(self) -> None:
        """Take the folder, which is made if missing; remove what killed writers left in it."""
        with self._errors("cannot lock the state"):
            _make_folder(self.folder)
            try:
                self._lock = lock_file(self.folder / "lock")
            except FileInUseError as error:
                fix = "stop that peer, or give this one its own [peer] state folder"
                raise SnapshotError(f"the state in {self.folder} is in use by {error}: {fix}") from error
            for slot in SLOTS:
                (self.folder / f"{slot}.part").unlink(missing_ok=True)

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
        with self._errors("cannot read the state"):
            if old := [slot for slot in OLD_SLOTS if (self.folder / slot).exists()]:
                raise SnapshotError(
                    f"{self.folder} has the state of an older version of this program ({', '.join(old)}), which this "
                    "one does not read: finish with the old version, or start with --fresh, which sets it aside"
                )
            good, damaged = self._read_slots()
        if not good and damaged:
            raise SnapshotError(
                f"no undamaged state is left in {self.folder}: {'; '.join(map(str, damaged.values()))}. Restore a "
                "copy, or start from scratch with --fresh, which sets the files aside"
            )
        if not good:
            return None
        newest = max(good, key=lambda slot: good[slot][1]["generation"])
        arrays, about = good[newest]
        self._generation = about["generation"]
        for slot, error in damaged.items():
            self._set_aside_damaged(slot, error, newest)
        return Snapshot(arrays, about["about"])

    def save(self, snapshot: Snapshot) -> None:
        """Write a new generation; on return it survives a kill and a power cut. On an error the old ones stay."""
        about = {"generation": self._generation + 1, "about": dict(snapshot.about)}
        content = state_file.encode_state(KIND, VERSION, snapshot.arrays, about)
        with self._errors("cannot save the state"):
            state_file.write_atomically(self.folder / SLOTS[self._generation % 2], content, mode=0o600)
        self._generation += 1

    def set_aside(self) -> list[Path]:
        """Rename all snapshots, also of older programs, for a start from scratch; return their new names."""
        with self._errors("cannot set the state aside"):
            found = [path for slot in (*SLOTS, *OLD_SLOTS) if (path := self.folder / slot).exists()]
            moved = [path.rename(_free_name(path)) for path in found]
            _sync(self.folder)
        self._generation = 0
        if moved:
            log.warning("the earlier state is set aside as %s", ", ".join(map(str, moved)))
        return moved

    def _read_slots(self) -> tuple[dict[str, tuple[Any, dict[str, Any]]], dict[str, state_file.StateFileError]]:
        """Return what undamaged snapshots hold, and what is wrong with the others, by slot."""
        good, damaged = {}, {}
        for slot in SLOTS:
            path = self.folder / slot
            try:
                path.open("rb").close()  # that it cannot be opened is no damage
                good[slot] = state_file.read_state(path, KIND, VERSION)
            except FileNotFoundError:
                continue
            except state_file.UnsupportedStateError as error:
                raise SnapshotError(f"{error}; or start with --fresh, which sets it aside") from error
            except state_file.StateFileError as error:
                damaged[slot] = error
        return good, damaged

    def _set_aside_damaged(self, slot: str, finding: Exception, newest: str) -> None:
        """Keep a damaged file for whoever examines it."""
        good, bad, kept = self.folder / newest, self.folder / slot, "left in place"
        saved = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(good.stat().st_mtime))
        if self._lock is not None:
            with suppress(OSError):
                kept = f"kept as {bad.replace(bad.with_name(f'{slot}.damaged')).name}"
        log.warning("%s; %s, saved %s, is used instead; the damaged file is %s", finding, newest, saved, kept)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn the errors of a disk into those that say what to do."""
        try:
            yield
        except OSError as error:
            fix = FIXES.get(error.errno or 0, "check the disk and the folder's permissions")
            raise SnapshotError(f"{what} in {self.folder}: {error.strerror or error}; {fix}") from error
        except MemoryError as error:
            raise SnapshotError(f"{what} in {self.folder}: it does not fit into memory") from error


def _free_name(path: Path) -> Path:
    """Return a name beside the file that is not taken."""
    return next(free for n in count(1) if not (free := path.with_name(f"{path.name}.old{n}")).exists())


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
