"""A site's rows, read from its files and compared with the study. Rows stay at the site.

Owns the reading and the comparison of columns; the checks of rows and labels are in `training.site`.
"""

from dataclasses import replace
from pathlib import Path

import scipy.sparse as sp

from gadget_svm.data.files import DataFileError
from gadget_svm.data.formats import read_files
from gadget_svm.peers.process.config import PeerConfig
from gadget_svm.peers.training.site import Site, SiteError, check_labels, check_row_count, numbered_labels
from gadget_svm.study.study import Study, column_differences

MAX_DIFFERENCES = 5


def load_site(config: PeerConfig, study: Study) -> Site:
    """Read the rows that a peer.toml names; see `read_site`."""
    data = config.data
    return read_site(data.train, study, test=data.test, label=data.label, zero_based=data.zero_based)


def read_site(
    train: Path, study: Study, *, test: Path | None = None, label: str | int | None = None,
    zero_based: bool | None = None,
) -> Site:  # fmt: skip
    """Read a site's files. Columns are matched by name if the study names them.

    Raises
    ------
    SiteError
        Too few rows, a missing or unknown label, or columns that are not the study's; the message names the fix.
    """
    paths = [train] if test is None else [train, test]
    width = study.n_features if study.columns is None else None
    try:
        tables, columns, _ = read_files(paths, label=label, n_features=width, zero_based=zero_based)
    except DataFileError as error:
        if study.columns is None or error.path is None or error.column in study.columns:
            raise
        if error.column is None:
            raise _no_names(error.path, study) from error
        hint = "" if label is not None else f", or, if it is the label, say label={error.column!r}"
        raise SiteError(f"{error.path}: the study has no column {error.column!r}: leave it out{hint}") from error
    check_row_count(str(train), tables[0][0].shape[0])
    order = _column_order(train, columns, study)
    found = []
    for path, (X, y) in zip(map(str, paths), tables, strict=True):
        check_labels(path, y, study.classes)
        found.append((X if order is None else sp.csr_matrix(X[:, order]), numbered_labels(path, y, study.classes)))
    site = Site(*found[0], classes=study.classes, columns=study.columns)
    return site if test is None else replace(site, X_test=found[1][0], label_test=found[1][1])


def _column_order(path: Path, columns: tuple[str, ...] | None, study: Study) -> list[int] | None:
    """Return where the study's columns are in the file; None if they are in the same order, or have no names."""
    if study.columns is None:
        return None
    if columns is None:
        raise _no_names(path, study)
    if set(columns) != set(study.columns):
        found = list(column_differences(columns, study.columns, str(path), "the study"))
        more = [f"{len(found) - MAX_DIFFERENCES} more differences"] if len(found) > MAX_DIFFERENCES else []
        raise SiteError(
            f"{'; '.join(found[:MAX_DIFFERENCES] + more)}: rename, add or remove columns of the file, or agree on "
            "another study.toml with all sites"
        )
    place = {name: i for i, name in enumerate(columns)}
    return None if columns == study.columns else [place[name] for name in study.columns]


def _no_names(path: Path, study: Study) -> SiteError:
    """Return the error for a file without column names, if the study has names."""
    names = ", ".join((study.columns or ())[:3]) + (", ..." if study.n_features > 3 else "")
    return SiteError(
        f"{path} has no column names, and the study has: save the rows as CSV or Parquet, with the columns' names "
        f"({names}, and the label) in the first line, or make a study with --features {study.n_features} for all sites"
    )
