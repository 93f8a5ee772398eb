"""Temporary folders that are removed at the next start if the process that made them was killed.

A folder holds a lock file which its owner keeps locked. The kernel releases the lock when the owner dies, so a free
lock proves that the owner is dead; a process number could be in use again.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

from gadget_svm.core.file_lock import lock_file

PREFIX, LOCK = "gadget", "owner.lock"
"""The prefix of a folder's name, short because Ray creates sockets in it; the name of its lock file."""


class Scratch:
    """A temporary folder, removed by `close`. Making one also removes folders whose owners were killed."""

    def __init__(self) -> None:
        sweep()
        fresh = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))  # hidden from `sweep` until it is locked
        self._lock = lock_file(fresh / LOCK)
        self.path = fresh.rename(fresh.with_name(fresh.name[1:]))

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        if self._lock.is_locked:
            shutil.rmtree(self.path, ignore_errors=True)
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def sweep() -> None:
    """Remove this user's folders whose processes are dead."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        folder = path.parent
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = lock_file(path)
        except OSError:  # its owner lives, or has just removed it
            continue
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()
