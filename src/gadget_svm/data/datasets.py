"""Data sets by name or by path: owns where they are looked for, when they are downloaded and what a label
means (+1 against the rest); file formats and published facts live elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gadget_svm.core.lookup import lookup, unknown
from gadget_svm.data.catalog import ENTRIES, Entry, Layout
from gadget_svm.data.formats import read_tables_with_columns
from gadget_svm.data.paper_datasets import TrainTest
from gadget_svm.data.tables import COMPRESSIONS, Labels
from gadget_svm.data.uris import display_name, file_name, parse_location

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from gadget_svm.data.download import Progress

Folder = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Dataset:
    """Training rows and, where there is one, the test part; ``note`` says in a sentence what it is."""

    name: str
    X: csr_matrix
    y: Labels
    X_test: csr_matrix | None
    y_test: Labels | None
    lam: float | None
    note: str
    columns: tuple[str, ...] | None = None  # the features' names, where a file has them


@dataclass(frozen=True)
class DatasetInfo:
    """One line of the list of data sets: sizes as published, and where it is or how to get it."""

    name: str
    title: str
    rows: tuple[int, int]
    features: int
    lam: float | None
    found: Path | None
    status: str


class _Found(NamedTuple):
    layout: Layout
    paths: list[Path]


def load_dataset(
    name_or_path: str | os.PathLike[str],
    *,
    test: str | os.PathLike[str] | None = None,
    positive: str | float | EllipsisType | None = ...,
    label: str | int | None = None,
    data_dir: Folder = None,
    download: bool = True,
    progress: Progress | None = None,
    format: str | None = None,
) -> Dataset:
    """Load a data set by name, or from a file, by path or URI (svmlight, CSV, Parquet, npz).

    Parameters
    ----------
    test : a file with the test rows, where the first argument is a file.
    positive : the label that becomes +1 against the rest, which becomes -1; None keeps the labels.
        Default: what the paper does for its data sets, None for digits and for files.
    label : the label's column in a file, by name or number.
    format : of a file: svmlight, csv, tsv, parquet or npz (default: by its ending).
    data_dir : a folder to look in before the usual places (see ``data_folders``).
    download : whether a data set that is on no disk may be fetched from its official home.
    """
    name = os.fspath(name_or_path)
    if name not in ENTRIES:
        return _from_files(name, test, None if positive is ... else positive, label, format)
    if test is not None or label is not None or format is not None:
        raise ValueError(f"{name!r} has its own test part, labels and format: leave out test, label and format")
    if data_dir is not None and not Path(data_dir).is_dir():
        raise FileNotFoundError(f"no folder {data_dir}: data_dir names a folder that holds data sets")
    entry = ENTRIES[name]
    parts, note = _load_named(name, entry, data_dir, download, progress)
    parts = binarize_labels(parts, entry.positive if positive is ... else positive)
    return Dataset(name, *parts, entry.lam, note)


def find_dataset(name: str, data_dir: Folder = None) -> Path | None:
    """The folder that holds a named data set's files, or None (also for those inside scikit-learn)."""
    found = _locate(lookup("data set", name, ENTRIES), data_dir)
    return found.paths[0].parent if found else None


def list_datasets(data_dir: Folder = None) -> list[DatasetInfo]:
    """All named data sets, for a list on the screen."""
    return [_listing(name, entry, _locate(entry, data_dir)) for name, entry in ENTRIES.items()]


def fetch_dataset(name: str, *, data_dir: Folder = None, progress: Progress | None = None) -> Path:
    """Download a named data set into ``data_dir`` (default: the user's cache); the folder it went to."""
    from gadget_svm.data.download import download_from_mirrors

    entry = lookup("data set", name, ENTRIES)
    if not entry.downloads:
        raise ValueError(f"{name!r} comes with scikit-learn: there is nothing to download")
    folder = (Path(data_dir) if data_dir is not None else cache_folder()) / name
    for remote in entry.downloads:
        try:
            download_from_mirrors(remote.homes, folder / remote.name, progress)
        except OSError as error:
            raise type(error)(
                f"{error}. By hand: get {remote.name} from {entry.page or remote.homes[0][0]} and put it into {folder}"
            ) from error
    return folder


def data_folders(data_dir: Folder = None) -> list[Path]:
    """Where data sets are looked for, in order: the argument, GADGET_DATA, ../shared/data, the cache."""
    chosen = os.environ.get("GADGET_DATA") or None
    if chosen is not None and not Path(chosen).is_dir():
        raise FileNotFoundError(
            f"GADGET_DATA names the folder {chosen!r}, which does not exist: correct it or unset it"
        )
    named = [data_dir, chosen, Path("..", "shared", "data"), cache_folder()]
    return [Path(folder) for folder in named if folder is not None]


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gadget-svm" / "data"


def binarize_labels(parts: TrainTest, positive: str | float | None) -> TrainTest:
    """Labels +1 for ``positive`` and -1 for the rest; "0" and 0 mean the same."""
    if positive is None:
        return parts
    y = _signs(parts.y, positive)
    if not (y > 0).any():
        have = np.unique(parts.y).tolist()
        shown = ", ".join(map(str, have[:20])) + (", ..." if len(have) > 20 else "")
        raise ValueError(f"no row has the label {positive!r}. The labels are: {shown}.")
    return parts._replace(y=y, y_test=None if parts.y_test is None else _signs(parts.y_test, positive))


def _signs(y: Labels, positive: str | float) -> Labels:
    if y.dtype.kind == "U":
        return np.where(y == str(positive), 1, -1)
    try:
        return np.where(y == float(positive), 1, -1)
    except ValueError:  # a word where labels are numbers: no row has it
        return np.full(len(y), -1)


def _from_files(
    name: str,
    test: str | os.PathLike[str] | None,
    positive: str | float | None,
    label: str | int | None,
    format: str | None,
) -> Dataset:
    path = parse_location(name)
    if isinstance(path, Path) and not path.is_file():
        raise _no_such(name)
    tables, columns = read_tables_with_columns([path] if test is None else [path, test], label=label, format=format)
    parts = binarize_labels(TrainTest(*tables[0], *(tables[1] if test is not None else (None, None))), positive)
    called = path.name if isinstance(path, Path) else file_name(path)
    return Dataset(called, *parts, None, f"read from {display_name(path)}", columns)


def _no_such(name: str) -> Exception:
    if Path(name).suffix or os.sep in name:
        return FileNotFoundError(f"no file {name}: check the spelling, or give the path from {Path.cwd()}")
    return ValueError(unknown("data set", name, ENTRIES) + f" A file is accepted too, but there is none at {name!r}.")


def _load_named(
    name: str, entry: Entry, data_dir: Folder, download: bool, progress: Progress | None
) -> tuple[TrainTest, str]:
    if entry.builtin is not None:
        return entry.builtin(), entry.title
    found = _locate(entry, data_dir) or _obtain(name, entry, data_dir, download, progress)
    _verify(found.paths)
    parts = found.layout.load(found.paths)
    return parts, _note(entry, found.layout, parts.X.shape[0])


def _note(entry: Entry, layout: Layout, rows: int) -> str:
    if rows >= entry.rows[0]:
        return entry.title
    return f"{layout.subset or 'a part'} of {entry.title} ({rows} of {entry.rows[0]} training rows)"


def _verify(paths: Sequence[Path]) -> None:
    from gadget_svm.data.download import SUMS, verify

    for path in paths:
        if path.with_name(SUMS).exists():
            verify(path)


def _locate(entry: Entry, data_dir: Folder) -> _Found | None:
    """A folder given by hand wins with whatever it has; elsewhere the full set comes before a subset."""
    folders = data_folders(data_dir)
    groups = [folders[:1], folders[1:]] if data_dir is not None else [folders]
    for group in groups:
        for layout in entry.layouts:
            for folder in group:
                if paths := _complete(folder, layout):
                    return _Found(layout, paths)
    return None


def _complete(folder: Path, layout: Layout) -> list[Path] | None:
    for below in layout.folders:
        paths = [_with_any_ending(folder / below / file) for file in layout.files]
        if all(paths):
            return [path for path in paths if path]
    return None


def _with_any_ending(path: Path) -> Path | None:
    names = (path.with_name(path.name + ending) for ending in COMPRESSIONS)
    return next((name for name in names if name.is_file()), None)


def _obtain(name: str, entry: Entry, data_dir: Folder, download: bool, progress: Progress | None) -> _Found:
    if not download:
        raise FileNotFoundError(_missing(name, entry, data_dir, "downloading was not allowed"))
    try:
        folder = fetch_dataset(name, progress=progress)
    except OSError as error:
        raise FileNotFoundError(_missing(name, entry, data_dir, str(error))) from error
    found = _locate(entry, folder.parent)
    assert found is not None, "the downloads of an entry make up one of its layouts"
    return found


def _missing(name: str, entry: Entry, data_dir: Folder, why: str) -> str:
    places = ", ".join(str(folder) for folder in data_folders(data_dir))
    files = ", ".join(remote.name for remote in entry.downloads)
    return (
        f"the data set {name!r} is not here and could not be fetched ({why}). Looked in: {places}. "
        f"Get {files} from {entry.page} and put them into a folder {name!r} in one of these places, "
        "or set GADGET_DATA to the folder that holds it."
    )


def _listing(name: str, entry: Entry, found: _Found | None) -> DatasetInfo:
    if entry.builtin is not None:
        status = "comes with scikit-learn"
    elif found is not None:
        status = ", ".join(filter(None, [f"found in {found.paths[0].parent}", found.layout.subset]))
    else:
        status = f"not here: downloaded on first use from {entry.page}"
    return DatasetInfo(
        name,
        entry.title,
        entry.rows,
        entry.features,
        entry.lam,
        found.paths[0].parent if found else None,
        status,
    )
