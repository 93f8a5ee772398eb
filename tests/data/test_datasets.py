"""Data sets by name and by path: the published sizes where the real files are here, the official formats on
small files written by the tests, and what happens where there is nothing."""

import bz2
import gzip
import io
import lzma
import os
import struct
import subprocess
import sys
import tarfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gadget_svm.data.catalog import ENTRIES, Mirror
from gadget_svm.data.datasets import fetch_dataset, find_dataset, list_datasets, load_dataset
from gadget_svm.data.files import DataFileError
from gadget_svm.data.tables import TrainTest

PAPER = {"adult", "ccat", "mnist", "reuters", "usps", "webspam", "gisette"}
REAL = [Path(os.environ["GADGET_DATA"])] if os.environ.get("GADGET_DATA") else []
REAL += [Path(__file__).parents[3] / "shared" / "data"]


@pytest.fixture
def nothing_here(tmp_path, monkeypatch):
    """An empty folder to work in, an empty cache, and addresses that refuse connections."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("GADGET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    dead = Mirror("http://127.0.0.1:1/f")
    for name, entry in ENTRIES.items():
        monkeypatch.setitem(ENTRIES, name, replace(entry, downloads=dict.fromkeys(entry.downloads, (dead,))))
    return tmp_path


@cache
def real(name):
    folder = next((folder for folder in REAL if folder.is_dir() and find_dataset(name, folder)), None)
    if folder is None:
        pytest.skip(f"the files of {name} are neither in GADGET_DATA nor in ../shared/data")
    return load_dataset(name, data_dir=folder, download=False)


@pytest.mark.parametrize(
    ("name", "train", "test", "features", "positives"),
    [
        ("adult", 32561, 16281, 123, 7841),
        ("reuters", 7770, 3299, 8315, 538),
        ("usps", 7291, 2007, 256, 1194),
        ("mnist", 60000, 10000, 784, 5923),
        ("ccat", 13823, 13790, 47236, None),
        ("webspam", 335, 165, 254, None),
    ],
)
def test_real_sizes(name, train, test, features, positives):
    data = real(name)
    if data.X.shape[0] == ENTRIES[name].rows[0]:
        train, test = ENTRIES[name].rows
    assert data.X.shape == (train, features)
    assert data.X_test.shape == (test, features)
    assert data.X.indices.dtype == data.X.indptr.dtype == np.int32
    assert set(np.unique(data.y)) == set(np.unique(data.y_test)) == {-1, 1}
    if positives is not None:
        assert (data.y == 1).sum() == positives


def test_real_subsets():
    for name, words in {"ccat": "a real subset of RCV1-v2", "webspam": "a small sample"}.items():
        data = real(name)
        if data.X.shape[0] < ENTRIES[name].rows[0]:
            assert words in data.note
            assert f"{data.X.shape[0]} of {ENTRIES[name].rows[0]} training rows" in data.note


def test_real_scaling():
    data = real("mnist")
    assert data.X.data.min() > 0
    assert data.X.max() == 1.0
    norms = np.sqrt(real("ccat").X.power(2).sum(axis=1))
    np.testing.assert_allclose(norms, 1.0, atol=2e-3)


def test_lambdas_and_features_of_the_paper():
    expected = {"adult": 3.07e-5, "ccat": 1e-4, "mnist": 1.67e-5, "reuters": 1.29e-4, "usps": 1.36e-4}
    expected |= {"webspam": 1e-5, "gisette": None}
    assert {name: ENTRIES[name].lam for name in PAPER} == expected
    features = {"adult": 123, "ccat": 47236, "mnist": 784, "reuters": 8315, "usps": 256}
    assert {name: ENTRIES[name].features for name in PAPER} == features | {"webspam": 254, "gisette": 5000}


@pytest.mark.usefixtures("nothing_here")
def test_digits():
    data = load_dataset("digits")
    assert (data.X.shape, data.X_test.shape) == ((1347, 64), (450, 64))
    assert np.unique(data.y).tolist() == list(range(10))
    assert (data.X.min(), data.X.max()) == (0.0, 1.0)
    for zero in (0, "0", 0.0):
        binary = load_dataset("digits", positive=zero)
        np.testing.assert_array_equal(binary.y == 1, data.y == 0)
        np.testing.assert_array_equal(binary.y_test == 1, data.y_test == 0)
        assert set(binary.y) == {-1, 1}
    np.testing.assert_array_equal(load_dataset("digits").X.toarray(), data.X.toarray())


@pytest.mark.usefixtures("nothing_here")
def test_breast_cancer():
    data = load_dataset("breast-cancer")
    assert (data.X.shape, data.X_test.shape) == ((426, 30), (143, 30))
    np.testing.assert_array_equal(data.X.max(axis=0).toarray(), np.ones((1, 30)))
    assert data.X_test.max() > 1.0  # scaled by the maxima of the training part
    assert set(data.y) == {-1, 1}


def test_unknown_label():
    parts = TrainTest(None, np.array([3, 5, 3]))
    for positive in (4, "4", "cat"):
        with pytest.raises(ValueError, match=rf"{positive}.* The labels are: 3, 5\."):
            parts.binarized(positive)
    words = TrainTest(None, np.array(["cat", "dog"]), None, np.array(["emu", "cat"]))
    signs = words.binarized("cat")
    assert (signs.y.tolist(), signs.y_test.tolist()) == ([1, -1], [-1, 1])
    assert words.binarized(None).y is words.y


@pytest.mark.usefixtures("nothing_here")
def test_path_and_test_file():
    Path("a.svm").write_text("2 1:1\n7 3:1\n")
    Path("b.svm").write_text("7 1:1\n")
    data = load_dataset("a.svm", test="b.svm")
    assert (data.X.shape, data.X_test.shape) == ((2, 3), (1, 3))
    assert (data.y.tolist(), data.lam) == ([2, 7], None)
    assert load_dataset(Path("a.svm"), positive="7").y.tolist() == [-1, 1]
    assert load_dataset("b.svm", test="a.svm").X.shape == (1, 3)
    alone = load_dataset("a.svm")
    assert alone.X_test is None
    assert alone.y_test is None


@pytest.mark.usefixtures("nothing_here")
def test_unknown_name():
    with pytest.raises(ValueError, match=r"Did you mean 'mnist'\?.*A file is accepted too"):
        load_dataset("minst")
    with pytest.raises(FileNotFoundError, match=r"no file adlut\.svm: check the spelling"):
        load_dataset("adlut.svm")
    with pytest.raises(ValueError, match="Did you mean 'adult'"):
        find_dataset("adlut")


@pytest.mark.usefixtures("nothing_here")
def test_named_set_takes_no_test_file():
    with pytest.raises(ValueError, match="its own test part"):
        load_dataset("digits", test="a.svm")


@pytest.mark.parametrize("name", sorted(PAPER))
def test_no_network(nothing_here, name):
    with pytest.raises(FileNotFoundError, match="is not here and could not be fetched") as caught:
        load_dataset(name)
    text = str(caught.value)
    for part in (str(Path("..", "shared", "data")), str(nothing_here / "cache"), "GADGET_DATA", "refused"):
        assert part in text
    assert ENTRIES[name].page in text


@pytest.mark.usefixtures("nothing_here")
def test_missing_data_dir():
    with pytest.raises(FileNotFoundError, match="no folder nowhere"):
        load_dataset("adult", data_dir="nowhere")


def adult(folder, ending="", compress=bytes):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"a9a{ending}").write_bytes(compress(b"-1 3:1 11:1 \n+1 5:1 123:1 \n"))
    (folder / f"a9a.t{ending}").write_bytes(compress(b"-1 1:1 \n"))
    return folder


def test_search_order(nothing_here, monkeypatch):
    given, env = nothing_here / "given", nothing_here / "env"
    monkeypatch.setenv("GADGET_DATA", str(env))
    with pytest.raises(FileNotFoundError, match="GADGET_DATA names the folder"):
        find_dataset("adult")
    env.mkdir()
    cache = adult(nothing_here / "cache" / "gadget-svm" / "data" / "adult")
    assert find_dataset("adult") == cache
    shared = adult(nothing_here / "shared" / "data" / "adult", ".xz", lzma.compress)
    assert find_dataset("adult").resolve() == shared
    adult(env, ".gz", gzip.compress)  # straight in the data folder
    assert find_dataset("adult") == env
    adult(given / "adult", ".bz2", bz2.compress)
    assert find_dataset("adult", given) == given / "adult"
    data = load_dataset("adult", data_dir=given)
    assert (data.X.shape, data.X_test.shape) == ((2, 123), (1, 123))
    assert data.y.tolist() == [-1, 1]
    assert "a part of Adult" in data.note


def test_gisette_files(nothing_here):
    folder = nothing_here / "gisette"
    folder.mkdir()
    for name in ("gisette_scale.bz2", "gisette_scale.t.bz2"):
        (folder / name).write_bytes(bz2.compress(b"1 5:-1 4999:0.5\n-1 1:1\n"))
    data = load_dataset("gisette", data_dir=nothing_here)
    assert data.X.shape == data.X_test.shape == (2, 5000)
    assert data.X[0, 4998] == 0.5
    assert data.lam is None


def test_webspam_file(nothing_here):
    lines = "".join(f"{1 if i % 3 else -1} 1:{i + 1} 254:0.5\n" for i in range(300))
    (nothing_here / "webspam_wc_normalized_unigram.svm.xz").write_bytes(lzma.compress(lines.encode()))
    first, second = (load_dataset("webspam", data_dir=nothing_here) for _ in range(2))
    assert (first.X.shape, first.X_test.shape) == ((201, 254), (99, 254))
    np.testing.assert_array_equal(first.X.toarray(), second.X.toarray())
    rows = np.concatenate([part[:, 0].toarray().ravel() for part in (first.X, first.X_test)])
    assert sorted(rows.tolist()) == list(range(1, 301))
    assert rows.tolist() != sorted(rows.tolist())
    np.testing.assert_array_equal(first.y == 1, (first.X[:, 0].toarray().ravel() - 1) % 3 != 0)


def test_webspam_split_sizes():
    from scipy.sparse import csr_matrix

    from gadget_svm.data.loaders import split

    parts = split(csr_matrix((350000, 254)), np.zeros(350000))
    assert (len(parts.y), len(parts.y_test)) == ENTRIES["webspam"].rows == (234500, 115500)


def test_webspam_sample(nothing_here):
    folder = nothing_here / "webspam_sample500"
    folder.mkdir()
    line = " ".join(f"{j}:{j / 1000}" for j in range(255))
    (folder / "webspam_wc_normalized_unigram.svm0.test").write_text(f"1 {line}\n0 {line}\n" * 3)
    data = load_dataset("webspam", data_dir=nothing_here)
    assert data.X.shape == (4, 254)
    assert (data.X[0, 0], data.X[0, 253]) == (0.001, 0.254)
    assert set(data.y) | set(data.y_test) == {-1, 1}
    assert "a small sample" in data.note


def lyrl2004(folder):
    folder.mkdir(parents=True)
    rows = {"test_pt0": "26151  2:0.5 47236:1\n", "test_pt1": "26152  1:1\n", "test_pt2": "26153  3:1\n"}
    rows |= {"test_pt3": "26154  4:1\n", "train": "2286  864:0.0497 1523:0.0446\n2287  5:1\n"}
    for part, text in rows.items():
        (folder / f"lyrl2004_vectors_{part}.dat.gz").write_bytes(gzip.compress(text.encode()))
    qrels = b"E11 2286 1\nCCAT 2287 1\nC15 26152 1\nCCAT 26151 1\nCCAT 26154 1\n"
    (folder / "rcv1-v2.topics.qrels.gz").write_bytes(gzip.compress(qrels))


def test_ccat_files(nothing_here):
    """The paper trains on what Lewis et al. call test, 781265 rows, and tests on their 23149."""
    lyrl2004(nothing_here / "ccat")
    data = load_dataset("ccat", data_dir=nothing_here)
    assert (data.X.shape, data.X_test.shape) == ((4, 47236), (2, 47236))
    assert (data.y.tolist(), data.y_test.tolist()) == ([1, -1, -1, 1], [-1, 1])
    assert (data.X[0, 1], data.X[0, 47235], data.X_test[0, 863]) == (0.5, 1.0, 0.0497)


def test_full_ccat_first(nothing_here):
    subset = nothing_here / "shared" / "data" / "rcv1_ccat_subset"
    subset.mkdir(parents=True)
    for name in ("rcv1_ccat.trn", "rcv1_ccat.tst"):
        (subset / name).write_text("+1 1:1\n-1 2:1\n")
    assert find_dataset("ccat").resolve() == subset
    status = {row.name: row.status for row in list_datasets()}["ccat"]
    assert "a real subset" in status
    lyrl2004(nothing_here / "cache" / "gadget-svm" / "data" / "ccat")
    assert load_dataset("ccat").X.shape[0] == 4
    assert "subset" not in {row.name: row.status for row in list_datasets()}["ccat"]
    assert "a real subset" in load_dataset("ccat", data_dir=subset.parent).note


def reuters_archive(path, members):
    with tarfile.open(path, "w:bz2") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))


def test_reuters_archive(nothing_here):
    """The published training file gives some pairs twice in a line."""
    members = {
        "reuters/acq.trn": b"not read",
        "reuters/money-fx.trn": b"+1 1:0.5 7:0.25 7:0.25 8315:1\n-1 2:1\n",
        "reuters/money-fx.tst": b"-1 3:1\n",
    }
    (nothing_here / "reuters").mkdir()
    path = nothing_here / "reuters" / "lasvm-reuters.tar.bz2"
    reuters_archive(path, members)
    data = load_dataset("reuters", data_dir=nothing_here)
    assert (data.X.shape, data.X_test.shape) == ((2, 8315), (1, 8315))
    assert (data.X[0, 6], data.X[0, 8314], data.X_test[0, 2]) == (0.25, 1.0, 1.0)
    assert data.y.tolist() == [1, -1]
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]  # nothing was unpacked


def test_reuters_archive_unusable(nothing_here):
    path = nothing_here / "lasvm-reuters.tar.bz2"
    reuters_archive(path, {"reuters/money-fx.trn": b"+1 1:1\n"})
    with pytest.raises(DataFileError, match=r"lacks .*money-fx\.tst"):
        load_dataset("reuters", data_dir=nothing_here)
    reuters_archive(path, {"money-fx.trn": b"+1 1:1 1:2\n", "money-fx.tst": b"-1 1:1\n"})
    with pytest.raises(DataFileError, match="one feature id has two values"):
        load_dataset("reuters", data_dir=nothing_here)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(DataFileError, match="truncated or damaged"):
        load_dataset("reuters", data_dir=nothing_here)


def mnist_files(folder, compress=gzip.compress, lost=0):
    pixels = np.zeros((3, 28, 28), dtype=np.uint8)
    pixels[0, 0, 1], pixels[2, 27, 27] = 255, 51
    images = struct.pack(">4I", 0x803, 3, 28, 28) + pixels.tobytes()
    labels = struct.pack(">2I", 0x801, 3) + bytes([0, 4, 9])
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(compress(images[: len(images) - lost]))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(compress(labels))


def test_mnist_files(nothing_here):
    mnist_files(nothing_here)
    data = load_dataset("mnist", data_dir=nothing_here)
    assert data.X.shape == data.X_test.shape == (3, 784)
    assert data.X.nnz == 2
    assert (data.X[0, 1], data.X[2, 783]) == (1.0, 0.2)
    assert data.y.tolist() == [1, -1, -1]
    assert load_dataset("mnist", data_dir=nothing_here, positive=None).y.tolist() == [0, 4, 9]


def test_mnist_unusable(nothing_here):
    mnist_files(nothing_here, lost=5)
    with pytest.raises(DataFileError, match="5 bytes are missing at its end"):
        load_dataset("mnist", data_dir=nothing_here)
    labels = nothing_here / "train-labels-idx1-ubyte.gz"
    (nothing_here / "train-images-idx3-ubyte.gz").write_bytes(labels.read_bytes() + gzip.compress(bytes(99)))
    with pytest.raises(DataFileError, match="starts with 0x801"):
        load_dataset("mnist", data_dir=nothing_here)


def test_usps_files(nothing_here):
    line = " ".join(["-1.0000"] * 255 + ["0.5 "])
    for name in ("zip.train.gz", "zip.test.gz"):
        (nothing_here / name).write_bytes(gzip.compress(f"6.0000 {line}\n0.0000 {line}\n".encode()))
    data = load_dataset("usps", data_dir=nothing_here)
    assert data.X.shape == (2, 256)
    assert (data.X[0, 0], data.X[0, 255]) == (-1.0, 0.5)
    assert data.y.tolist() == [-1, 1]
    (nothing_here / "zip.train.gz").write_bytes(gzip.compress(f"6.0 {line}\n0.0 1 2".encode()))
    with pytest.raises(DataFileError, match=r"zip\.train\.gz looks truncated or damaged"):
        load_dataset("usps", data_dir=nothing_here)


def test_download_once_and_verify(nothing_here, monkeypatch):
    fetched = []

    def deliver(_homes, target, _progress=None):
        from gadget_svm.data.download import checksum, record_checksum

        fetched.append(target.name)
        adult(target.parent)
        record_checksum(target, checksum(target))
        return target

    monkeypatch.setattr("gadget_svm.data.download.download_from_mirrors", deliver)
    for _ in range(2):
        assert load_dataset("adult").X.shape == (2, 123)
    assert fetched == ["a9a", "a9a.t"]
    stored = nothing_here / "cache" / "gadget-svm" / "data" / "adult" / "a9a"
    stored.write_bytes(stored.read_bytes()[:-5])
    with pytest.raises(DataFileError, match="has changed since it was fetched"):
        load_dataset("adult")
    with pytest.raises(FileNotFoundError, match="downloading was not allowed"):
        load_dataset("gisette", download=False)


def test_downloads_make_up_a_file_set():
    for name in PAPER:
        entry = ENTRIES[name]
        stems = [{file, file.rpartition(".")[0]} for file in entry.downloads]
        fits = [all(any(f in stem for stem in stems) for f in files.files) for files in entry.file_sets]
        assert any(fits), name
        for mirrors in entry.downloads.values():
            assert all(mirror.url.startswith(("http://", "https://")) for mirror in mirrors)
            assert all(mirror.sha256 is None or len(mirror.sha256) == 64 for mirror in mirrors)


def test_nothing_to_download():
    with pytest.raises(ValueError, match="nothing to download"):
        fetch_dataset("digits")


def test_listing(nothing_here):
    rows = {row.name: row for row in list_datasets()}
    assert set(rows) == PAPER | {"digits", "breast-cancer"}
    assert rows["digits"].status == "comes with scikit-learn"
    assert rows["adult"].found is None
    assert "downloaded on first use from https://www.csie.ntu.edu.tw" in rows["adult"].status
    folder = adult(nothing_here / "adult")
    row = {row.name: row for row in list_datasets(nothing_here)}["adult"]
    assert (row.found, row.rows, row.features, row.lam) == (folder, (32561, 16281), 123, 3.07e-5)
    assert str(folder) in row.status


def test_importing_is_cheap():
    heavy = "{'pandas', 'pyarrow', 'sklearn', 'scipy', 'numba', 'urllib.request'}"
    code = f"""import sys, gadget_svm
before = set(sys.modules)
import gadget_svm.data
print(sorted({heavy} & (set(sys.modules) - before)))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
