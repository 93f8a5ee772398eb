"""A site's own rows as values, and the checks of its labels. Nothing in here leaves the site. Reads no files."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.study.study import plain_label

MIN_ROWS = 20
"""A site with fewer rows does not take part: its weights would tell too much about each of them."""


class SiteError(ValueError):
    """Rows that cannot be learned from, and the fix."""


@dataclass(frozen=True, eq=False)
class Site:
    """Rows, class numbers, and the names that belong to them."""

    X: sp.csr_matrix
    label: NDArray[np.int32]
    classes: tuple[str | float, ...]
    columns: tuple[str, ...] | None = None
    X_test: sp.csr_matrix | None = None
    label_test: NDArray[np.int32] | None = None

    def fingerprint(self) -> str:
        """Return a digest of rows and labels: a snapshot belongs to the rows that it was made of."""
        digest = hashlib.sha256(repr((self.X.shape, self.classes)).encode())
        for part in (self.X.indptr.astype(np.int64), self.X.indices.astype(np.int64), self.X.data, self.label):
            digest.update(np.ascontiguousarray(part).view(np.uint8).data)
        return digest.hexdigest()


def check_row_count(where: str, n_rows: int) -> None:
    """Raise SiteError if there are fewer than MIN_ROWS rows."""
    if n_rows < MIN_ROWS:
        raise SiteError(
            f"{where} has {n_rows} rows: a site takes part with at least {MIN_ROWS}, since weights of fewer tell too "
            "much about each of them. Join forces with another site, or add rows"
        )


def check_labels(where: str, y: NDArray[Any], classes: Sequence[Any]) -> None:
    """Raise SiteError if a row has no label. Among words, an empty one or nan is missing unless it names a class."""
    if y.dtype.kind in "biuf":  # finite, or it would not have been read
        return
    named = set(map(str, classes))
    for value in sorted(set(y.tolist()) - named):
        if value.strip().lstrip("+-").lower() not in ("", "nan"):
            continue
        row = int(np.argmax(y == value)) + 1
        unless = f", or name {value} in the study's classes if it is a class" if value.strip() else ""
        raise SiteError(f"{where}, row {row}: the label is missing ({value!r}); fill it in or drop the row{unless}")


def numbered_labels(where: str, y: NDArray[Any], classes: Sequence[str | float]) -> NDArray[np.int32]:
    """Return the place of every label in ``classes``; raise SiteError for a label that is not among them."""
    place = {plain_label(c): i for i, c in enumerate(classes)}
    values, inverse = np.unique(y, return_inverse=True)
    plain = [plain_label(v) for v in values.tolist()]
    for value in plain:
        if value not in place:
            raise SiteError(
                f"{where} has the label {value!r}, which is not among the classes {list(classes)}: "
                "the study's classes are all labels of all sites"
            )
    return np.array([place[v] for v in plain], dtype=np.int32)[inverse.ravel()]
