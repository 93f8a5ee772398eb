"""Reads the files of the named data sets into training and test parts. Owns the peculiarities of each set (binary
images, archives, lists of topics, filler columns, splits), but not where its files are."""

import math
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from gadget_svm.core.types import Array, Bytes, Ints
from gadget_svm.data.files import DataFileError, damage_reported, damaged, open_data_file
from gadget_svm.data.formats import align_tables, read_files, read_table
from gadget_svm.data.tables import Csr, Labels, RawTable, TrainTest, checked_table, dense_to_csr
from gadget_svm.data.text_tables import parse_svmlight

Paths = Sequence[Path]
_IDX_MAGIC = {3: 0x803, 1: 0x801}  # unsigned bytes, by the number of dimensions
_TRAIN_SHARE = 0.67  # the paper's Webspam: 234500 of 350000 rows


def svmlight_pair(paths: Paths, n_features: int) -> TrainTest:
    """Read a training and a test file with ids from 1."""
    (X, y), (X_test, y_test) = read_files(paths, n_features=n_features, zero_based=False).tables
    return TrainTest(X, y, X_test, y_test)


def mnist(paths: Paths, n_features: int) -> TrainTest:
    """Read images and labels of both parts; pixels are scaled to [0, 1]."""
    images, labels, test_images, test_labels = paths
    train, test = _read_images(images, labels, n_features), _read_images(test_images, test_labels, n_features)
    return TrainTest(*train, *test)


def _read_images(images: Path, labels: Path, n_features: int) -> tuple[Csr, Labels]:
    X = dense_to_csr(_read_idx(images, 3)).astype(np.float64)
    X.data /= 255.0
    return checked_table(images, X, _read_idx(labels, 1).ravel(), n_features)


def _read_idx(path: Path, dimensions: int) -> Bytes:
    """Return the rows of an idx file: a header of big-endian integers, then bytes."""
    with open_data_file(path) as file:
        header, content = file.read(4 * (1 + dimensions)), file.read()
    magic, *shape = np.frombuffer(header.ljust(4 * (1 + dimensions), b"\0"), dtype=">u4").tolist()
    if magic != _IDX_MAGIC[dimensions]:
        raise damaged(path, f"it starts with {magic:#x}, not {_IDX_MAGIC[dimensions]:#x}")
    if (missing := math.prod(shape) - len(content)) > 0:
        raise damaged(path, f"{missing} bytes are missing at its end")
    return np.frombuffer(content, dtype=np.uint8, count=math.prod(shape)).reshape(shape[0], -1)


def usps(paths: Paths, n_features: int) -> TrainTest:
    """Read lines ``digit v1 .. v256``, the format of The Elements of Statistical Learning."""
    train, test = [_read_digits(path, n_features) for path in paths]
    return TrainTest(*train, *test)


def _read_digits(path: Path, n_features: int) -> tuple[Csr, Labels]:
    with open_data_file(path) as file:
        try:
            rows = np.loadtxt(file, ndmin=2)
        except ValueError as error:
            raise damaged(path, error) from error
    return checked_table(path, dense_to_csr(rows[:, 1:]), rows[:, 0], n_features)


def ccat(paths: Paths, n_features: int) -> TrainTest:
    """Read RCV1-v2 as Lewis et al. (2004) publish it: vectors by document id, and the topics of every document.

    The paper trains on their four test files and tests on their training file.
    """
    *train, test, topics = paths
    positive = _documents_with("CCAT", topics)
    return TrainTest(*_read_vectors(train, positive, n_features), *_read_vectors([test], positive, n_features))


def _documents_with(topic: str, path: Path) -> Ints:
    """Return the ids of the documents with a topic, from lines ``topic document 1``."""
    start = topic.encode() + b" "
    with open_data_file(path) as file:
        try:
            ids = [int(line.split()[1]) for line in file if line.startswith(start)]
        except (IndexError, ValueError) as error:
            raise DataFileError(f"{path}: expected lines 'topic document 1' ({error})") from error
    if not ids:
        raise DataFileError(f"{path} lists no document under {topic}: is it rcv1-v2.topics.qrels?")
    return np.array(ids, dtype=np.int64)


def _read_vectors(paths: Paths, positive: Ints, n_features: int) -> tuple[Csr, Labels]:
    """Return the rows of all files, labelled +1 if the document is among ``positive``."""
    from scipy.sparse import vstack

    # the document id is in the place of svmlight's label
    tables = read_files(paths, n_features=n_features, zero_based=False).tables
    ids: Array = np.concatenate([y for _, y in tables])
    return vstack([X for X, _ in tables], format="csr"), np.where(np.isin(ids, positive), 1, -1)


def webspam(paths: Paths, n_features: int) -> TrainTest:
    """Read the published file, which has no test part."""
    return split(*read_table(paths[0], n_features=n_features, zero_based=False))


def webspam_sample(paths: Paths, n_features: int) -> TrainTest:
    """Read the sample. Its column 0 is filler: the real ids are 1 to 254."""
    X, y = read_table(paths[0], n_features=n_features + 1, zero_based=True)
    return split(X[:, 1:], y)


def split(X: Csr, y: Labels) -> TrainTest:
    """Split rows about 2:1, at random with a fixed seed."""
    order = np.random.default_rng(0).permutation(len(y))
    n = round(_TRAIN_SHARE * len(y))
    return TrainTest(X[order[:n]], y[order[:n]], X[order[n:]], y[order[n:]])


def reuters_files(paths: Paths, n_features: int) -> TrainTest:
    """Read the two files of the archive, unpacked."""
    raws = []
    for path in paths:
        with open_data_file(path) as file:
            raws.append(_parse_repaired(path, file))
    return _aligned(paths, raws, n_features)


def reuters_archive(paths: Paths, n_features: int) -> TrainTest:
    """Read the two files from the archive as streams: nothing is unpacked to disk."""
    (path,) = paths
    try:
        with damage_reported(path), tarfile.open(path) as archive:
            members = {Path(member.name).name: member for member in archive if member.isreg()}
            files = [archive.extractfile(members[f"money-fx.{part}"]) for part in ("trn", "tst")]
            raws = [_parse_repaired(path, file) for file in files if file]
    except tarfile.TarError as error:
        raise damaged(path, error) from error
    except KeyError as error:
        raise damaged(path, f"it lacks {error}") from None
    return _aligned([path, path], raws, n_features)


def _aligned(paths: Paths, raws: Sequence[RawTable], n_features: int) -> TrainTest:
    train, test = align_tables(paths, raws, n_features, zero_based=False)
    return TrainTest(*train, *test)


def _parse_repaired(path: Path, lines: Iterable[bytes]) -> RawTable:
    """Parse svmlight, but drop pairs that a line of the published file gives twice: the reader refuses them."""

    def repaired() -> Iterator[bytes]:
        for number, line in enumerate(lines, start=1):
            label, *pairs = line.split() or [b"#"]
            unique = list(dict.fromkeys(pairs))
            if len({pair.partition(b":")[0] for pair in unique}) != len(unique):
                raise DataFileError(f"{path}, line {number}: one feature id has two values; fetch or copy it again")
            yield b" ".join([label, *unique])

    return parse_svmlight(path, repaired())


def builtin(name: str, divisor: float | None = None) -> TrainTest:
    """Load a data set of scikit-learn. Three quarters of each class are training rows, the others test rows.

    Features are divided by ``divisor``, or else by their largest values in the training rows.
    """
    from scipy.sparse import csr_matrix
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, stratify=y, random_state=0)
    largest = np.abs(X).max(axis=0) if divisor is None else divisor
    return TrainTest(csr_matrix(X / largest), y, csr_matrix(X_test / largest), y_test)


BUILTIN: Mapping[str, Callable[[], TrainTest]] = {
    "digits": partial(builtin, "digits", 16.0),
    "breast_cancer": partial(builtin, "breast_cancer"),
}
"""Loaders of the data sets that come with scikit-learn."""
LOADERS: Mapping[str, Callable[[Paths, int], TrainTest]] = {
    load.__name__: load
    for load in (svmlight_pair, mnist, usps, ccat, webspam, webspam_sample, reuters_files, reuters_archive)
}
"""Loaders by name. Each is called with the files of a `FileSet` and the number of features."""
