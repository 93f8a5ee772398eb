"""Temporary folders that are removed at the next start if the process that made them was killed.

A folder holds a lock file which its owner keeps locked. The operating system releases the lock when the owner dies, so
a free lock proves that the owner is dead. A process number would prove less, since another process may have it by now.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gadget_svm.core.file_lock import lock_file

PREFIX, LOCK = "gadget", "owner.lock"
"""The prefix of a folder's name, short because Ray creates sockets in it, and the name of its lock file."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder, and remove it in the end. First remove the folders whose owners were killed."""
    sweep()
    fresh = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))  # hidden from `sweep` until it is locked
    lock = lock_file(fresh / LOCK)
    folder = fresh.rename(fresh.with_name(fresh.name[1:]))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


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
