"""Reading MNIST's idx files: images become CSR rows scaled to [0, 1] a block at a time, never all dense."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.data.tables import Labels, damage, finish, reading, stack_blocks

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_IMAGES, _LABELS = 0x803, 0x801  # unsigned bytes in three dimensions, in one
_ROWS_PER_BLOCK = 4096


def read_idx(images: Path, labels: Path) -> tuple[csr_matrix, Labels]:
    with reading(images) as file:
        n, height, width = _header(images, file, _IMAGES, 3)
        X = stack_blocks(_blocks(images, file, n, height * width))
    with reading(labels) as file:
        (n_labels,) = _header(labels, file, _LABELS, 1)
        y = np.frombuffer(_exactly(labels, file, n_labels), dtype=np.uint8)
    X = X.astype(np.float64)
    X.data /= 255.0
    return finish(images, X, y, height * width)


def _header(path: Path, file: IO[bytes], magic: int, dimensions: int) -> tuple[int, ...]:
    found, *sizes = struct.unpack(f">{1 + dimensions}I", _exactly(path, file, 4 * (1 + dimensions)))
    if found != magic:
        raise damage(path, f"it starts with {found:#x}, an idx file of this kind with {magic:#x}")
    return tuple(sizes)


def _blocks(path: Path, file: IO[bytes], n: int, pixels: int) -> Iterator[NDArray[Any]]:
    for start in range(0, n, _ROWS_PER_BLOCK):
        rows = min(_ROWS_PER_BLOCK, n - start)
        yield np.frombuffer(_exactly(path, file, rows * pixels), dtype=np.uint8).reshape(rows, pixels)


def _exactly(path: Path, file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise damage(path, f"{size - len(data)} bytes are missing at its end")
    return data
