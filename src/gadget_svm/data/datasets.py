"""Loads data sets by name or from files. Owns where the files of named data sets are looked for and when they are
downloaded; the facts about them are in `catalog`, the formats of files in `formats`."""

import os
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import EllipsisType

from gadget_svm.core.lookup import lookup, unknown
from gadget_svm.data.catalog import ENTRIES, Entry, FileSet, Progress
from gadget_svm.data.files import COMPRESSION_SUFFIXES
from gadget_svm.data.formats import read_files
from gadget_svm.data.loaders import BUILTIN, LOADERS
from gadget_svm.data.tables import Csr, Labels, TrainTest
from gadget_svm.data.uris import Location, display_name, file_name, parse_location

Folder = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Dataset:
    """A data set in memory.

    Attributes
    ----------
    name : name of the data set, or of the file.
    X, y : training rows and their labels.
    X_test, y_test : test rows and their labels, or None.
    lam : the paper's regularisation parameter, if it has one for this data set.
    note : a sentence about what was loaded.
    columns : names of the features, if the file has names.
    """

    name: str
    X: Csr
    y: Labels
    X_test: "Csr | None"
    y_test: Labels | None
    lam: float | None
    note: str
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class DatasetInfo:
    """An entry of the list of named data sets: published sizes, and where the data set is or how to get it."""

    name: str
    title: str
    rows: tuple[int, int]
    features: int
    lam: float | None
    found: Path | None
    status: str


def load_dataset(
    name_or_path: str | os.PathLike[str], *, test: str | os.PathLike[str] | None = None,
    positive: str | float | EllipsisType | None = ..., label: str | int | None = None, data_dir: Folder = None,
    download: bool = True, progress: Progress | None = None, format: str | None = None,
) -> Dataset:  # fmt: skip
    """Load a data set by name, or from a file, by path or URI.

    Parameters
    ----------
    name_or_path : a name (see `gadget data list`), or a file: svmlight, CSV, Parquet or npz.
    test : a file with the test rows, if the first argument is a file. Default: none.
    positive : the label that becomes +1; all others become -1. None keeps the labels.
        Default: as in the paper for its data sets, None for digits and for files.
    label : name or number of the label column of a file. Default: label, y, target or class, else the last column.
    data_dir : a folder to look in first. Default: GADGET_DATA, ../shared/data and the user's cache.
    download : whether a data set that is not found may be downloaded. Default: True.
    progress : called during a download with the bytes downloaded and the bytes in total or None.
    format : format of a file: svmlight, csv, tsv, parquet or npz. Default: by its suffix.

    Returns
    -------
    Dataset

    Raises
    ------
    FileNotFoundError
        If the data set is not found and is not downloaded.
    DataFileError
        If a file cannot be used.
    ValueError
        If there is no such name, or no row has the label ``positive``.

    Examples
    --------
    >>> from gadget_svm import load_dataset
    >>> data = load_dataset("breast-cancer")
    >>> data.X.shape, data.X_test.shape
    ((426, 30), (143, 30))
    >>> sorted(set(load_dataset("digits", positive=7).y.tolist()))
    [-1, 1]
    """
    name = os.fspath(name_or_path)
    if name not in ENTRIES:
        location = file_location(name)
        tables, columns, _ = read_files([name] if test is None else [name, test], label=label, format=format)
        parts = TrainTest(*tables[0], *(() if test is None else tables[1]))
        parts = parts.binarized(None if positive is ... else positive)
        name = location.name if isinstance(location, Path) else file_name(location)
        return Dataset(name, *parts, None, f"read from {display_name(location)}", columns)
    if test is not None or label is not None or format is not None:
        raise ValueError(f"{name!r} has its own test part, labels and format: leave out test, label and format")
    if data_dir is not None and not Path(data_dir).is_dir():
        raise FileNotFoundError(f"no folder {data_dir}: data_dir names a folder that holds data sets")
    entry = ENTRIES[name]
    parts, note = _load_named(name, data_dir, download, progress)
    parts = parts.binarized(entry.positive if positive is ... else positive)
    return Dataset(name, *parts, entry.lam, note)


def find_dataset(name: str, data_dir: Folder = None) -> Path | None:
    """Return the folder with a named data set's files. None: it is not found, or it comes with scikit-learn."""
    found = _locate(lookup("data set", name, ENTRIES), data_dir)
    return found[1][0].parent if found else None


def list_datasets(data_dir: Folder = None) -> list[DatasetInfo]:
    """Return a description of every named data set."""
    infos = []
    for name, entry in ENTRIES.items():
        folder, status = None, f"not here: downloaded on first use from {entry.page}"
        if entry.builtin is not None:
            status = "comes with scikit-learn"
        elif found := _locate(entry, data_dir):
            folder = found[1][0].parent
            status = ", ".join(filter(None, [f"found in {folder}", found[0].subset]))
        infos.append(DatasetInfo(name, entry.title, entry.rows, entry.features, entry.lam, folder, status))
    return infos


def fetch_dataset(name: str, *, data_dir: Folder = None, progress: Progress | None = None) -> Path:
    """Download a named data set into ``data_dir`` (default: the user's cache) and return its folder."""
    from gadget_svm.data.download import download_from_mirrors  # slow to import

    entry = lookup("data set", name, ENTRIES)
    if not entry.downloads:
        raise ValueError(f"{name!r} comes with scikit-learn: there is nothing to download")
    folder = (Path(data_dir) if data_dir is not None else cache_folder()) / name
    for file, mirrors in entry.downloads.items():
        try:
            download_from_mirrors(mirrors, folder / file, progress)
        except OSError as error:
            raise type(error)(f"{error}. By hand: get {file} from {entry.page} and put it into {folder}") from error
    return folder


def data_folders(data_dir: Folder = None) -> list[Path]:
    """Return the folders to look in, in order: the argument, GADGET_DATA, ../shared/data, the cache."""
    chosen = os.environ.get("GADGET_DATA") or None
    if chosen is not None and not Path(chosen).is_dir():
        raise FileNotFoundError(f"GADGET_DATA names the folder {chosen!r}, which does not exist: correct it")
    folders = [data_dir, chosen, Path("..", "shared", "data"), cache_folder()]
    return [Path(folder) for folder in folders if folder is not None]


def cache_folder() -> Path:
    """Return the folder for downloads, below XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gadget-svm" / "data"


def file_location(name: str) -> Location:
    """Return the URI, or the path of an existing file. Raise an error for a missing file and for an unknown name."""
    path = parse_location(name)
    if isinstance(path, Path) and not path.is_file():
        if path.suffix or os.sep in name:
            raise FileNotFoundError(f"no file {name}: check the spelling, or give the path from {Path.cwd()}")
        hint = unknown("data set", name, ENTRIES)
        raise ValueError(f"{hint} A file is accepted too, but there is none at {name!r}.")
    return path


def _load_named(name: str, data_dir: Folder, download: bool, progress: Progress | None) -> tuple[TrainTest, str]:
    """Return the parts of a named data set and a note about it."""
    entry = ENTRIES[name]
    if entry.builtin is not None:
        return BUILTIN[entry.builtin](), entry.title
    from gadget_svm.data.download import verify_checksum  # slow to import

    file_set, paths = _locate(entry, data_dir) or _obtain(name, data_dir, download, progress)
    for path in paths:
        verify_checksum(path)
    parts = LOADERS[file_set.load](paths, entry.features)
    rows = parts.X.shape[0]
    if rows >= entry.rows[0]:
        return parts, entry.title
    return parts, f"{file_set.subset or 'a part'} of {entry.title} ({rows} of {entry.rows[0]} training rows)"


def _locate(entry: Entry, data_dir: Folder) -> tuple[FileSet, list[Path]] | None:
    """Find the files. The user's folder comes first, even with a subset. Elsewhere a full set comes before a subset."""
    folders = data_folders(data_dir)
    for group in [folders] if data_dir is None else [folders[:1], folders[1:]]:
        for file_set, folder in product(entry.file_sets, group):
            for below in file_set.folders:
                paths = [_any_compression(folder / below / file) for file in file_set.files]
                if all(paths):
                    return file_set, [path for path in paths if path]
    return None


def _any_compression(path: Path) -> Path | None:
    names = (path.with_name(path.name + suffix) for suffix in COMPRESSION_SUFFIXES)
    return next((name for name in names if name.is_file()), None)


def _obtain(name: str, data_dir: Folder, download: bool, progress: Progress | None) -> tuple[FileSet, list[Path]]:
    entry = ENTRIES[name]
    try:
        if not download:
            raise FileNotFoundError("downloading was not allowed")
        folder = fetch_dataset(name, progress=progress)
    except OSError as error:
        places = ", ".join(map(str, data_folders(data_dir)))
        raise FileNotFoundError(
            f"the data set {name!r} is not here and could not be fetched ({error}). Looked in: {places}. Put "
            f"{', '.join(entry.downloads)} from {entry.page} into a folder {name!r} there, or set GADGET_DATA."
        ) from error
    found = _locate(entry, folder.parent)
    assert found is not None, "the downloads of an entry make up one of its file sets"
    return found
