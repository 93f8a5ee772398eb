"""Reading plain CSV with pyarrow, where it is installed: much faster than the csv module, same result bit for bit.

Owns no rule of the format. Whatever is unusual (a missing value, a cell that is not a number, a row of another width, a
line break inside quotes where a block ends) makes it give up: the reader of `delimited` decides and words the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gadget_svm.data.tables import reading, stack_blocks

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

SMALL_BYTES = 1_000_000
"""Smaller files are not worth the import of pyarrow."""
BLOCK_BYTES = 8_000_000


class Layout(NamedTuple):
    """How a table is laid out, as far as its first rows tell."""

    separator: str
    skipped: int  # lines before the first row of values
    width: int
    label: int  # the label's column; ``width`` for none


def read_plain(path: Path, layout: Layout) -> tuple[csr_matrix, NDArray[np.str_]] | None:
    """Read features and the label cells (none without a label); None for whatever is unusual."""
    if path.stat().st_size < SMALL_BYTES:
        return None
    try:
        import pyarrow as pa
    except ImportError:
        return None
    labels: list[NDArray[np.str_]] = []
    try:
        X = stack_blocks(_blocks(path, layout, labels))
    except (pa.ArrowException, ValueError, OSError):
        return None
    return X, np.concatenate(labels) if labels else np.empty(0, dtype=str)


def _blocks(path: Path, layout: Layout, labels: list[NDArray[np.str_]]) -> Iterator[NDArray[np.float64]]:
    """Numbers, a bounded block of rows at a time; the label cells go to ``labels`` on the way."""
    with reading(path) as file:
        for batch in _batches(file, layout):
            columns = batch.columns
            if layout.label < layout.width:
                labels.append(_labels(columns.pop(layout.label)))
            block = np.column_stack([np.from_dlpack(column) for column in columns])  # to_numpy would import pandas
            if not np.isfinite(block).all():
                raise ValueError("a value is not finite")
            yield block


def _batches(file: Any, layout: Layout) -> Any:
    """Open the table with one type a column: text for the label, float64 for the others."""
    import pyarrow as pa
    from pyarrow import csv

    names = [str(column) for column in range(layout.width)]
    types = {name: pa.string() if j == layout.label else pa.float64() for j, name in enumerate(names)}
    return csv.open_csv(
        file,
        csv.ReadOptions(
            use_threads=False, block_size=BLOCK_BYTES, skip_rows=layout.skipped, column_names=names, encoding="utf8"
        ),
        csv.ParseOptions(delimiter=layout.separator),
        csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False),
    )


def _labels(column: Any) -> NDArray[np.str_]:
    """The cells as text without the space around them."""
    coded = column.dictionary_encode()
    values = [value.strip() for value in coded.dictionary.to_pylist()]
    if not all(values):
        raise ValueError("a label is empty")
    texts: NDArray[np.str_] = np.array(values, dtype=str)[np.from_dlpack(coded.indices)]
    return texts
