"""Reads Parquet files and Arrow tables with pyarrow; refuses columns that are not numbers and missing values."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gadget_svm.core.extras import require
from gadget_svm.core.types import Array
from gadget_svm.data.csv_table import label_column
from gadget_svm.data.files import DataFileError, damage_reported, damaged
from gadget_svm.data.tables import CELLS_PER_BLOCK, LabelColumn, Labels, RawTable, stack_blocks

_NUMBERS = ("int", "uint", "float", "double", "halffloat", "bool")
"""How the names of Arrow's types of numbers begin."""


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
    """Read a pyarrow.Table with the checks of a Parquet file; ``name`` is its name in errors."""
    return _read_batches(name, SimpleNamespace(schema_arrow=table.schema, iter_batches=table.to_batches), label)


def _read_batches(path: Path, file: Any, label: LabelColumn) -> RawTable:
    # pandas may store its row index as a column; it is neither a feature nor a label
    names = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]
    k = label_column(path, label, names, len(names))
    columns = tuple(names[:k] + names[k + 1 :])
    for name in columns:
        kind = str(file.schema_arrow.field(name).type)
        if not kind.startswith(_NUMBERS):
            fix = "encode the column as numbers, drop it, or name it as the label"
            raise DataFileError(f"{path}, column {name!r}: {kind} is not a number; {fix}")
    labels: list[Labels] = []

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
        raise DataFileError(f"{path}, column {name!r}, row {row}: a value is missing; fill it in or drop it")
    values: Array = column.to_numpy(zero_copy_only=False)
    return values
