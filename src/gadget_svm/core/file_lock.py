"""A lock file that one process holds at a time. The operating system releases it when the holder dies."""

from pathlib import Path

from filelock import FileLock, Timeout

LOCKS = Path("/proc/locks")


class FileInUseError(BlockingIOError):
    """Another process holds the lock; the message names the process if the system reports it."""


def lock_file(path: Path) -> FileLock:
    """Return the lock on a file, held by this process until it is released.

    Raises
    ------
    FileInUseError
        Another process holds it.
    """
    lock = FileLock(path, mode=0o600, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise FileInUseError(_holder(path)) from None
    except NotImplementedError as error:
        raise OSError(f"the file system of {path} has no locks") from error
    return lock


def _holder(path: Path) -> str:
    """Return "process 123" if Linux reports which process has locked the file."""
    try:
        inode, lines = path.stat().st_ino, LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return "another process"
    found = next((line.split()[4] for line in lines if f":{inode} " in line and " FLOCK " in line), "0")
    return f"process {found}" if int(found) > 0 else "another process"
