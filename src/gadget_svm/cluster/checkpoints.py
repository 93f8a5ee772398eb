"""Blocks on disk, so that a run outlives its processes: one file a block and generation, and one that names the last
complete generation. A half-written file never replaces a good one. Owns the files' names and form."""

import json
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core import file_lock

Arrays = dict[str, NDArray[Any]]
RUN = "run.json"
KEPT = 2
"""Generations that are kept: the last complete one, and the one before or the one being written. If some blocks could
not be written since, the last complete one may be older, and is kept as well."""


class FolderInUseError(ValueError, BlockingIOError):
    """Another process writes its checkpoints to the folder."""


def block_file(folder: Path, first: int, last: int, t: int) -> Path:
    """The file of the nodes first:last after iteration t."""
    return folder / f"block-{first}-{last}.{t}.safetensors"


def save_block(folder: Path, first: int, last: int, arrays: Arrays, counters: dict[str, int], run: str) -> Path:
    """Write a block's state, and let go of generations before the last two that no run would be resumed from.

    ``run`` says which run it is of, as `load_block` will.
    """
    from safetensors.numpy import save

    folder.mkdir(parents=True, exist_ok=True)
    target = block_file(folder, first, last, counters["t"])
    tensors = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    write(target, save(tensors, metadata={"counters": json.dumps(counters), "run": run}))
    generations = sorted(folder.glob(f"block-{first}-{last}.*.safetensors"), key=lambda path: int(path.suffixes[0][1:]))
    spare = [old for old in generations[:-KEPT] if old != target]
    needed = _needed(folder) if spare else []
    for old in spare:
        if int(old.suffixes[0][1:]) not in needed:
            old.unlink(missing_ok=True)
    return target


def _needed(folder: Path) -> list[int | None]:
    """The generations of the last complete checkpoint; none before the first."""
    try:
        return list(load_run(folder)["kept"])
    except FileNotFoundError:
        return []


def load_block(folder: Path, first: int, last: int, t: int, run: str) -> tuple[Arrays, dict[str, int]]:
    """What `save_block` wrote; a damaged file, or one of another run, is a ValueError that says so."""
    from safetensors import SafetensorError, safe_open

    path = block_file(folder, first, last, t)
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            counters = json.loads(about["counters"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError) as error:
        raise ValueError(f"the checkpoint {path} is missing or damaged ({error}): start the run anew") from error
    if about.get("run", run) != run:  # files of before this was noted say nothing
        raise ValueError(f"the checkpoint {path} is of another run: was it put there by hand? Start the run anew")
    return arrays, counters


def save_run(folder: Path, about: dict[str, Any]) -> None:
    """Say which generation is complete, and what run it is of. Written after all its blocks."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / RUN, json.dumps(about).encode())


def check(folder: Path, resume: bool) -> None:
    """Before anything starts: that there is something to resume, and that something can be written there."""
    if resume:
        load_run(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"checkpoints cannot be written to {folder} ({error.strerror or error}): name a folder that this process "
            "and all actors may write to as checkpoint_dir"
        ) from error


def exists(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from."""
    return (folder / RUN).is_file()


def hold(folder: Path) -> int | None:
    """Keep other runs out of the folder until the file that is returned is closed: both would write the same names."""
    try:
        return file_lock.seize(folder / "lock")
    except file_lock.InUse as error:
        raise FolderInUseError(
            f"{error} has a run under way with the checkpoints in {folder}: wait for it, or name another folder as "
            "checkpoint_dir, one for each run"
        ) from None
    except OSError:  # a file system without locks
        return None


def set_aside(folder: Path) -> None:
    """Move what an earlier run left here into a folder of its own: its files would be taken for the new run's."""
    left = [*folder.glob("block-*.safetensors"), *folder.glob(RUN)]
    if left:
        former = folder / f"former-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        former.mkdir(exist_ok=True)
        for path in left:
            path.replace(former / path.name)


def sweep(folder: Path) -> None:
    """Remove what a process that was killed had begun to write."""
    for part in (*folder.glob("block-*.part"), *folder.glob(f"{RUN}.part")):
        part.unlink(missing_ok=True)


def load_run(folder: Path) -> dict[str, Any]:
    """What `save_run` said."""
    path = folder / RUN
    if not path.is_file():
        raise FileNotFoundError(
            f"nothing to resume: {path} does not exist; name the folder of the run, or start without resume"
        )
    try:
        about: dict[str, Any] = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}): start the run anew") from error
    return about


def write(target: Path, content: bytes) -> None:
    """All of the content or nothing, also if the machine stops in between."""
    part = target.with_name(target.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        with suppress(OSError):  # a disk that is full needs the room; of what failed the other error tells
            part.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
