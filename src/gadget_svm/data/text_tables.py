"""Reads CSV, TSV and svmlight (LIBSVM) text, and names the cell or the line of an error.

Owns the guess of the header and of the label column (the latter also for Parquet); refuses feature columns that are not
numbers. numpy parses the cells of CSV and TSV; the csv module reads the header, and finds the place of an error. Leaves
open whether svmlight ids start at 0 or 1: `formats` decides that for all files of a data set together.
"""

import csv
import io
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gadget_svm.core.types import Array, Floats
from gadget_svm.data.files import DataFileError, open_data_file
from gadget_svm.data.tables import CELLS_PER_BLOCK, Csr, LabelColumn, NoLabel, RawTable, is_number, stack_blocks

LABEL_NAMES = ("label", "y", "target", "class")
_MISSING = ("", "na", "n/a", "null", "none", "?")

Row = tuple[int, list[str]]  # line number, cells


class CsvHeader(NamedTuple):
    """The form of a table, as its first rows show it. ``label`` is ``width`` in a table without labels."""

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
            if "\0" in line:
                raise _not_utf8(path, "it has null bytes, as UTF-16 has")
            separator = max(",;\t", key=line.count)
            head = list(islice(_rows(chain([line], text), separator), 2))
        header, guessed = _find_header(path, separator, head, label)
        try:
            X, y = _read_cells(path, header)
        except ValueError as error:
            raise _describe_error(path, header, error, label_given=label is not None) from error
    except csv.Error as error:
        raise DataFileError(f"{path}: {error}; is it comma-separated text?") from error
    names, k = header.names, header.label
    if k == header.width:
        return RawTable(X, np.zeros(X.shape[0]), tuple(names) if names else None)
    columns = tuple(names[:k] + names[k + 1 :]) if names else None
    return RawTable(X, y, columns, label=names[k] if names else None, guessed=guessed)


@contextmanager
def _open_text(path: Path) -> Generator[io.TextIOWrapper, None, None]:
    with open_data_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        try:
            yield text
        except UnicodeDecodeError as error:
            raise _not_utf8(path, f"{error.reason} at byte {error.start}") from error
        finally:
            text.detach()  # `open_data_file` closes the file


def _not_utf8(path: Path, reason: str) -> DataFileError:
    return DataFileError(
        f"{path} is not UTF-8 text ({reason}): save the file as UTF-8; if it should be, it looks truncated or damaged: "
        "fetch or copy it again"
    )


def _rows(lines: Iterable[str], separator: str) -> Iterator[Row]:
    reader = csv.reader(lines, delimiter=separator)
    for cells in reader:
        if any(cells):
            yield reader.line_num, [cell.strip() for cell in cells]


def _find_header(path: Path, separator: str, head: list[Row], label: LabelColumn) -> tuple[CsvHeader, int | None]:
    """Return the header, and the number of the label column if it was guessed without a name."""
    if not head:
        raise DataFileError(f"{path} is empty: it has no rows")
    first = head[0][1]
    width = len(first)
    line, names = (head[0][0], first) if _has_header(first, head[-1][1]) else (0, None)
    require_distinct(path, names or ())
    k = label_column(path, label, names, width)
    if names and "" in names[:k] + names[k + 1 :]:
        raise DataFileError(
            f"{path}: column number {names.index('')} has no name; if it is a row index, drop it "
            "(pandas: to_csv(..., index=False)), if it is a feature, name it"
        )
    guessed = k if label is None and names is None and is_number(first[k]) else None
    return CsvHeader(separator, line, names, width, k), guessed


def _has_header(first: list[str], second: list[str]) -> bool:
    """Return whether the first row has no number, or a word above a number."""
    if not any(is_number(cell) for cell in first):
        return True
    words = [cell.lower() not in _MISSING and not is_number(cell) for cell in first]
    return any(word and is_number(below) for word, below in zip(words, second, strict=False))


def require_distinct(path: Path, names: Sequence[str]) -> None:
    """Refuse a table in which two columns have one name."""
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if name and first.setdefault(name, i) != i:
            raise DataFileError(
                f"{path} has two columns {name!r}, number {first[name]} and number {i} counted from 0: rename or "
                "remove one of them"
            )


def label_column(path: Path, label: LabelColumn, names: Sequence[str] | None, width: int) -> int:
    """Return the number of the label column, or ``width`` if no column is a label.

    By default it is a column called label, y, target or class, else the last one.
    """
    if isinstance(label, NoLabel):
        return width
    if width < 2:
        raise DataFileError(f"{path} has one column; a table has a label and features (or say format='svmlight')")
    if label is None:
        lower = [name.lower() for name in names or ()]
        return next((lower.index(name) for name in LABEL_NAMES if name in lower), width - 1)
    if names and label in names:
        return list(names).index(str(label))
    number = int(label) if str(label).lstrip("-").isdecimal() else width
    if not -width <= number < width:
        if names:
            raise DataFileError(f"{path} has no label column {label!r}. It has: {', '.join(names)}.")
        raise DataFileError(
            f"{path} has no label column {label!r}: it has no header, and {width} columns numbered from 0. Add a first "
            "line with the names of the columns, or give the label's number",
            path,
        )
    return number % width


def _read_cells(path: Path, header: CsvHeader) -> tuple[Csr, Array]:
    """Return the features and the label cells."""
    number_of: dict[str, int] = {}  # the labels, in the order in which they occur
    numbers: list[Floats] = []

    def encode(cell: str) -> int:
        if not cell.strip():
            raise ValueError("a label is missing")
        return number_of.setdefault(cell.strip(), len(number_of))

    def blocks(lines: Iterator[str]) -> Iterator[Floats]:
        for first in lines:
            block = np.loadtxt(
                chain([first], lines), delimiter=header.separator, quotechar='"', comments=None, ndmin=2,
                converters={header.label: encode} if header.label < header.width else None, encoding="utf-8",
                max_rows=max(1, CELLS_PER_BLOCK // header.width),
            )  # fmt: skip
            if block.shape[1] != header.width:
                raise ValueError(f"{block.shape[1]} columns where {header.width} were expected")
            numbers.append(block[:, header.label : header.label + 1])
            yield np.delete(block, slice(header.label, header.label + 1), axis=1)

    with _open_text(path) as text:
        blank = f'{header.separator}" \t\r\n'
        X = stack_blocks(blocks(line for line in islice(text, header.header_lines, None) if line.strip(blank)))
    labels = np.array(list(number_of), dtype=str)
    return X, labels[np.concatenate(numbers).astype(int).ravel()] if numbers else labels


def _describe_error(path: Path, header: CsvHeader, error: ValueError, label_given: bool) -> DataFileError:
    """Return the error that names the first cell or line that cannot be read."""
    with _open_text(path) as text:
        for line, cells in islice(_rows(text, header.separator), 1 if header.names else 0, None):
            if len(cells) != header.width:
                return DataFileError(
                    f"{path}, line {line}: {len(cells)} columns where {header.width} were expected; correct the "
                    "line, or fetch or copy the file again if it was cut off"
                )
            for j, cell in enumerate(cells):
                if j == header.label and not cell:
                    return DataFileError(f"{path}, line {line}: the label is missing; fill it in or drop the row")
                if j != header.label and not is_number(cell):
                    label = header.names[j] if header.names else j
                    called = repr(label) if header.names else f"number {j}"
                    if cell.lower() in _MISSING:
                        wrong = f"the value is missing ({cell!r}): fill it in or drop the row"
                    else:
                        wrong = f"{cell!r} is not a number: encode the column as numbers, or drop it"
                    hint = "" if label_given else f"; if it is the label, say label={label!r}"
                    name = header.names[j] if header.names else None
                    return DataFileError(f"{path}, line {line}, column {called}: {wrong}{hint}", path, name)
    return DataFileError(f"{path}: {error}; is it comma-separated text?")


_LINE = re.compile(rb"\s*[-+.\deE]+(\s+(\d+|qid):\S+)+")


class _CountedLines:
    """Iterate over lines and count them. scikit-learn accepts objects with `read` as open files."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self.n = 0

    def __iter__(self) -> Iterator[bytes]:
        for self.n, line in enumerate(self._lines, start=1):  # noqa: B020 - the loop is the counter
            yield line

    def read(self, size: int = -1) -> bytes:
        raise NotImplementedError(f"read line by line, not {size} bytes at a time")


def looks_like_svmlight(path: Path) -> bool:
    """Return whether one of the first lines has the form ``label id:value ...``."""
    with open_data_file(path) as file:
        return any(_LINE.match(line) for line in islice(iter(lambda: file.readline(1 << 16), b""), 10))


def read_svmlight(path: Path, _label: LabelColumn = None) -> RawTable:
    """Read an svmlight file. Ids become column numbers, so column 0 is empty if ids start at 1."""
    with open_data_file(path) as file:
        return parse_svmlight(path, file)


def parse_svmlight(path: Path, lines: Iterable[bytes]) -> RawTable:
    """Parse the lines of an svmlight file. Errors call it ``path``."""
    from scipy.sparse import csr_matrix
    from sklearn.datasets import load_svmlight_file

    lines_read = _CountedLines(lines)
    try:
        X, y = load_svmlight_file(lines_read, zero_based=True)
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError) as error:
        raise DataFileError(
            f"{path}, line {lines_read.n}: {error}. Expected 'label id:value id:value ...' with ids ascending: for a "
            "table say format='csv' (or tsv); if the file looks truncated or damaged, fetch or copy it again"
        ) from error
    short = csr_matrix((X.data, X.indices, X.indptr), shape=X.shape)  # 32 bits per index where they are enough
    return RawTable(short, y, sparse_text=True)
