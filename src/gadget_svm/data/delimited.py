"""Reading CSV: owns the guess of the header and of the label column (shared with Parquet), and refuses
feature columns that are not numbers, naming the cell."""

from __future__ import annotations

import csv
import io
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.data.arrow_csv import Layout, read_plain
from gadget_svm.data.tables import DataFileError, LabelColumn, NoLabel, RawTable, reading, stack_blocks

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

LABEL_NAMES = ("label", "y", "target", "class")
_MISSING = ("", "na", "n/a", "null", "none", "?")
_CELLS_PER_BLOCK = 1_000_000

Row = tuple[int, list[str]]  # line number, cells


def read_csv(path: Path, label: LabelColumn = None) -> RawTable:
    with reading(path) as file, _text(file) as text:
        first = text.readline()
        separator = max(",;\t", key=first.count)
        try:
            return _parse(path, _rows(chain([first], text), separator), separator, label)
        except csv.Error as error:
            raise DataFileError(f"{path}: {error}; is it comma-separated text?") from error


def _parse(path: Path, rows: Iterator[Row], separator: str, label: LabelColumn) -> RawTable:
    head = list(islice(rows, 2))
    if not head:
        raise DataFileError(f"{path} is empty: it has no rows")
    width = len(head[0][1])
    line, names = head.pop(0) if _has_header([cells for _, cells in head]) else (0, None)
    k = label_column(path, label, names, width)
    if names and "" in names[:k] + names[k + 1 :]:
        raise DataFileError(
            f"{path}: column number {names.index('')} has no name; if it is a row index, drop it "
            "(pandas: to_csv(..., index=False)), if it is a feature, name it"
        )
    guessed = k if label is None and names is None and _is_number(head[0][1][k]) else None
    found = read_plain(path, Layout(separator, line, width, k)) if head else None
    X, labels = found or _read(path, chain(head, rows), width, k, names)
    columns = tuple(names[:k] + names[k + 1 :]) if names else None
    y = labels if k < width else np.zeros(X.shape[0])
    return RawTable(X, y, columns, label=names[k] if names and k < width else None, guessed=guessed)


def _read(
    path: Path, rows: Iterator[Row], width: int, k: int, names: list[str] | None
) -> tuple[csr_matrix, NDArray[np.str_]]:
    """The numbers and the label cells, row by row: slow, but it can say which cell is wrong."""
    labels: list[str] = []
    X = stack_blocks(_blocks(path, rows, width, k, names, labels))
    return X, np.array(labels, dtype=str)


@contextmanager
def _text(file: IO[bytes]) -> Generator[io.TextIOWrapper, None, None]:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        yield text
    finally:
        text.detach()  # the file is closed by whoever opened it


def _rows(lines: Iterable[str], separator: str) -> Iterator[Row]:
    reader = csv.reader(lines, delimiter=separator)
    for cells in reader:
        if any(cells):
            yield reader.line_num, [cell.strip() for cell in cells]


def _has_header(head: Sequence[list[str]]) -> bool:
    """Names on top: nothing in the first row is a number, or a word stands above a number."""
    first, second = head[0], head[-1]
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
    """The label's place: as told, else a column called label, y, target or class, else the last; ``width`` for none."""
    if isinstance(label, NoLabel):
        return width
    if width < 2:
        raise DataFileError(
            f"{path} has one column: a table needs a label and at least one feature; for svmlight say format='svmlight'"
        )
    lower = [name.lower() for name in names or ()]
    if label is None:
        return next((lower.index(name) for name in LABEL_NAMES if name in lower), width - 1)
    if names and label in names:
        return list(names).index(str(label))
    place = _as_index(label)
    if place is None or not -width <= place < width:
        have = ", ".join(names) if names else f"no names, {width} columns numbered from 0"
        raise DataFileError(f"{path} has no label column {label!r}. It has: {have}.")
    return place % width


def _as_index(label: str | int) -> int | None:
    try:
        return int(label)
    except ValueError:
        return None


def _blocks(
    path: Path, rows: Iterator[Row], width: int, k: int, names: list[str] | None, labels: list[str]
) -> Iterator[NDArray[Any]]:
    """Numbers, a bounded block of rows at a time; the label cells go to ``labels`` on the way."""
    while block := list(islice(rows, max(1, _CELLS_PER_BLOCK // width))):
        for line, cells in block:
            if len(cells) != width:
                raise DataFileError(
                    f"{path}, line {line}: {len(cells)} columns where {width} were expected; correct the "
                    "line, or fetch or copy the file again if it was cut off"
                )
            if k < width:
                labels.append(_label(path, line, cells.pop(k)))
        yield _numbers(path, block, k, names)


def _label(path: Path, line: int, cell: str) -> str:
    if not cell:
        raise DataFileError(f"{path}, line {line}: the label is missing; fill it in or drop the row")
    return cell


def _numbers(path: Path, block: list[Row], k: int, names: list[str] | None) -> NDArray[Any]:
    try:
        return np.array([cells for _, cells in block], dtype=np.float64)
    except ValueError as error:
        line, j, cell = next(
            (line, j, cell) for line, cells in block for j, cell in enumerate(cells) if not _is_number(cell)
        )
        column = j if j < k else j + 1
        called = repr(names[column]) if names else f"number {column}"
        labelled = f"label={names[column] if names else column!r}"
        raise DataFileError(
            f"{path}, line {line}, column {called}: {cell!r} is not a number; encode the column as numbers, "
            f"drop it, or, if it is the label, say {labelled}"
        ) from error
