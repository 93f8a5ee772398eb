"""One process at a time: a lock on a file, which the death of its holder releases."""

import fcntl
import os
from pathlib import Path


class InUse(BlockingIOError):  # noqa: N818 - what happened
    """Somebody else has it; the text is who."""


def seize(path: Path) -> int:
    """The open file, locked, with our process number in it. To close it is to let go; children by fork share it.

    The file should stay afterwards: to remove it would race with the next holder.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            raise InUse(f"process {text}" if text.isdigit() else "another process") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
