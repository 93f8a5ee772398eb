"""Tables in memory: what a format reader returns, and the checked form in which a table leaves this package
(CSR, float64, finite). Knows no file format."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from gadget_svm.core.types import Array
from gadget_svm.data.files import DataFileError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Labels = Array
Csr: TypeAlias = "csr_matrix"
"""A matrix of scipy, which is slow to import and is imported on use."""
CELLS_PER_BLOCK = 1_000_000
"""A file is read in dense blocks of rows with about this many cells."""


class NoLabel(Enum):
    """Give this value instead of a label column if every column is a feature."""

    NONE = "none"


LabelColumn = str | int | NoLabel | None
"""The name or number of the label column. None: the reader guesses."""


@dataclass(frozen=True)
class RawTable:
    """One file as it was read, before it is aligned with the other files of its data set.

    Attributes
    ----------
    X : the features. For svmlight the column numbers are the ids in the file.
    y : one label per row.
    columns : names of the features, if the file has names.
    sparse_text : True for svmlight, which states neither its width nor whether ids start at 0 or 1.
    label : name of the label column, if it has one.
    guessed : number of the label column if it was guessed in a table of numbers without a header.
    """

    X: Csr
    y: Labels
    columns: tuple[str, ...] | None = None
    sparse_text: bool = False
    label: str | None = None
    guessed: int | None = None

    def has_id_zero(self) -> bool:
        """Return whether this is an svmlight table with an id 0."""
        return self.sparse_text and bool((self.X.indices == 0).any())


class TrainTest(NamedTuple):
    """Training rows and, if there are any, test rows."""

    X: Csr
    y: Labels
    X_test: "Csr | None" = None
    y_test: Labels | None = None

    def binarized(self, positive: str | float | None) -> "TrainTest":
        """Return the same rows with the labels of `binarize_labels`. The test rows may lack the label."""
        y_test = None if self.y_test is None else binarize_labels(self.y_test, positive, required=False)
        return self._replace(y=binarize_labels(self.y, positive), y_test=y_test)


def binarize_labels(y: Labels, positive: str | float | None, required: bool = True) -> Labels:
    """Return +1 for the label ``positive`` and -1 for all others; "0" and 0 are the same label.

    Parameters
    ----------
    y : the labels.
    positive : the label that becomes +1. None returns ``y`` unchanged.
    required : whether a row must have this label. Default: True.

    Raises
    ------
    ValueError
        If no row has the label.
    """
    if positive is None:
        return y
    try:
        signs = np.where(y == (str(positive) if y.dtype.kind == "U" else float(positive)), 1, -1)
    except ValueError:  # the labels are numbers and `positive` is not
        signs = np.full(len(y), -1)
    if required and not (signs > 0).any():
        labels = np.unique(y).tolist()
        known = ", ".join(map(str, labels[:20])) + (", ..." if len(labels) > 20 else "")
        raise ValueError(f"no row has the label {positive!r}. The labels are: {known}.")
    return signs


def is_number(text: str) -> bool:
    """Return whether numpy reads this text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def stack_blocks(blocks: Iterable[Array]) -> Csr:
    """Stack dense blocks of rows into one CSR matrix. Only one block is dense at any time."""
    from scipy.sparse import csr_matrix, vstack

    parts = [dense_to_csr(block) for block in blocks]
    return vstack(parts, format="csr") if parts else csr_matrix((0, 0))


def dense_to_csr(X: Array) -> Csr:
    """Convert dense rows to CSR. scipy converts through COO, which takes ten times as long."""
    from scipy.sparse import csr_matrix

    nonzero = X != 0
    ends = np.cumsum(np.count_nonzero(nonzero, axis=1))
    columns = np.broadcast_to(np.arange(X.shape[1], dtype=np.int32), X.shape)
    return csr_matrix((X[nonzero], columns[nonzero], np.append(0, ends)), shape=X.shape)


def checked_table(name: Path | str, X: Csr, y: Labels, n_features: int) -> tuple[Csr, Labels]:
    """Return a checked table: ``n_features`` wide, float64, sorted, finite, with 32-bit indices if they fit."""
    from scipy.sparse import csr_matrix

    if n_features == 0:
        raise DataFileError(f"{name} has no features: every row is empty")
    if X.shape[1] > n_features:
        wrong = f"{name} has {X.shape[1]} features, {n_features} were expected"
        raise DataFileError(f"{wrong}: is it the right file, or should n_features be larger?")
    if len(y) != X.shape[0]:
        raise DataFileError(f"{name} has {X.shape[0]} rows and {len(y)} labels: every row needs one label")
    data = X.data.astype(np.float64, copy=False)
    table: Csr = csr_matrix((data, X.indices, X.indptr), shape=(X.shape[0], n_features))  # with the shortest indices
    table.sum_duplicates()  # also sorts
    table.eliminate_zeros()
    finite = np.isfinite(table.data)
    if not finite.all():
        row = int(np.searchsorted(table.indptr, np.argmin(finite), side="right"))
        raise DataFileError(f"{name}, row {row}: a value is NaN or infinite; replace it or drop the row")
    return table, normalize_labels(name, y)


def normalize_labels(name: Path | str, y: Labels) -> Labels:
    """Return the labels as int64 if all are whole numbers, as float64 if all are numbers, else as strings."""
    if y.dtype.kind not in "biuf":
        y = y.astype(str)
    try:
        values = y.astype(np.float64)
    except ValueError:
        return y
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argmin(finite)) + 1
        raise DataFileError(f"{name}, row {row}: the label is NaN or infinite; correct it or drop the row")
    whole = bool((values == np.rint(values)).all() and (np.abs(values) < 2**53).all())
    return values.astype(np.int64) if whole else values
