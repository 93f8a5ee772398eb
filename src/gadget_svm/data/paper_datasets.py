"""Turning the paper's data sets, once their files are found, into train and test parts; owns each set's
quirks (archives, filler columns, splits), not where files live or come from."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from gadget_svm.data.formats import align_tables, read_table, read_tables
from gadget_svm.data.idx import read_idx
from gadget_svm.data.rcv1 import documents_with, read_vectors
from gadget_svm.data.svmlight import parse_svmlight
from gadget_svm.data.tables import DataFileError, Labels, RawTable, damage, damage_named, finish, reading, stack_blocks

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_TRAIN_SHARE = 0.67  # the paper's Webspam: 234500 of 350000 rows
_ARCHIVE_LIMIT = 1 << 30  # bytes: far above the real archive, far below a full disk


class TrainTest(NamedTuple):
    X: csr_matrix
    y: Labels
    X_test: csr_matrix | None = None
    y_test: Labels | None = None


def svmlight_pair(paths: Sequence[Path], n_features: int) -> TrainTest:
    (X, y), (X_test, y_test) = read_tables(paths, n_features=n_features, zero_based=False)
    return TrainTest(X, y, X_test, y_test)


def mnist(paths: Sequence[Path]) -> TrainTest:
    return TrainTest(*read_idx(paths[0], paths[1]), *read_idx(paths[2], paths[3]))


def usps(paths: Sequence[Path]) -> TrainTest:
    return TrainTest(*_zip_digits(paths[0]), *_zip_digits(paths[1]))


def _zip_digits(path: Path) -> tuple[csr_matrix, Labels]:
    """Lines ``digit v1 .. v256``, as on the web page of The Elements of Statistical Learning."""
    with reading(path) as file:
        try:
            rows = np.loadtxt(file, ndmin=2)
        except ValueError as error:
            if isinstance(error, UnicodeDecodeError):
                raise
            raise damage(path, error) from error
    return finish(path, stack_blocks([rows[:, 1:]]), rows[:, 0], 256)


def ccat(paths: Sequence[Path]) -> TrainTest:
    """The paper trains on the four large files and tests on the one that Lewis et al. call training."""
    *train, test, qrels = paths
    positive = documents_with("CCAT", qrels)
    return TrainTest(*read_vectors(train, positive), *read_vectors([test], positive))


def webspam(paths: Sequence[Path]) -> TrainTest:
    return split(*read_table(paths[0], n_features=254, zero_based=False))


def webspam_sample(paths: Sequence[Path]) -> TrainTest:
    X, y = read_table(paths[0], n_features=255, zero_based=True)
    return split(X[:, 1:], y)  # column 0 is filler: the real ids are 1..254


def split(X: csr_matrix, y: Labels, seed: int = 0) -> TrainTest:
    """About 2:1, at random but the same every time."""
    order = np.random.default_rng(seed).permutation(len(y))
    n = round(_TRAIN_SHARE * len(y))
    return TrainTest(X[order[:n]], y[order[:n]], X[order[n:]], y[order[n:]])


def reuters_files(paths: Sequence[Path]) -> TrainTest:
    return _reuters([_repaired(path) for path in paths], paths)


def reuters_archive(paths: Sequence[Path]) -> TrainTest:
    (path,) = paths
    with damage_named(path):
        try:
            with tarfile.open(path) as archive:
                raws = _archive_members(path, archive)
        except tarfile.TarError as error:
            raise damage(path, error) from error
    return _reuters(raws, [path, path])


def _archive_members(path: Path, archive: tarfile.TarFile) -> list[RawTable]:
    """The two members that matter, read as streams: nothing is ever unpacked to disk."""
    found: dict[str, RawTable] = {}
    seen = 0
    for member in archive:
        seen += member.size
        if seen > _ARCHIVE_LIMIT:
            raise damage(path, f"it unpacks to more than {_ARCHIVE_LIMIT} bytes")
        name = Path(member.name).name
        file = archive.extractfile(member) if member.isreg() and name.startswith("money-fx.") else None
        if file is not None:
            found[name] = _parse_repaired(path, file)
    if not {"money-fx.trn", "money-fx.tst"} <= set(found):
        raise damage(path, "it lacks money-fx.trn or money-fx.tst")
    return [found["money-fx.trn"], found["money-fx.tst"]]


def _repaired(path: Path) -> RawTable:
    with reading(path) as file:
        return _parse_repaired(path, file)


def _parse_repaired(path: Path, file: IO[bytes]) -> RawTable:
    return parse_svmlight(path, _without_repeats(path, file))


def _without_repeats(path: Path, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Drop pairs that a line of the published file gives twice; the svmlight reader refuses them."""
    for number, line in enumerate(lines, start=1):
        label, *pairs = line.split() or [b"#"]
        unique = list(dict.fromkeys(pairs))
        if len({pair.partition(b":")[0] for pair in unique}) != len(unique):
            raise DataFileError(f"{path}, line {number}: one feature id has two values; fetch or copy it again")
        yield b" ".join([label, *unique])


def _reuters(raws: Sequence[RawTable], paths: Sequence[Path]) -> TrainTest:
    tables = align_tables(paths, list(raws), 8315, zero_based=False)
    return TrainTest(*tables[0], *tables[1])
