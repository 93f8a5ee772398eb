"""The table of named data sets: what each is, which files make it up and where they are published.
Owns facts only; finding, fetching and loading them is the catalog's work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gadget_svm.data import builtin, paper_datasets
from gadget_svm.data.paper_datasets import TrainTest


@dataclass(frozen=True)
class Layout:
    """Files that together make up a data set, named without the ending of their compression."""

    folders: tuple[str, ...]
    files: tuple[str, ...]
    load: Callable[[Sequence[Path]], TrainTest]
    subset: str = ""  # what to call it where it is less than the published set


@dataclass(frozen=True)
class Remote:
    """A file to download, and its (address, SHA-256 published there or None), tried in turn."""

    name: str
    homes: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class Entry:
    """One named data set; ``rows`` are train and test as published, ``lam`` is the paper's."""

    title: str
    rows: tuple[int, int]
    features: int
    lam: float | None = None
    positive: int | None = None
    page: str = ""
    layouts: tuple[Layout, ...] = ()
    downloads: tuple[Remote, ...] = ()
    builtin: Callable[[], TrainTest] | None = None


_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_LIBSVM_PAGE = f"{_LIBSVM}.html"
_LECUN = "http://yann.lecun.com/exdb/mnist"
_OSSCI = "https://ossci-datasets.s3.amazonaws.com/mnist"
_ESL = "https://hastie.su.domains/ElemStatLearn/datasets"
_RCV1 = "http://www.ai.mit.edu/projects/jmlr/papers/volume5/lewis04a"
_FIGSHARE = "https://ndownloader.figshare.com/files"  # the copies scikit-learn's fetch_rcv1 uses


def _libsvm(*names: str) -> tuple[Remote, ...]:
    return tuple(Remote(name, ((f"{_LIBSVM}/{name}", None),)) for name in names)


def _mnist(stem: str, sha256: str) -> Remote:
    name = f"{stem}.gz"
    return Remote(name, ((f"{_LECUN}/{name}", sha256), (f"{_OSSCI}/{name}", sha256)))


def _rcv1(name: str, folder: str, copy: int, sha256: str) -> Remote:
    # The sum is published for the copy; that the original has the same bytes is not known.
    return Remote(name, ((f"{_RCV1}/{folder}/{name}", None), (f"{_FIGSHARE}/{copy}", sha256)))


def _vectors(part: str, copy: int, sha256: str) -> Remote:
    return _rcv1(f"lyrl2004_vectors_{part}.dat.gz", "a13-vector-files", copy, sha256)


_MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_CCAT_FILES = (
    *(f"lyrl2004_vectors_test_pt{i}.dat" for i in range(4)),
    "lyrl2004_vectors_train.dat",
    "rcv1-v2.topics.qrels",
)

ENTRIES: Mapping[str, Entry] = {
    "digits": Entry(
        title="handwritten digits of scikit-learn, 8x8 pixels in [0, 1], ten classes",
        rows=(1347, 450),
        features=64,
        builtin=builtin.digits,
    ),
    "breast-cancer": Entry(
        title="Wisconsin breast cancer of scikit-learn, benign against malignant, scaled to [0, 1]",
        rows=(426, 143),
        features=30,
        positive=1,
        builtin=builtin.breast_cancer,
    ),
    "adult": Entry(
        title="Adult (a9a), income above 50000 dollars against the rest",
        rows=(32561, 16281),
        features=123,
        lam=3.07e-5,
        positive=1,
        page=_LIBSVM_PAGE,
        layouts=(Layout(("adult", ""), ("a9a", "a9a.t"), partial(paper_datasets.svmlight_pair, n_features=123)),),
        downloads=_libsvm("a9a", "a9a.t"),
    ),
    "ccat": Entry(
        title="RCV1-v2, CCAT against the rest",
        rows=(781265, 23149),
        features=47236,
        lam=1e-4,
        positive=1,
        page=f"{_RCV1}/lyrl2004_rcv1v2_README.htm",
        layouts=(
            Layout(("ccat", "rcv1", ""), _CCAT_FILES, paper_datasets.ccat),
            Layout(
                ("rcv1_ccat_subset", "ccat", ""),
                ("rcv1_ccat.trn", "rcv1_ccat.tst"),
                partial(paper_datasets.svmlight_pair, n_features=47236),
                subset="a real subset",
            ),
        ),
        downloads=(
            _vectors("test_pt0", 5976069, "ed40f7e418d10484091b059703eeb95ae3199fe042891dcec4be6696b9968374"),
            _vectors("test_pt1", 5976066, "87700668ae45d45d5ca1ef6ae9bd81ab0f5ec88cc95dcef9ae7838f727a13aa6"),
            _vectors("test_pt2", 5976063, "48143ac703cbe33299f7ae9f4995db49a258690f60e5debbff8995c34841c7f5"),
            _vectors("test_pt3", 5976060, "dfcb0d658311481523c6e6ca0c3f5a3e1d3d12cde5d7a8ce629a9006ec7dbb39"),
            _vectors("train", 5976057, "5468f656d0ba7a83afc7ad44841cf9a53048a5c083eedc005dcdb5cc768924ae"),
            _rcv1(
                "rcv1-v2.topics.qrels.gz",
                "a08-topic-qrels",
                5976048,
                "2a98e5e5d8b770bded93afc8930d88299474317fe14181aee1466cc754d0d1c1",
            ),
        ),
    ),
    "mnist": Entry(
        title="MNIST handwritten digits, 28x28 pixels in [0, 1], 0 against the rest unless told otherwise",
        rows=(60000, 10000),
        features=784,
        lam=1.67e-5,
        positive=0,
        page=_LECUN,
        layouts=(Layout(("mnist", ""), _MNIST_FILES, paper_datasets.mnist),),
        downloads=(
            _mnist(_MNIST_FILES[0], "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            _mnist(_MNIST_FILES[1], "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            _mnist(_MNIST_FILES[2], "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            _mnist(_MNIST_FILES[3], "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        ),
    ),
    "reuters": Entry(
        title="Reuters-21578 as prepared for LaSVM, money-fx against the rest",
        rows=(7770, 3299),
        features=8315,
        lam=1.29e-4,
        positive=1,
        page="https://leon.bottou.org/projects/lasvm",
        layouts=(
            Layout(("reuters_moneyfx", "reuters", ""), ("reuters.trn", "reuters.tst"), paper_datasets.reuters_files),
            Layout(("reuters", ""), ("money-fx.trn", "money-fx.tst"), paper_datasets.reuters_files),
            Layout(("reuters", ""), ("lasvm-reuters.tar",), paper_datasets.reuters_archive),
        ),
        downloads=(
            Remote(
                "lasvm-reuters.tar.bz2",
                (("https://leon.bottou.org/_media/papers/lasvm-reuters.tar.bz2", None),),
            ),
        ),
    ),
    "usps": Entry(
        title="USPS handwritten digits (the canonical split; the paper's is 7329/1969 of the same images), "
        "0 against the rest unless told otherwise",
        rows=(7291, 2007),
        features=256,
        lam=1.36e-4,
        positive=0,
        page=f"{_ESL}/zip.info.txt",
        layouts=(Layout(("usps", ""), ("zip.train", "zip.test"), paper_datasets.usps),),
        downloads=tuple(Remote(name, ((f"{_ESL}/{name}", None),)) for name in ("zip.train.gz", "zip.test.gz")),
    ),
    "webspam": Entry(
        title="Webspam (normalised unigrams), spam against the rest, split about 2:1 at random",
        rows=(234500, 115500),
        features=254,
        lam=1e-5,
        positive=1,
        page=_LIBSVM_PAGE,
        layouts=(
            Layout(("webspam", ""), ("webspam_wc_normalized_unigram.svm",), paper_datasets.webspam),
            Layout(
                ("webspam_sample500", "webspam", ""),
                ("webspam_wc_normalized_unigram.svm0.test",),
                paper_datasets.webspam_sample,
                subset="a small sample (for trying the loader, not for results)",
            ),
        ),
        downloads=_libsvm("webspam_wc_normalized_unigram.svm.xz"),
    ),
    "gisette": Entry(
        title="Gisette, the digits 4 against 9 among probe features",
        rows=(6000, 1000),
        features=5000,
        positive=1,
        page=_LIBSVM_PAGE,
        layouts=(
            Layout(
                ("gisette", ""),
                ("gisette_scale", "gisette_scale.t"),
                partial(paper_datasets.svmlight_pair, n_features=5000),
            ),
        ),
        downloads=_libsvm("gisette_scale.bz2", "gisette_scale.t.bz2"),
    ),
}
