"""A site's own rows, from its files to CSR with numbered classes. Nothing in here ever leaves the site."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.data.formats import read_files
from gadget_svm.peers.charter import names_hash

LEAST_ROWS = 20
"""A peer with fewer rows does not start: what it pushes would say too much about each of them."""


class SiteError(ValueError):
    """Rows that cannot be learned from, and what to do about it."""


@dataclass(frozen=True)
class Site:
    """Rows, class numbers, and the names that go with them."""

    X: sp.csr_matrix
    label: NDArray[np.int32]
    classes: tuple[str | float, ...]
    columns: tuple[str, ...] | None
    X_test: sp.csr_matrix | None = None
    label_test: NDArray[np.int32] | None = None

    @property
    def names(self) -> str:
        """The hash of the feature names."""
        return names_hash(self.columns)

    def fingerprint(self) -> str:
        """Of the rows and labels: a checkpoint belongs to the rows it was made of."""
        digest = hashlib.sha256(repr((self.X.shape, self.classes)).encode())
        for part in (self.X.indptr.astype(np.int64), self.X.indices.astype(np.int64), self.X.data, self.label):
            digest.update(np.ascontiguousarray(part).view(np.uint8).data)
        return digest.hexdigest()

    def with_rows(self, X: sp.csr_matrix, X_test: sp.csr_matrix | None) -> "Site":
        """The same labels with other features: scaled ones."""
        return replace(self, X=X, X_test=X_test)


def load_site(
    train: Path, *, test: Path | None = None, label: str | int | None = None, features: int | None = None,
    zero_based: bool | None = None, classes: Sequence[Any] | None = None,
) -> Site:  # fmt: skip
    """Read a site's files. Too few rows, a missing or unknown label or a lone class is an error that names the fix."""
    paths = [train] if test is None else [train, test]
    tables, columns, _ = read_files(paths, label=label, n_features=features, zero_based=zero_based)
    X, y = tables[0]
    if X.shape[0] < LEAST_ROWS:
        raise SiteError(
            f"{train} has {X.shape[0]} rows: a peer learns from at least {LEAST_ROWS}, since weights of fewer say too "
            "much about each of them. Join forces with another site, or add rows"
        )
    for path, (_, labels) in zip(paths, tables, strict=True):
        _require_labels(path, labels, classes or ())
    known = tuple(_plain(c) for c in (np.unique(y).tolist() if classes is None else classes))
    if len(known) < 2:
        raise SiteError(
            f"{train} has only the label {known[0]!r}: name all classes of all sites, "
            f"such as classes = [{known[0]!r}, ...] in [data]"
        )
    if len(set(known)) < len(known):
        raise SiteError(f"[data] classes names a class twice: {list(known)}")
    site = Site(X, _numbered(train, y, known), known, columns)
    if test is None:
        return site
    X_test, y_test = tables[1]
    return replace(site, X_test=X_test, label_test=_numbered(Path(str(test)), y_test, known))


def _numbered(path: Path, y: NDArray[Any], classes: tuple[str | float, ...]) -> NDArray[np.int32]:
    place = {c: i for i, c in enumerate(classes)}
    values, inverse = np.unique(y, return_inverse=True)
    plain = [_plain(v) for v in values.tolist()]
    for value in plain:
        if value not in place:
            raise SiteError(
                f"{path} has the label {value!r}, which is not among the classes {list(classes)}: "
                "set [data] classes to all labels of all sites"
            )
    return np.array([place[v] for v in plain], dtype=np.int32)[inverse.ravel()]


def _require_labels(path: Path, y: NDArray[Any], classes: Sequence[Any]) -> None:
    """Every row has one. Among words nothing, or nan, stands for a missing one, unless it is named as a class."""
    if y.dtype.kind in "biuf":  # finite, or it would not have been read
        return
    named = set(map(str, classes))
    for value in sorted(set(y.tolist()) - named):
        if value.strip() and not math.isnan(_number(value)):
            continue
        row = int(np.argmax(y == value)) + 1
        unless = f", or name {value} in [data] classes if it is a class" if value.strip() else ""
        raise SiteError(f"{path}, row {row}: the label is missing ({value!r}); fill it in or drop the row{unless}")


def _plain(value: Any) -> str | float:
    """A label as it is compared between sites: 1 and 1.0 are the same, and so is "1" of another file format."""
    number = _number(value)
    return number if math.isfinite(number) else str(value)


def _number(value: Any) -> float:
    """What a label says; infinite if it is a word."""
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.inf
