"""Reading Parquet and npz: owns their checks, refuses pickled objects and columns that are not numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.data.delimited import label_column
from gadget_svm.data.tables import (
    DataFileError,
    LabelColumn,
    NoLabel,
    RawTable,
    damage,
    damage_named,
    require_file,
    stack_blocks,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_CSR_PARTS = ("data", "indices", "indptr", "shape")


def read_parquet(path: Path, label: LabelColumn = None) -> RawTable:
    require_file(path)
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install 'gadget-svm[parquet]'") from error
    try:
        with damage_named(path), parquet.ParquetFile(path) as file:
            return _parquet_table(path, file, label)
    except pa.ArrowException as error:
        raise damage(path, error) from error


def read_arrow_table(name: Path, table: Any, label: LabelColumn = None) -> RawTable:
    """A table in memory, checked as a Parquet file is; errors call it ``name``."""
    return _parquet_table(name, SimpleNamespace(schema_arrow=table.schema, iter_batches=table.to_batches), label)


def _parquet_table(path: Path, file: Any, label: LabelColumn) -> RawTable:
    # pandas may store its row index as a column; it is neither a feature nor a label
    names = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]
    k = label_column(path, label, names, len(names))
    columns = tuple(names[:k] + names[k + 1 :])
    for name in columns:
        _require_number(path, name, str(file.schema_arrow.field(name).type))
    labels: list[NDArray[Any]] = []
    X = stack_blocks(_parquet_blocks(path, file, names[k : k + 1], columns, labels))
    y = np.concatenate(labels) if labels else np.empty(0)
    return RawTable(X, y, columns, label=names[k] if k < len(names) else None)


def _require_number(path: Path, name: str, kind: str) -> None:
    if not kind.startswith(("int", "uint", "float", "double", "halffloat", "bool")):
        raise DataFileError(
            f"{path}, column {name!r}: {kind} is not a number; encode the column as numbers, drop it, "
            "or name it as the label"
        )


def _parquet_blocks(
    path: Path, file: Any, label: list[str], columns: tuple[str, ...], labels: list[NDArray[Any]]
) -> Iterator[NDArray[Any]]:
    """Numbers, batch by batch; what stands in the column of the ``label``, if there is one, goes to ``labels``."""
    for batch in file.iter_batches(max(1, 1_000_000 // (len(columns) + 1))):
        start = sum(map(len, labels))
        for name in (*columns, *label):
            _require_full(path, name, batch.column(name), start)
        there = [batch.column(name).to_numpy(zero_copy_only=False) for name in label]
        labels.append(there[0] if there else np.zeros(batch.num_rows))
        parts = [batch.column(name).to_numpy(zero_copy_only=False) for name in columns]
        yield np.column_stack(parts).astype(np.float64)


def _require_full(path: Path, name: str, column: Any, start: int) -> None:
    if column.null_count:
        row = start + column.is_null().to_numpy(zero_copy_only=False).argmax() + 1
        raise DataFileError(f"{path}, column {name!r}, row {row}: a value is missing; fill it in or drop it")


def read_npz(path: Path, label: LabelColumn = None) -> RawTable:
    """``X`` and ``y``, or the CSR parts ``data``, ``indices``, ``indptr``, ``shape`` and ``y``."""
    require_file(path)
    with damage_named(path):
        arrays = _npz_arrays(path)
    unlabelled = isinstance(label, NoLabel)
    y = np.empty(0) if unlabelled else arrays.get("y" if label is None else str(label))
    if y is None or not ("X" in arrays or set(_CSR_PARTS) <= set(arrays)):
        raise DataFileError(
            f"{path} has the arrays {', '.join(sorted(arrays)) or 'none'}: save X and y, or the CSR parts "
            f"{', '.join(_CSR_PARTS)} and y"
        )
    X = _dense(path, arrays["X"]) if "X" in arrays else _from_parts(path, arrays)
    if unlabelled:
        y = np.zeros(X.shape[0])
    return RawTable(X, y.ravel() if y.ndim == 2 and y.shape[1] == 1 else _one_column(path, y))


def _npz_arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, TypeError) as error:  # pickled objects, or an .npy under the wrong name
        raise damage(path, error) from error


def _one_column(path: Path, y: NDArray[Any]) -> NDArray[Any]:
    if y.ndim != 1:
        raise DataFileError(f"{path}: y has the shape {y.shape}; save one label per row")
    return y


def _dense(path: Path, X: NDArray[Any]) -> csr_matrix:
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise DataFileError(f"{path}: X has the shape {X.shape} and type {X.dtype}; save rows x features")
    step = max(1, 1_000_000 // max(1, X.shape[1]))
    return stack_blocks(X[i : i + step] for i in range(0, len(X), step))


def _from_parts(path: Path, arrays: dict[str, NDArray[Any]]) -> csr_matrix:
    from scipy.sparse import csr_matrix

    if str(arrays.get("format", np.array(b"csr")).astype(str)) != "csr":
        raise DataFileError(f"{path} holds a sparse matrix that is not CSR: save X.tocsr()")
    data, indices, indptr, shape = (arrays[name] for name in _CSR_PARTS)
    try:
        rows, columns = (int(n) for n in shape)
        X = csr_matrix((data, indices, indptr), shape=(rows, columns))
        X.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise damage(path, error) from error
    return X
