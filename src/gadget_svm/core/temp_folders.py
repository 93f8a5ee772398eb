"""Temporary folders that are removed at the next start if the process that made them was killed.

A folder holds a lock file which its owner keeps locked. The kernel releases the lock when the owner dies, so a free
lock proves that the owner is dead; a process number could be in use again.
"""

import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from gadget_svm.core import file_lock

PREFIX, LOCK, NOTES = "gadget", "owner.lock", "ray-sessions"
"""Of a folder's name, short as Ray puts sockets into it; its lock; and folders whose Ray processes are the owner's."""
TITLE = "ray::"
"""Some of Ray's processes put a title that begins so over their command line, and over their environment."""


class Scratch:
    """A temporary folder, removed by `close`. Making one also removes those of owners that were killed."""

    def __init__(self) -> None:
        sweep()
        fresh = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))  # hidden from `sweep` until it is locked
        self._lock = file_lock.seize(fresh / LOCK)
        self.path = fresh.rename(fresh.with_name(fresh.name[1:]))

    def note_session(self, folder: str) -> None:
        """Remember that Ray's processes with this session folder are ours, for whoever cleans up after us."""
        with (self.path / NOTES).open("a", encoding="utf-8") as notes:
            notes.write(f"{folder}\n")

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def sweep() -> None:
    """Remove the folders of this user's processes that are dead, and end the Ray processes they left."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        folder = lock.parent
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            held = file_lock.seize(lock)
        except OSError:  # its owner lives, or has just removed it
            continue
        try:
            end_ray_processes([str(folder), *_sessions(folder)])
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(held)


def _sessions(folder: Path) -> list[str]:
    try:
        return [line for line in (folder / NOTES).read_text(encoding="utf-8").splitlines() if line]
    except OSError:
        return []


def end_ray_processes(folders: list[str]) -> None:
    """Kill this user's Ray processes that were started with one of these folders (on Linux; elsewhere nothing)."""
    for process in _numbers():
        if not _is_of(process, folders):
            continue
        with suppress(OSError):  # it has just ended
            handle = os.pidfd_open(process)
            try:
                if _is_of(process, folders):  # looked at again: the number may have changed hands before the handle
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)


def _numbers() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").glob("[0-9]*") if int(entry.name) != os.getpid())


def _is_of(process: int, folders: list[str]) -> bool:
    """Whether it is a program of Ray's that was started with such a folder; a `tail` of a log there is not."""
    entry = Path("/proc", str(process))
    try:
        if entry.stat().st_uid != os.getuid():
            return False
        words = os.fsdecode((entry / "cmdline").read_bytes()).split("\0")
    except OSError:
        return False
    if words[0].startswith(TITLE):
        return _writes_below(entry, folders)
    options = [word for word in words if word.startswith("-")]
    programs = [word for word in words if "/ray/" in word and not word.startswith("-")]
    return bool(programs) and any(f"={folder}" in f"{word}/" for folder in _slashed(folders) for word in options)


def _writes_below(entry: Path, folders: list[str]) -> bool:
    """Whether a process has a file in such a folder open to write: Ray's agents have their logs there."""
    try:
        opened = list((entry / "fd").iterdir())
    except OSError:
        return False
    for file in opened:
        with suppress(OSError):  # closed meanwhile
            if str(file.readlink()).startswith(tuple(_slashed(folders))) and file.lstat().st_mode & stat.S_IWUSR:
                return True
    return False


def _slashed(folders: list[str]) -> list[str]:
    return [f"{folder.rstrip('/')}/" for folder in folders]
