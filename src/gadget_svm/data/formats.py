"""Reads one table, or the tables of one data set, from files. Owns the choice of the format by suffix and the
alignment of the tables: one width, one numbering of the features."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gadget_svm.core.lookup import lookup
from gadget_svm.data.binary_tables import read_npz, read_parquet
from gadget_svm.data.files import COMPRESSION_SUFFIXES, DataFileError, require_file, without_compression_suffix
from gadget_svm.data.tables import Csr, LabelColumn, Labels, RawTable, checked_table
from gadget_svm.data.text_tables import looks_like_svmlight, read_csv, read_svmlight
from gadget_svm.data.uris import Location, display_name, local_copy, parse_location

__all__ = ["DataFileError", "read_files", "read_table"]

LOG = logging.getLogger("gadget_svm.data")
Names = Sequence[Location]
Raws = Sequence[RawTable]


class Format(NamedTuple):
    """How files of a format are recognised and read. ``magic`` are the first bytes of a binary format."""

    read: Callable[[Path, LabelColumn], RawTable]
    suffixes: tuple[str, ...]
    magic: bytes = b""


FORMATS = {
    "svmlight": Format(read_svmlight, (".svm", ".svmlight", ".libsvm", ".txt", ".dat", ".trn", ".tst")),
    "csv": Format(read_csv, (".csv",)),
    "tsv": Format(read_csv, (".tsv",)),
    "parquet": Format(read_parquet, (".parquet", ".pq"), b"PAR1\x15"),  # the header of a CSV file may begin with PAR1
    "npz": Format(read_npz, (".npz",), b"PK\x03\x04"),
}
_BY_SUFFIX = {suffix: name for name, format in FORMATS.items() for suffix in format.suffixes}
MAX_FRACTIONAL_CLASSES = 20
"""A column of fractional numbers with more distinct values than this holds measurements, not classes."""


def read_table(
    path: str | PathLike[str], *, label: str | int | None = None, n_features: int | None = None,
    zero_based: bool | None = None, format: str | None = None,
) -> tuple[Csr, Labels]:  # fmt: skip
    """Read a table from a file, by path or URI.

    The formats are svmlight and CSV (both also compressed: .gz, .bz2, .xz), Parquet and npz.

    Parameters
    ----------
    path : a path, or a URI such as s3://bucket/name.csv.
    label : name or number of the label column. Default: a column called label, y, target or class, else the last.
    n_features : number of columns of the result. Default: as many as the file has.
    zero_based : whether the ids of svmlight start at 0. Default: they do if an id 0 occurs.
    format : svmlight, csv, tsv, parquet or npz. Default: by the suffix of the file.

    Returns
    -------
    X : csr_matrix of float64
    y : array of int64, float64 or strings

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    DataFileError
        If the file cannot be used: it is damaged or empty, or a feature is not a number. The message names the fix.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from gadget_svm.data import read_table
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "flowers.csv")
    ...     _ = path.write_text("length,width,species\\n5.1,3.5,setosa\\n4.9,0,virginica\\n")
    ...     X, y = read_table(path)
    >>> X.toarray().tolist(), y.tolist()
    ([[5.1, 3.5], [4.9, 0.0]], ['setosa', 'virginica'])
    """
    return read_files([path], label=label, n_features=n_features, zero_based=zero_based, format=format).tables[0]


class Files(NamedTuple):
    """Tables of one data set, and facts about their files.

    Attributes
    ----------
    tables : a pair (X, y) per file, as from `read_table`.
    columns : the names of the features, if the first file has names.
    zero_based : whether the ids of svmlight start at 0; None if no file is svmlight.
    """

    tables: list[tuple[Csr, Labels]]
    columns: tuple[str, ...] | None = None
    zero_based: bool | None = None


def read_files(
    paths: Sequence[str | PathLike[str]], *, label: str | int | None = None, n_features: int | None = None,
    zero_based: bool | None = None, format: str | None = None,
) -> Files:  # fmt: skip
    """Read several files of one data set, such as train and test: same width, same numbering of the features.

    Parameters
    ----------
    paths : paths or URIs.
    label, n_features, zero_based, format : as for `read_table`, for all files.

    Returns
    -------
    Files

    Raises
    ------
    DataFileError
        As for `read_table`, and if the columns of the files differ.

    Examples
    --------
    The test file lacks the feature 3, but gets a column for it:

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from gadget_svm.data import read_files
    >>> with TemporaryDirectory() as folder:
    ...     train, test = Path(folder, "train.svm"), Path(folder, "test.svm")
    ...     _ = train.write_text("+1 1:0.5 3:2\\n-1 2:1\\n"), test.write_text("-1 1:1\\n")
    ...     (X, y), (X_test, y_test) = read_files([train, test]).tables
    >>> X.shape, X_test.toarray().tolist()
    ((2, 3), [[1.0, 0.0, 0.0]])
    """
    names = [display_name(path) for path in paths]
    raws = [read_raw(path, label, format) for path in paths]
    tables = align_tables(names, raws, n_features, zero_based)
    for name, raw, (_, y) in zip(names, raws, tables, strict=True):
        _require_class_labels(name, raw, y)
    warn_guessed_label(names[0], raws[0].guessed)
    return Files(tables, raws[0].columns, ids_from_zero(raws))


def read_raw(location: str | PathLike[str], label: LabelColumn = None, format: str | None = None) -> RawTable:
    """Read one file, by path or URI, before it is aligned with others."""
    with local_copy(parse_location(location)) as path:
        return _recognise(path, format).read(path, label)


def _require_class_labels(name: Location, raw: RawTable, y: Labels) -> None:
    """Refuse a column of measurements that was taken as the label, and name it."""
    if y.dtype.kind != "f" or len(np.unique(y)) <= MAX_FRACTIONAL_CLASSES:
        return
    some = ", ".join(f"{value:g}" for value in y[:3].tolist())
    column = "the last column" if raw.label is None else f"the column {raw.label!r}"
    raise DataFileError(
        f"{name}: {column} was taken as the label, and holds measurements ({some}, ...), not classes: give the label's "
        "column by name or by number, counted from 0, such as label=0"
    )


def warn_guessed_label(name: Location, guessed: int | None) -> None:
    """Log which column was taken as the label in a table of numbers without a header."""
    if guessed is not None:
        LOG.warning(
            "%s has no header: its last column, number %d counted from 0, is taken as the label; label= chooses "
            "another one (on the command line --label)", name, guessed,
        )  # fmt: skip


def align_tables(names: Names, raws: Raws, n_features: int | None, zero_based: bool | None) -> list[tuple[Csr, Labels]]:
    """Give the tables of one data set the same width and the same numbering of the features, and check them.

    ``names`` are the names of the files in errors.
    """
    for name, raw in zip(names, raws, strict=True):
        if raw.X.shape[0] == 0:  # such as a header alone
            raise DataFileError(f"{name} is empty: it has no rows")
    raws = _number_from_zero(names, raws, zero_based)
    width = n_features if n_features is not None else _common_width(names, raws)
    return [checked_table(name, raw.X, raw.y, width) for name, raw in zip(names, raws, strict=True)]


def _recognise(path: Path, name: str | None) -> Format:
    """Return the format with this name, or by the suffix of the file. Refuse files of another format."""
    require_file(path)
    if name is not None:
        lookup("format", name, FORMATS)
    if path.stat().st_size == 0:
        raise DataFileError(f"{path} is empty: fetch or copy it again")
    name = name or _BY_SUFFIX.get(without_compression_suffix(path).suffix.lower())
    if name is None:
        if looks_like_svmlight(path):
            return FORMATS["svmlight"]
        endings = f"{' '.join(_BY_SUFFIX)} (text also with {' '.join(COMPRESSION_SUFFIXES[1:])})"
        fix = f"say format='csv' (or {', '.join(FORMATS)}), or use one of the endings {endings}"
        raise DataFileError(f"{path}: its format is unknown: {fix}")
    format = FORMATS[name]
    if format.magic and without_compression_suffix(path) != path:
        raise DataFileError(f"{path} is compressed twice: unpack the {path.suffix} first")
    with path.open("rb") as file:
        start = file.read(8)
    for other, (_, _, magic) in FORMATS.items():
        if other != name and magic and start.startswith(magic):
            raise DataFileError(f"{path} is a file of the format {other}: say format={other!r}")
    if not start.startswith(format.magic[:2]):
        texts = ", ".join(other for other in FORMATS if not FORMATS[other].magic)
        raise DataFileError(
            f"{path} is not of the format {name}: say which it is ({texts}), such as format='csv'; if it should be "
            f"{name}, it looks truncated or damaged: fetch or copy it again"
        )
    return format


def _number_from_zero(names: Names, raws: Raws, zero_based: bool | None) -> Raws:
    """Number the features of svmlight from 0. All files are checked together, because a test file may lack an id 0."""
    from_zero = ids_from_zero(raws)
    if zero_based is False and from_zero:
        name = next(name for name, raw in zip(names, raws, strict=True) if raw.has_id_zero())
        raise DataFileError(f"{name} has a feature id 0, ids from 1 were expected")
    if zero_based or from_zero:
        return raws
    return [replace(raw, X=raw.X[:, 1:]) if raw.sparse_text else raw for raw in raws]


def ids_from_zero(raws: Raws) -> bool | None:
    """Return whether the ids of svmlight start at 0; None if no table is svmlight."""
    return any(raw.has_id_zero() for raw in raws) if any(raw.sparse_text for raw in raws) else None


def _common_width(names: Names, raws: Raws) -> int:
    """Return the width of the widest svmlight file (tests often lack the last ids). Others must be equally wide."""
    first = raws[0]
    for name, raw in zip(names[1:], raws[1:], strict=True):
        if not raw.sparse_text and raw.X.shape[1] != first.X.shape[1]:
            widths = f"{name} has {raw.X.shape[1]} features and {names[0]} has {first.X.shape[1]}"
            raise DataFileError(f"{widths}: use the same columns in both")
        if first.columns and raw.columns and first.columns != raw.columns:
            a, b = next((a, b) for a, b in zip(first.columns, raw.columns, strict=False) if a != b)
            raise DataFileError(f"{names[0]} has the column {a!r} where {name} has {b!r}: use the same order in both")
    return int(max(raw.X.shape[1] for raw in raws))
