"""Reading one table, or several of one data set, from files: owns the choice of the format by the file's
ending and the agreement of the tables; refuses to guess labels' meaning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gadget_svm.core.lookup import lookup
from gadget_svm.data.columnar import read_npz, read_parquet
from gadget_svm.data.delimited import read_csv
from gadget_svm.data.svmlight import looks_like_svmlight, read_svmlight
from gadget_svm.data.tables import (
    COMPRESSIONS,
    DataFileError,
    LabelColumn,
    Labels,
    NoLabel,
    RawTable,
    finish,
    is_compressed,
    require_file,
    require_rows,
    without_compression_suffix,
)
from gadget_svm.data.uris import Location, display_name, local_copy, parse_location

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

__all__ = ["DataFileError", "read_table", "read_tables", "read_tables_with_columns", "read_unlabelled"]

LOG = logging.getLogger("gadget_svm.data")
Reader = Callable[[Path, LabelColumn], RawTable]

_SVMLIGHT = (".svm", ".svmlight", ".libsvm", ".txt", ".dat", ".trn", ".tst")
_READERS: dict[str, Reader] = {
    **dict.fromkeys(_SVMLIGHT, read_svmlight),
    **dict.fromkeys((".csv", ".tsv"), read_csv),
    **dict.fromkeys((".parquet", ".pq"), read_parquet),
    ".npz": read_npz,
}
FORMATS: dict[str, Reader] = {
    "svmlight": read_svmlight, "csv": read_csv, "tsv": read_csv, "parquet": read_parquet, "npz": read_npz,
}  # fmt: skip
"""The formats by name, for files whose ending does not tell. csv and tsv are one reader: it finds the separator."""
OPENINGS = {"parquet": b"PAR1\x15", "npz": b"PK\x03\x04"}
"""The first bytes of formats that are no text; a header of a CSV file may well begin with PAR1."""
MOST_CLASSES = 20
"""More different labels than this that are not whole numbers are measurements, not classes."""


def read_table(
    path: str | PathLike[str],
    *,
    label: str | int | None = None,
    n_features: int | None = None,
    zero_based: bool | None = None,
    format: str | None = None,
) -> tuple[csr_matrix, Labels]:
    """Read one file, by path or URI: svmlight, CSV (both also .gz .bz2 .xz), Parquet or npz.

    Parameters
    ----------
    label : the label's column, by name or number (default: label, y, target or class, else the last).
    n_features : the width of the result; a wider file is an error.
    zero_based : whether svmlight ids start at 0 (default: they do if an id 0 occurs).
    format : svmlight, csv, tsv, parquet or npz (default: by the file's ending).
    """
    return read_tables([path], label=label, n_features=n_features, zero_based=zero_based, format=format)[0]


def read_tables(
    paths: Sequence[str | PathLike[str]],
    *,
    label: str | int | None = None,
    n_features: int | None = None,
    zero_based: bool | None = None,
    format: str | None = None,
) -> list[tuple[csr_matrix, Labels]]:
    """Read files of one data set, such as train and test: one width, one numbering of the features."""
    return read_tables_with_columns(paths, label=label, n_features=n_features, zero_based=zero_based, format=format)[0]


def read_tables_with_columns(
    paths: Sequence[str | PathLike[str]],
    *,
    label: str | int | None = None,
    n_features: int | None = None,
    zero_based: bool | None = None,
    format: str | None = None,
) -> tuple[list[tuple[csr_matrix, Labels]], tuple[str, ...] | None]:
    """`read_tables`, and the names of the features where the first file has any."""
    places = [display_name(path) for path in paths]
    raws = [read_raw(path, label, format) for path in paths]
    tables = align_tables(places, raws, n_features, zero_based)
    for place, raw, (_, y) in zip(places, raws, tables, strict=True):
        require_class_labels(place, raw, y)
    warn_guessed_label(places[0], raws[0].guessed)
    return tables, raws[0].columns


def read_unlabelled(
    path: str | PathLike[str], *, zero_based: bool | None = None, format: str | None = None
) -> tuple[csr_matrix, tuple[str, ...] | None]:
    """A file in which every column is a feature (svmlight: whatever stands for a label), and their names."""
    raw = read_raw(path, NoLabel.NONE, format)
    return align_tables([display_name(path)], [raw], None, zero_based)[0][0], raw.columns


def read_raw(place: str | PathLike[str], label: LabelColumn = None, format: str | None = None) -> RawTable:
    """One file, by path or URI, as it is, before it agrees with others."""
    with local_copy(parse_location(place)) as path:
        return _reader(path, format)(path, label)


def require_class_labels(path: Location, raw: RawTable, y: Labels) -> None:
    """Refuse a column of measurements that was taken for the label, and name it."""
    if y.dtype.kind != "f" or len(np.unique(y)) <= MOST_CLASSES:
        return
    some = ", ".join(f"{value:g}" for value in y[:3].tolist())
    column = "the last column" if raw.label is None else f"the column {raw.label!r}"
    raise DataFileError(
        f"{path}: {column} was taken as the label, and holds measurements ({some}, ...), not classes: give the label's "
        "column by name or by number, counted from 0, such as label=0"
    )


def warn_guessed_label(path: Location, guessed: int | None) -> None:
    """Say which column of a table of numbers without a header was taken as the label."""
    if guessed is not None:
        LOG.warning(
            "%s has no header: its last column, number %d counted from 0, is taken as the label; label= chooses "
            "another one (on the command line --label)", path, guessed,
        )  # fmt: skip


def align_tables(
    places: Sequence[Location], raws: list[RawTable], n_features: int | None, zero_based: bool | None
) -> list[tuple[csr_matrix, Labels]]:
    """Give what was read from the files of one data set one width and one numbering, checked."""
    for path, raw in zip(places, raws, strict=True):
        require_rows(path, raw.X)
    raws = _from_zero(places, raws, zero_based)
    width = n_features if n_features is not None else _common_width(places, raws)
    return [finish(path, raw.X, raw.y, width) for path, raw in zip(places, raws, strict=True)]


def _reader(path: Path, format: str | None) -> Reader:
    require_file(path)
    chosen = None if format is None else lookup("format", format, FORMATS)
    if path.stat().st_size == 0:
        raise DataFileError(f"{path} is empty: fetch or copy it again")
    reader = chosen or _READERS.get(without_compression_suffix(path).suffix.lower())
    if reader in (read_parquet, read_npz) and is_compressed(path):
        raise DataFileError(f"{path} is compressed twice: unpack the {path.suffix} first")
    if reader is not None:
        require_kind(path, reader)
    if reader is None and looks_like_svmlight(path):
        return read_svmlight
    if reader is None:
        known = " ".join(_READERS)
        raise DataFileError(
            f"{path}: cannot tell its format. Say format='csv' (or {', '.join(FORMATS)}), or give it one of the "
            f"endings {known} (text also with {' '.join(COMPRESSIONS[1:])})"
        )
    return reader


def require_kind(path: Path, reader: Reader) -> None:
    """Refuse a file whose first bytes are those of another format than its ending or the user says."""
    with path.open("rb") as file:
        start = file.read(8)
    found = next((kind for kind, opening in OPENINGS.items() if start.startswith(opening)), None)
    if found is not None and FORMATS[found] is not reader:
        raise DataFileError(f"{path} is a file of the format {found}: say format={found!r}")
    wanted = next((kind for kind in OPENINGS if FORMATS[kind] is reader), None)
    if wanted is not None and not start.startswith(OPENINGS[wanted][:2]):
        others = ", ".join(kind for kind in FORMATS if kind not in OPENINGS)
        raise DataFileError(
            f"{path} is not of the format {wanted}: say which it is ({others}), such as format='csv'; if it should be "
            f"{wanted}, it looks truncated or damaged: fetch or copy it again"
        )


def _from_zero(places: Sequence[Location], raws: list[RawTable], zero_based: bool | None) -> list[RawTable]:
    """Let svmlight ids count from 0; the files decide together, as a test part may lack an id 0."""
    uses_zero = [raw.sparse_text and bool((raw.X.indices == 0).any()) for raw in raws]
    if zero_based is False and any(uses_zero):
        raise DataFileError(f"{places[uses_zero.index(True)]} has a feature id 0, ids from 1 were expected")
    if zero_based or any(uses_zero):
        return raws
    return [_shifted(raw) if raw.sparse_text else raw for raw in raws]


def _shifted(raw: RawTable) -> RawTable:
    from scipy.sparse import csr_matrix

    X = raw.X
    shape = (X.shape[0], max(0, X.shape[1] - 1))
    return replace(raw, X=csr_matrix((X.data, X.indices - 1, X.indptr), shape=shape))


def _common_width(places: Sequence[Location], raws: Sequence[RawTable]) -> int:
    """The widest svmlight file's width (tests often lack the last ids); other tables must agree."""
    width = max(raw.X.shape[1] for raw in raws)
    first, *others = raws
    for path, raw in zip(places[1:], others, strict=True):
        if not raw.sparse_text and raw.X.shape[1] != first.X.shape[1]:
            raise DataFileError(
                f"{path} has {raw.X.shape[1]} features and {places[0]} has {first.X.shape[1]}: "
                "use the same columns in both"
            )
        _require_same_columns(places[0], first, path, raw)
    return int(width)


def _require_same_columns(path: Location, raw: RawTable, other_path: Location, other: RawTable) -> None:
    if raw.columns is None or other.columns is None or raw.columns == other.columns:
        return
    pairs = zip(raw.columns, other.columns, strict=False)
    a, b = next((a, b) for a, b in pairs if a != b)
    raise DataFileError(f"column {a!r} of {path} stands where {other_path} has {b!r}: use the same order in both")
