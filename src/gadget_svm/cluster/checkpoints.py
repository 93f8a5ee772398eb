"""Checkpoints of a run on a cluster: one state file per block and iteration, and one that names the last complete set.

Owns the folder, the files' names and content, when a checkpoint is due, and whether one belongs to this run. A
checkpoint always includes all actors: while an actor is lost, no checkpoint is made.
"""

import hashlib
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.file_lock import FileInUseError, lock_file
from gadget_svm.core.rows import Rows
from gadget_svm.core.state_file import Arrays, StateFileError, encode_state, read_state, write_atomically

RUN_KIND, BLOCK_KIND, VERSION = "cluster checkpoint", "cluster checkpoint block", 4
RUN_FILE = "run.safetensors"
OLDER_RUN_FILE = "run.json"
"""The name that format 2 and earlier formats used."""
FILES = ("block-*", f"{RUN_FILE}*", OLDER_RUN_FILE)
"""Patterns of the files that an earlier run may have left, also half-written ones."""
CHECKPOINT_INTERVAL_S = 60.0
"""A checkpoint is due after this time, even if there were few iterations."""
MAX_NAMED_NODES = 3
"""More nodes than this are only counted in a message."""


class FolderInUseError(ValueError, BlockingIOError):
    """Another process writes its checkpoints to the folder."""


class SaveFailedError(Exception):
    """A checkpoint could not be written; the run continues without it."""


# the folder


def exists(folder: Path) -> bool:
    """True if the folder holds a checkpoint, of any format."""
    return any((folder / name).is_file() for name in (RUN_FILE, OLDER_RUN_FILE))


def require_usable(folder: Path, resume: bool) -> None:
    """Check, before anything starts, that there is a checkpoint to resume and that the folder can be written to."""
    if resume:
        read_run(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"checkpoints cannot be written to {folder} ({error.strerror or error}): set checkpoint_dir to a folder "
            "that this process and all actors may write to"
        ) from error


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Lock the folder, if its file system has locks: two runs would write files of the same names."""
    with ExitStack() as stack:
        try:
            stack.callback(lock_file(folder / "lock").release)
        except FileInUseError as error:
            raise FolderInUseError(
                f"{error} is running with the checkpoints in {folder}: wait for it, or set checkpoint_dir to "
                "another folder, one for each run"
            ) from None
        except OSError:
            pass  # no locks
        yield


def set_aside(folder: Path) -> None:
    """Move the files of an earlier run into another folder, so that they are not taken for files of the new run."""
    left = [path for pattern in FILES for path in folder.glob(pattern)]
    if left:
        former = folder / f"former-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        former.mkdir(exist_ok=True)
        for path in left:
            path.replace(former / path.name)


# the files


def block_file(folder: Path, first: int, last: int, t: int) -> Path:
    """Return the path of the block of nodes first:last after iteration t."""
    return folder / f"block-{first}-{last}.{t}.safetensors"


def save_block(folder: Path, first: int, last: int, arrays: Arrays, about: Mapping[str, Any], keep: int) -> None:
    """Write a block. Remove its older files, except the file of iteration ``keep``, from which a run would resume.

    Raises
    ------
    SaveFailedError
        The disk is full, or the folder is gone.
    """
    target = block_file(folder, first, last, about["t"])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(target, encode_state(BLOCK_KIND, VERSION, arrays, about))
    except OSError as error:
        raise SaveFailedError(str(error)) from error
    for old in folder.glob(f"block-{first}-{last}.*"):  # also half-written ones
        if old not in (target, block_file(folder, first, last, keep)):
            old.unlink(missing_ok=True)


def load_block(folder: Path, first: int, last: int, t: int, fingerprint: str) -> tuple[Arrays, dict[str, Any]]:
    """Return what `save_block` wrote. Raise ValueError if the file is missing, damaged or of another run."""
    path = block_file(folder, first, last, t)
    try:
        arrays, about = read_state(path, BLOCK_KIND, VERSION)
    except (FileNotFoundError, StateFileError) as error:
        raise ValueError(f"the checkpoint cannot be resumed: {error}; start without resume") from error
    if about["fingerprint"] != fingerprint:
        raise ValueError(f"the checkpoint {path} is of another run, perhaps put there by hand: start without resume")
    return arrays, about


def read_run(folder: Path) -> dict[str, Any]:
    """Return the description of the last complete checkpoint."""
    path = folder / RUN_FILE
    if not path.is_file() and (folder / OLDER_RUN_FILE).is_file():
        raise ValueError(
            f"the checkpoint in {folder} has an older format, which this version does not read: resume it with the "
            "version that wrote it, or start without resume, which moves the old files to former-..."
        )
    if not path.is_file():
        fix = "name the folder of the run, or start without resume"
        raise FileNotFoundError(f"nothing to resume: {path} does not exist; {fix}")
    try:
        return read_state(path, RUN_KIND, VERSION)[1]
    except StateFileError as error:
        raise ValueError(f"{error}; or start without resume, which moves the old files to former-...") from error


# the driver's part


class Checkpoints:
    """The checkpoints of one run, managed by its driver.

    Parameters
    ----------
    folder : str or None
        None makes no checkpoints.
    every : int
        Iterations between two checkpoints.
    """

    def __init__(self, folder: str | None, every: int) -> None:
        self.folder, self.every = None if folder is None else Path(folder), every
        self.last = -1  # the iteration of the last complete one
        self._tried, self._tried_at, self._failed = 0, time.monotonic(), False

    def is_due(self, t: int) -> bool:
        """True if the next checkpoint is due."""
        late = t - self._tried >= self.every or time.monotonic() - self._tried_at > CHECKPOINT_INTERVAL_S
        return self.folder is not None and late

    def note_attempt(self, t: int) -> None:
        """Note that the checkpoint of iteration t is being made: the next is due later, even if this one fails."""
        self._tried, self._tried_at = t, time.monotonic()

    def complete(self, about: Mapping[str, Any]) -> None:
        """Declare the block files that the actors have written to be the checkpoint to resume from."""
        assert self.folder is not None
        try:
            write_atomically(self.folder / RUN_FILE, encode_state(RUN_KIND, VERSION, {}, about))
        except OSError as error:
            raise SaveFailedError(str(error)) from error
        self.last, self._failed = about["t"], False

    def warn_of_failure(self, problem: SaveFailedError) -> None:
        """Warn of the first of several failures in a row."""
        if not self._failed:
            self._failed = True
            self.warn(f"the checkpoint of iteration {self._tried} could not be written ({problem}); the run continues")

    def warn(self, text: str) -> None:
        """Warn, and name the iteration from which the run would be resumed."""
        where = f"iteration {self.last}" if self.last >= 0 else "its beginning"
        warnings.warn(f"{text}. It would be resumed from {where}", stacklevel=3)

    def read(self, fingerprint: str, rows: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
        """Return the description of the checkpoint to resume.

        Raises
        ------
        ValueError
            The checkpoint is of another run, or of other rows.
        """
        assert self.folder is not None
        about = read_run(self.folder)
        nodes = changed_nodes(about["rows"], rows) if len(about["rows"]) == len(rows) else []
        if 0 < len(nodes) < len(rows):
            raise ValueError(
                f"the rows of {describe_nodes(nodes, names)} are not those the checkpoint in {self.folder} has: "
                "put the former rows back, or start without resume"
            )
        if nodes or about["fingerprint"] != fingerprint:
            raise ValueError(
                f"the checkpoint in {self.folder} is of another run: data, nodes, topology, algorithm, lam, seed and "
                f"the number of actors, there {about['actors']}, must be the same"
            )
        self.last = self._tried = about["t"]
        return about


# digests of rows


def row_digests(rows: Rows) -> list[str]:
    """Return a short digest of every node's rows in their order: features, labels, costs and weights."""
    X = rows.matrix()
    return [_digest(rows, X, lo, hi) for lo, hi in pairwise(rows.start.tolist())]


def _digest(rows: Rows, X: sp.csr_matrix, lo: int, hi: int) -> str:
    own = rows.order[lo:hi]
    part, digest = X[own], hashlib.blake2b(digest_size=8)
    for integers in (np.diff(part.indptr), part.indices, rows.label[own], rows.pairs):
        digest.update(np.ascontiguousarray(integers, dtype=np.int64).tobytes())
    for reals in (part.data, rows.cost[own], rows.mass[lo:hi]):
        digest.update(np.ascontiguousarray(reals, dtype=np.float64).tobytes())
    return digest.hexdigest()


def changed_nodes(before: Sequence[str], now: Sequence[str], first: int = 0) -> list[int]:
    """Return the nodes, numbered from ``first``, whose digests differ."""
    return [first + i for i, (old, new) in enumerate(zip(before, now, strict=True)) if old != new]


def describe_nodes(nodes: Sequence[int], names: Sequence[str]) -> str:
    """Return text such as "node 3 (part-3.svm), node 4 (part-4.svm) and 7 more"; ``names`` are the shards' names."""
    some = [f"node {node} ({names[node]})" if names else f"node {node}" for node in nodes[:MAX_NAMED_NODES]]
    more = len(nodes) - len(some)
    return ", ".join(some) + (f" and {more:,} more" if more else "")
