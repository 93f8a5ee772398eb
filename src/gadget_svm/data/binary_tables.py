"""Reads npz archives, Parquet files and Arrow tables. Refuses pickled objects, missing values, and columns of text.

An npz archive has ``X``, or the arrays of a CSR matrix, and ``y``. pyarrow reads Parquet.
"""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gadget_svm.core.extras import require
from gadget_svm.core.types import Array
from gadget_svm.data.files import DataFileError, damage_reported, damaged
from gadget_svm.data.tables import CELLS_PER_BLOCK, Csr, LabelColumn, NoLabel, RawTable, dense_to_csr, stack_blocks
from gadget_svm.data.text_tables import label_column, require_distinct

_CSR_ARRAYS = ("data", "indices", "indptr", "shape")


def read_npz(path: Path, label: LabelColumn = None) -> RawTable:
    """Read ``X`` or the CSR arrays ``data``, ``indices``, ``indptr`` and ``shape``, and the labels ``y``."""
    with damage_reported(path):
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays: dict[str, Array] = {name: archive[name] for name in archive.files}
        except (ValueError, TypeError) as error:  # pickled objects, or an .npy file with the wrong suffix
            raise damaged(path, error) from error
    unlabelled = isinstance(label, NoLabel)
    y: Array | None = np.empty(0) if unlabelled else arrays.get("y" if label is None else str(label))
    if y is None or not ("X" in arrays or set(_CSR_ARRAYS) <= set(arrays)):
        found = ", ".join(sorted(arrays)) or "none"
        raise DataFileError(f"{path} has the arrays {found}: save y and X, or y and {', '.join(_CSR_ARRAYS)}")
    dense = arrays.get("X")
    if dense is not None and (dense.ndim != 2 or dense.dtype.kind not in "biuf"):
        raise DataFileError(f"{path}: X has the shape {dense.shape} and type {dense.dtype}; save rows x features")
    X = _from_csr_arrays(path, arrays) if dense is None else dense_to_csr(dense)
    y = np.zeros(X.shape[0]) if unlabelled else y
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.ravel()
    if y.ndim != 1:
        raise DataFileError(f"{path}: y has the shape {y.shape}; save one label per row")
    return RawTable(X, y)


def _from_csr_arrays(path: Path, arrays: dict[str, Array]) -> Csr:
    from scipy.sparse import csr_matrix

    if str(arrays.get("format", np.array(b"csr")).astype(str)) != "csr":
        raise DataFileError(f"{path} holds a sparse matrix that is not CSR: save X.tocsr()")
    data, indices, indptr, shape = (arrays[name] for name in _CSR_ARRAYS)
    try:
        rows, columns = map(int, shape)
        X = csr_matrix((data, indices, indptr), shape=(rows, columns))
        X.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise damaged(path, error) from error
    return X


_NUMBERS = ("int", "uint", "float", "double", "halffloat", "bool")
"""The names of Arrow's number types begin with one of these."""


def read_parquet(path: Path, label: LabelColumn = None) -> RawTable:
    """Read a Parquet file, batch by batch."""
    damage = require("pyarrow", "reading Parquet needs", "parquet").ArrowException
    from pyarrow import parquet

    try:
        with damage_reported(path), parquet.ParquetFile(path) as file:
            return _read_batches(path, file, label)
    except damage as error:
        raise damaged(path, error) from error


def read_arrow_table(name: Path, table: Any, label: LabelColumn = None) -> RawTable:
    """Read a pyarrow.Table with the same checks as a Parquet file. Errors call it ``name``."""
    return _read_batches(name, SimpleNamespace(schema_arrow=table.schema, iter_batches=table.to_batches), label)


def _read_batches(path: Path, file: Any, label: LabelColumn) -> RawTable:
    # pandas may store its row index as a column; it is neither a feature nor a label
    names = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]
    require_distinct(path, names)
    k = label_column(path, label, names, len(names))
    columns = tuple(names[:k] + names[k + 1 :])
    for name in columns:
        kind = str(file.schema_arrow.field(name).type)
        if not kind.startswith(_NUMBERS):
            fix = "encode the column as numbers, drop it, or name it as the label"
            raise DataFileError(f"{path}, column {name!r}: {kind} is not a number; {fix}", path, name)
    labels: list[Array] = []

    def blocks() -> Iterator[Array]:
        for batch in file.iter_batches(max(1, CELLS_PER_BLOCK // (len(columns) + 1))):
            start = sum(map(len, labels))
            values = {name: _full_column(path, name, batch.column(name), start) for name in names}
            labels.append(values[names[k]] if k < len(names) else np.zeros(batch.num_rows))
            yield np.column_stack([values[name] for name in columns]).astype(np.float64)

    X = stack_blocks(blocks())
    y = np.concatenate(labels) if labels else np.empty(0)
    return RawTable(X, y, columns, label=names[k] if k < len(names) else None)


def _full_column(path: Path, name: str, column: Any, start: int) -> Array:
    """Return the values of a column of one batch. Row ``start`` of the file is the first of the batch."""
    if column.null_count:
        row = start + column.is_null().to_numpy(zero_copy_only=False).argmax() + 1
        text = f"{path}, column {name!r}, row {row}: a value is missing; fill it in or drop the row"
        raise DataFileError(text, path, name)
    values: Array = column.to_numpy(zero_copy_only=False)
    return values
