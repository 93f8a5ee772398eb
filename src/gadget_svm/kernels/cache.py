"""The cache of compiled kernels on disk, and the message when something has to be compiled.

All processes of a user share one directory. Its name holds a hash of the sources of all kernels, because numba itself
checks only the file of a function, not the files of the functions that it calls: it would run an old inner loop in a
new outer loop. The hash is of contents, not of times, so a copy or a new installation of the same version uses the same
directory.

If no directory can be written, kernels are compiled in memory, in every process.
"""

import fcntl
import hashlib
import logging
import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, NullCache, _CacheLocator

LOG = logging.getLogger("gadget_svm.kernels")
PACKAGE = Path(__file__).parent.parent
SOURCES = ("kernels/*.py", "algorithms/*.py", "core/rows.py")
"""Files with compiled functions, and with the types of their arguments."""
UNUSED_S = 30 * 24 * 3600
"""Kernels of another version that were not used for this many seconds are removed."""


@cache
def directory() -> Path | None:
    """Return the directory of this version's kernels, or None if none can be written."""
    try:
        base = _base()
        folder = base / f"kernels-{source_hash()[:16]}"
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError):  # RuntimeError: no HOME, and no entry for the user
        return None
    with suppress(OSError):
        os.utime(folder)  # records the time of its last use
    if new:
        _prune(base)
    return folder


def _prune(base: Path) -> None:
    """Remove the directories of other versions that were not used for UNUSED_S, if the file system allows it."""
    with suppress(OSError):
        for folder in base.iterdir():
            if re.fullmatch(r"kernels-[0-9a-f]{16}", folder.name) and time.time() - folder.stat().st_mtime > UNUSED_S:
                shutil.rmtree(folder, ignore_errors=True)


def _base() -> Path:
    """Return NUMBA_CACHE_DIR if it is set, else the user's cache directory."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gadget-svm"


@cache
def source_hash() -> str:
    """Return a hash of all files that kernels are made of."""
    total = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in PACKAGE.glob(pattern)):
        total.update(f"{path.name} {path.stat().st_size} ".encode())
        total.update(path.read_bytes())
    return total.hexdigest()


class _Locator(_CacheLocator):  # type: ignore[misc]
    def __init__(self, py_func: Any) -> None:
        self._line = py_func.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(directory())

    def get_source_stamp(self) -> str:
        return source_hash()

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> "_Locator":  # noqa: ARG003
        return cls(py_func)


class _Files(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class KernelCache(FunctionCache):  # type: ignore[misc]
    """numba's cache of one function, safe with several writers. It logs a message before the first compilation."""

    _impl_class = _Files

    def __init__(self, py_func: Any, kind: str) -> None:
        super().__init__(py_func)
        self._cache_file = IndexDataCacheFile(self.cache_path, self._impl.filename_base + kind, source_hash())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for these types, or None if it has to be compiled."""
        try:
            found = super().load_overload(sig, target_context)
        except (OSError, EOFError, ValueError, KeyError):  # a damaged file: compile again
            found = None
        if found is None:
            announce()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a compiled function. One process at a time: two could give two files the same number."""
        try:
            with (Path(self.cache_path) / "lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                super().save_overload(sig, data)
        except OSError as error:  # a full disk, or a directory that was removed
            LOG.info("compiled kernels could not be kept in %s: %s", self.cache_path, error)


class _InMemory(NullCache):  # type: ignore[misc]
    def load_overload(self, sig: Any, target_context: Any) -> None:  # noqa: ARG002
        announce()


def attach_cache(dispatcher: Any, kind: str) -> None:
    """Make a dispatcher use the cache directory, if there is one. Dispatchers of one function differ in ``kind``."""
    dispatcher._cache = _InMemory() if directory() is None else KernelCache(dispatcher.py_func, kind)


@cache
def announce() -> None:
    """Log once per process that kernels are being compiled. Python shows loggers' warnings on stderr by default."""
    where = directory()
    LOG.warning(
        "gadget-svm: compiling numerical kernels, which takes a few seconds (%s)",
        f"once; kept in {where}" if where else "in every process: set NUMBA_CACHE_DIR to a writable directory",
    )
