"""Reads svmlight (LIBSVM) text and names the line of an error. Leaves open whether ids start at 0 or 1: `formats`
decides that for all files of a data set together."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from gadget_svm.data.files import DataFileError, open_data_file
from gadget_svm.data.tables import LabelColumn, RawTable

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
    """Read a file. Ids become column numbers, so column 0 is empty if ids start at 1."""
    with open_data_file(path) as file:
        return parse_svmlight(path, file)


def parse_svmlight(path: Path, lines: Iterable[bytes]) -> RawTable:
    """Parse lines of a file; ``path`` is its name in errors."""
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
