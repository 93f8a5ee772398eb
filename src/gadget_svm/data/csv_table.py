"""Reads CSV and TSV. Owns the guess of the header and of the label column (the latter also for Parquet); refuses
feature columns that are not numbers and names the cell.

pyarrow, if it is installed, reads large plain tables several times as fast as the csv module. If it fails, the csv
module reads the file again: it decides what is valid and can name the line and the column of an error.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gadget_svm.data.files import DataFileError, open_data_file
from gadget_svm.data.tables import CELLS_PER_BLOCK, Csr, LabelColumn, NoLabel, RawTable, stack_blocks

LABEL_NAMES = ("label", "y", "target", "class")
ARROW_MIN_BYTES = 1_000_000  # importing pyarrow takes longer than reading a smaller file
ARROW_BLOCK_BYTES = 8_000_000
_MISSING = ("", "na", "n/a", "null", "none", "?")

Row = tuple[int, list[str]]  # line number, cells


class Layout(NamedTuple):
    """The layout of a table, known from its first rows. ``label`` is ``width`` in a table without labels."""

    separator: str
    header_lines: int
    names: list[str] | None
    width: int
    label: int


def read_csv(path: Path, label: LabelColumn = None) -> RawTable:
    """Read a table of text separated by commas, semicolons or tabs."""
    try:
        with _open_text(path) as text:
            line = text.readline()
            separator = max(",;\t", key=line.count)
            head = list(islice(_rows(chain([line], text), separator), 2))
        layout, guessed = _layout(path, separator, head, label)
        X, y = _read_plain(path, layout) or _read_rows(path, layout)
    except csv.Error as error:
        raise DataFileError(f"{path}: {error}; is it comma-separated text?") from error
    names, k = layout.names, layout.label
    if k == layout.width:
        return RawTable(X, np.zeros(X.shape[0]), tuple(names) if names else None)
    columns = tuple(names[:k] + names[k + 1 :]) if names else None
    return RawTable(X, y, columns, label=names[k] if names else None, guessed=guessed)


@contextmanager
def _open_text(path: Path) -> Generator[io.TextIOWrapper, None, None]:
    with open_data_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        try:
            yield text
        finally:
            text.detach()  # `open_data_file` closes the file


def _rows(lines: Iterable[str], separator: str) -> Iterator[Row]:
    reader = csv.reader(lines, delimiter=separator)
    for cells in reader:
        if any(cells):
            yield reader.line_num, [cell.strip() for cell in cells]


def _layout(path: Path, separator: str, head: list[Row], label: LabelColumn) -> tuple[Layout, int | None]:
    """Return the layout, and the number of the label column if it was guessed without a name."""
    if not head:
        raise DataFileError(f"{path} is empty: it has no rows")
    first = head[0][1]
    width = len(first)
    line, names = (head[0][0], first) if _has_header(first, head[-1][1]) else (0, None)
    k = label_column(path, label, names, width)
    if names and "" in names[:k] + names[k + 1 :]:
        raise DataFileError(
            f"{path}: column number {names.index('')} has no name; if it is a row index, drop it "
            "(pandas: to_csv(..., index=False)), if it is a feature, name it"
        )
    guessed = k if label is None and names is None and _is_number(first[k]) else None
    return Layout(separator, line, names, width, k), guessed


def _has_header(first: list[str], second: list[str]) -> bool:
    """Return whether the first row has no number, or a word above a number."""
    if not any(_is_number(cell) for cell in first):
        return True
    words = [cell.lower() not in _MISSING and not _is_number(cell) for cell in first]
    return any(word and _is_number(below) for word, below in zip(words, second, strict=False))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def label_column(path: Path, label: LabelColumn, names: Sequence[str] | None, width: int) -> int:
    """Return the number of the label column, or ``width`` if no column is a label.

    By default it is a column called label, y, target or class, else the last one.
    """
    if isinstance(label, NoLabel):
        return width
    if width < 2:
        raise DataFileError(
            f"{path} has one column: a table needs a label and at least one feature; for svmlight say format='svmlight'"
        )
    if label is None:
        lower = [name.lower() for name in names or ()]
        return next((lower.index(name) for name in LABEL_NAMES if name in lower), width - 1)
    if names and label in names:
        return list(names).index(str(label))
    number = int(label) if str(label).lstrip("-").isdecimal() else width
    if not -width <= number < width:
        have = ", ".join(names) if names else f"no names, {width} columns numbered from 0"
        raise DataFileError(f"{path} has no label column {label!r}. It has: {have}.")
    return number % width


def _read_plain(path: Path, layout: Layout) -> tuple[Csr, NDArray[np.str_]] | None:
    """Read features and label cells with pyarrow. Returns None if it is not installed or a row is unusual."""
    if path.stat().st_size < ARROW_MIN_BYTES:
        return None
    try:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv
    except ImportError:
        return None
    names = [str(j) for j in range(layout.width)]
    types = {name: pa.string() if j == layout.label else pa.float64() for j, name in enumerate(names)}
    read = arrow_csv.ReadOptions(
        use_threads=False, block_size=ARROW_BLOCK_BYTES, skip_rows=layout.header_lines, column_names=names
    )
    parse = arrow_csv.ParseOptions(delimiter=layout.separator)
    convert = arrow_csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False)
    labels: list[NDArray[np.str_]] = []

    def blocks() -> Iterator[NDArray[np.float64]]:
        with open_data_file(path) as file:
            for batch in arrow_csv.open_csv(file, read, parse, convert):
                columns = batch.columns
                if layout.label < layout.width:
                    labels.append(_stripped(columns.pop(layout.label)))
                block = np.column_stack([np.from_dlpack(column) for column in columns])  # to_numpy imports pandas
                if not np.isfinite(block).all():
                    raise ValueError("a value is not finite")
                yield block

    try:
        X = stack_blocks(blocks())
    except (pa.ArrowException, ValueError, OSError):
        return None
    return X, np.concatenate(labels) if labels else np.empty(0, dtype=str)


def _stripped(column: Any) -> NDArray[np.str_]:
    """Return the cells of a column of text without spaces around them."""
    coded = column.dictionary_encode()
    values = [value.strip() for value in coded.dictionary.to_pylist()]
    if not all(values):
        raise ValueError("a label is empty")
    texts: NDArray[np.str_] = np.array(values, dtype=str)[np.from_dlpack(coded.indices)]
    return texts


def _read_rows(path: Path, layout: Layout) -> tuple[Csr, NDArray[np.str_]]:
    """Read features and label cells with the csv module, which can name the cell that is wrong."""
    labels: list[str] = []
    with _open_text(path) as text:
        rows = islice(_rows(text, layout.separator), 1 if layout.names else 0, None)
        X = stack_blocks(_blocks(path, rows, layout, labels))
    return X, np.array(labels, dtype=str)


def _blocks(path: Path, rows: Iterator[Row], layout: Layout, labels: list[str]) -> Iterator[NDArray[Any]]:
    """Yield dense blocks of features; the label cells are appended to ``labels``."""
    while block := list(islice(rows, max(1, CELLS_PER_BLOCK // layout.width))):
        for line, cells in block:
            if len(cells) != layout.width:
                raise DataFileError(
                    f"{path}, line {line}: {len(cells)} columns where {layout.width} were expected; correct the "
                    "line, or fetch or copy the file again if it was cut off"
                )
            if layout.label < layout.width:
                labels.append(cells.pop(layout.label))
                if not labels[-1]:
                    raise DataFileError(f"{path}, line {line}: the label is missing; fill it in or drop the row")
        try:
            yield np.array([cells for _, cells in block], dtype=np.float64)
        except ValueError as error:
            raise _not_a_number(path, block, layout) from error


def _not_a_number(path: Path, block: list[Row], layout: Layout) -> DataFileError:
    """Return the error that names the first cell that is not a number."""
    line, j, cell = next((line, j, c) for line, cells in block for j, c in enumerate(cells) if not _is_number(c))
    column = j if j < layout.label else j + 1
    label = layout.names[column] if layout.names else column
    called = repr(label) if layout.names else f"number {label}"
    return DataFileError(
        f"{path}, line {line}, column {called}: {cell!r} is not a number; encode the column as numbers, "
        f"drop it, or, if it is the label, say label={label}"
    )
