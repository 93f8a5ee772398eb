"""Reads npz archives: ``X`` and ``y``, or the arrays of a CSR matrix and ``y``. Refuses pickled objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gadget_svm.core.types import Array
from gadget_svm.data.files import DataFileError, damage_reported, damaged
from gadget_svm.data.tables import Csr, LabelColumn, NoLabel, RawTable, dense_to_csr

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
