"""Reading svmlight (LIBSVM) text: owns the line numbers in its errors; whether ids start at 0 or 1 is left
to the caller, who may know a second file of the same data set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from gadget_svm.data.tables import DataFileError, LabelColumn, RawTable, reading

_LINE = re.compile(rb"\s*[-+.\deE]+(\s+(\d+|qid):\S+)+")


class _Lines:
    """Lines that remember how many were read; ``read`` is there because the parser asks for a file."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self.number = 0

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.number += 1
            yield line

    def read(self, size: int = -1) -> bytes:
        raise NotImplementedError(f"read line by line, not {size} bytes at a time")


def looks_like_svmlight(path: Path) -> bool:
    """Whether one of the first lines has the form ``label id:value ...``."""
    with reading(path) as file:
        return any(_LINE.match(line) for line in islice(iter(lambda: file.readline(1 << 16), b""), 10))


def read_svmlight(path: Path, _label: LabelColumn = None) -> RawTable:
    """The table with ids as column numbers, so that column 0 is empty where ids start at 1."""
    with reading(path) as file:
        return parse_svmlight(path, file)


def parse_svmlight(path: Path, lines: Iterable[bytes]) -> RawTable:
    from sklearn.datasets import load_svmlight_file

    counted = _Lines(lines)
    try:
        X, y = load_svmlight_file(counted, zero_based=True)
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError) as error:
        raise DataFileError(
            f"{path}, line {counted.number}: {error}. Expected 'label id:value id:value ...' with ids ascending: for a "
            "table say format='csv' (or tsv); if the file should be right, it looks truncated or damaged: fetch or "
            "copy it again"
        ) from error
    return RawTable(X, y, sparse_text=True)
