"""State on disk: named arrays and a JSON description in one safetensors file with a digest.

Model files and checkpoints are written and read here. Nothing in a file is executed. A file that is damaged, or of
another kind or version, is refused before any of it is used. Reading never overwrites a file.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from gadget_svm.core.types import Array

Arrays = dict[str, Array]
KEY = "gadget-svm"
"""The only entry of the safetensors metadata: if there were several, their order, and with it the bytes of the file,
would be random. It holds the digest, in hexadecimal digits, and the description."""
OLDER_KEYS = {"gadget", "counters"}
"""Entries of the metadata in the formats before version 2: of model files and of checkpoints."""
DIGEST_BYTES = 32


class StateFileError(ValueError):
    """A state file is damaged, or of another kind or version."""


class UnsupportedStateError(StateFileError):
    """A state file is undamaged, but of another kind or version."""


def encode_state(kind: str, version: int, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> bytes:
    """Return the bytes of a state file.

    Parameters
    ----------
    kind : str
        What is stored, such as "model".
    version : int
        The version of this kind's arrays and description.
    arrays : mapping of str to ndarray
        The arrays, by name.
    about : mapping
        The description; JSON must be able to hold it.
    """
    from safetensors.numpy import save

    tensors = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    text = json.dumps({"kind": kind, "version": version, "about": dict(about)})
    content: bytes = save(tensors, metadata={KEY: _digest(text, tensors) + text})
    return content


def read_state(path: Path, kind: str, version: int) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and the description in a state file.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    StateFileError
        The file is damaged, or not of this kind and version.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        entry = metadata.get(KEY, "")
        digest, text = entry[: 2 * DIGEST_BYTES], entry[2 * DIGEST_BYTES :]
        written = json.loads(text or "{}")
    except (SafetensorError, json.JSONDecodeError, OSError) as error:
        raise StateFileError(f"{path} is truncated, damaged or not a {kind} file ({error})") from error
    if OLDER_KEYS & set(metadata):
        raise UnsupportedStateError(f"{path} has an older format, which this version does not read")
    if KEY not in metadata:
        raise StateFileError(f"{path} is not a {kind} file of this program")
    if digest != _digest(text, arrays):
        raise StateFileError(f"{path} is damaged: its digest does not match its content")
    if written.get("kind") != kind:
        raise UnsupportedStateError(f"{path} is not a {kind} file of this program")
    if written.get("version") != version:
        raise UnsupportedStateError(
            f"{path} has version {written.get('version')!r} of the {kind} format, and this program reads version "
            f"{version}: read it with the release that wrote it, or make it again"
        )
    return arrays, written["about"]


def write_atomically(target: Path, content: bytes, mode: int = 0o666) -> None:
    """Write all of the content or nothing, also if the machine stops in between. ``mode`` is that of a new file."""
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)  # of a writer that was killed
    try:
        with open(part, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        with suppress(OSError):  # the first error is the one to report
            part.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _digest(text: str, arrays: Mapping[str, Array]) -> str:
    """Return a digest of the description and of every array's name, type, shape and bytes."""
    digest = blake2b(text.encode(), digest_size=DIGEST_BYTES)
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()
