"""Opening data files: owns decompression, the error for a damaged file and the shape a table has when it
leaves this package (CSR, float64, finite); knows no file format."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Labels = NDArray[Any]


class NoLabel(Enum):
    """Said instead of a label's column: all of them are features."""

    NONE = "none"


LabelColumn = str | int | NoLabel | None
"""A name or a number; None is for the reader to guess."""

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
COMPRESSIONS = ("", *_OPENERS)


class DataFileError(ValueError):
    """A data file that exists and cannot be used: truncated, damaged, empty or of the wrong shape."""


@dataclass(frozen=True)
class RawTable:
    """What a format reader hands back; ``sparse_text`` marks svmlight, whose width and base are guesses."""

    X: csr_matrix
    y: Labels
    columns: tuple[str, ...] | None = None
    sparse_text: bool = False
    label: str | None = None  # the name of the label's column
    guessed: int | None = None  # the number of a column of numbers without a name that was taken as the label


def is_compressed(path: Path) -> bool:
    return path.suffix.lower() in _OPENERS


def without_compression_suffix(path: Path) -> Path:
    """The path without the ending of its compression."""
    return path.with_suffix("") if is_compressed(path) else path


def require_file(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name the data file inside it")
    if not path.exists():
        raise FileNotFoundError(f"no file {path}: check the spelling, or give the path from {Path.cwd()}")


def damage(path: Path | str, why: object) -> DataFileError:
    return DataFileError(f"{path} looks truncated or damaged ({why}): fetch or copy it again")


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn what decompressors raise on bad bytes into a DataFileError; other errors of the disk pass."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise damage(path, error) from error
    except OSError as error:
        if error.errno is not None:  # bz2 and gzip report bad bytes as an OSError without a number
            raise
        raise damage(path, error) from error


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, decompressed by its ending."""
    require_file(path)
    opener = _OPENERS.get(path.suffix.lower(), open)
    with damage_named(path), opener(path, "rb") as file:
        yield file


def stack_blocks(blocks: Iterable[NDArray[Any]]) -> csr_matrix:
    """Dense blocks of rows as one CSR matrix; only one block is dense at any time."""
    from scipy.sparse import csr_matrix, vstack

    parts = [csr_matrix(block) for block in blocks]
    return vstack(parts, format="csr") if parts else csr_matrix((0, 0))


def require_rows(path: Path | str, X: csr_matrix) -> None:
    """A file without rows, say a header alone, has no width to speak of either."""
    if X.shape[0] == 0:
        raise DataFileError(f"{path} is empty: it has no rows")


def finish(path: Path | str, X: csr_matrix, y: Labels, n_features: int) -> tuple[csr_matrix, Labels]:
    """A checked table: ``n_features`` wide, float64, sorted, finite, 32-bit indices where they fit."""
    require_rows(path, X)
    if n_features == 0:
        raise DataFileError(f"{path} has no features: every row is empty")
    if X.shape[1] > n_features:
        raise DataFileError(
            f"{path} has {X.shape[1]} features, {n_features} were expected: is it the right file, "
            "or should n_features be larger?"
        )
    if len(y) != X.shape[0]:
        raise DataFileError(f"{path} has {X.shape[0]} rows and {len(y)} labels: every row needs one label")
    table = _compact(X, n_features)
    _require_finite(path, table)
    return table, normalize_labels(path, y)


def _compact(X: csr_matrix, n_features: int) -> csr_matrix:
    from scipy.sparse import csr_matrix

    fits = max(X.nnz, n_features) <= np.iinfo(np.int32).max
    kind = np.int32 if fits else np.int64
    parts: Any = (X.data.astype(np.float64, copy=False), X.indices.astype(kind), X.indptr.astype(kind))
    table: csr_matrix = csr_matrix(parts, shape=(X.shape[0], n_features))
    table.sum_duplicates()  # sorts as well
    table.eliminate_zeros()
    return table


def _require_finite(path: Path | str, X: csr_matrix) -> None:
    finite = np.isfinite(X.data)
    if finite.all():
        return
    row = int(np.searchsorted(X.indptr, np.argmin(finite), side="right"))
    raise DataFileError(f"{path}, row {row}: a value is NaN or infinite; replace it or drop the row")


def normalize_labels(path: Path | str, y: Labels) -> Labels:
    """Labels as whole numbers if all are, as numbers if all are, else as strings."""
    if y.dtype.kind not in "biuf":
        y = _numbers_if_all(y.astype(str))
    if y.dtype.kind == "U":
        return y
    values = y.astype(np.float64)
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values))) + 1
        raise DataFileError(f"{path}, row {row}: the label is NaN or infinite; correct it or drop the row")
    whole = bool((values == np.rint(values)).all() and (np.abs(values) < 2**53).all())
    return values.astype(np.int64) if whole else values


def _numbers_if_all(y: Labels) -> Labels:
    try:
        return y.astype(np.float64)
    except ValueError:
        return y
