"""Every format and compression reads the same table; every unusable file is named in an error with the fix."""

import bz2
import gzip
import io
import lzma
import sys

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random, save_npz

from gadget_svm.data.formats import FORMATS, DataFileError, align_tables, read_files, read_raw, read_table
from gadget_svm.data.tables import NoLabel

X = np.array([[0.5, 0.0, -2.0], [0.0, 1.25, 0.0], [3.0, 0.0, 0.0]])
y = np.array([1, -1, 1])
COLUMNS = ("a", "b", "c")
COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def svmlight(X, y):
    rows = [" ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row) if v) for row in X.tolist()]
    return "".join(f"{label:+} {row} # a comment\n" for label, row in zip(y, rows, strict=True)).encode()


def text(X, y, separator=","):
    lines = [[*COLUMNS[: X.shape[1]], "label"], *([*row, label] for row, label in zip(X.tolist(), y, strict=True))]
    return "".join(separator.join(map(str, line)) + "\n" for line in lines).encode()


def tsv(X, y):
    return text(X, y, "\t")


def npz(X, y):
    buffer = io.BytesIO()
    np.savez(buffer, X=X, y=y)
    return buffer.getvalue()


def npz_csr(X, y):
    buffer, S = io.BytesIO(), csr_matrix(X)
    np.savez(buffer, data=S.data, indices=S.indices, indptr=S.indptr, shape=S.shape, y=y)
    return buffer.getvalue()


def parquet(X, y, **columns):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'gadget-svm[parquet]'")
    from pyarrow import parquet

    buffer = io.BytesIO()
    table = dict(zip(COLUMNS, X.T, strict=False)) | {"label": y} | columns
    parquet.write_table(pa.table(table), buffer)
    return buffer.getvalue()


CASES = {
    **{f"svmlight{c}": (svmlight, f"t.svm{c}", "svmlight") for c in COMPRESS},
    **{f"csv{c}": (text, f"t.csv{c}", "csv") for c in COMPRESS},
    **{f"tsv{c}": (tsv, f"t.tsv{c}", "tsv") for c in COMPRESS},
    "npz": (npz, "t.npz", "npz"),
    "npz_csr": (npz_csr, "t.npz", "npz"),
    "parquet": (parquet, "t.parquet", "parquet"),
}
PLAIN = [case for case in CASES if "." not in case]
BINARY = [case for case in CASES if case not in ("svmlight", "csv", "tsv")]
TABLES = ["csv", "tsv", "parquet"]


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path


def read_unlabelled(path):
    raw = read_raw(path, NoLabel.NONE)
    return align_tables([path], [raw], None, None)[0][0], raw.columns


def case_file(folder, case, X=X, y=y):
    write, name, _ = CASES[case]
    compress = COMPRESS[next(c for c in reversed(COMPRESS) if name.endswith(c))]
    return written(folder, name, compress(write(X, y)))


def assert_is_the_table(table, labels):
    assert isinstance(table, csr_matrix)
    assert (table.dtype, labels.dtype) == (np.float64, np.int64)
    assert table.indices.dtype == table.indptr.dtype == np.int32
    assert table.has_sorted_indices
    assert table.nnz == 4  # zeros are not stored
    np.testing.assert_array_equal(table.toarray(), X)
    np.testing.assert_array_equal(labels, y)


def test_every_format_is_here():
    assert {name for _, _, name in CASES.values()} == set(FORMATS)


@pytest.mark.parametrize("case", CASES)
class TestEveryFormat:
    def test_same_table(self, case, tmp_path):
        path = case_file(tmp_path, case)
        assert_is_the_table(*read_table(path))
        renamed = path.rename(tmp_path / path.name.replace("t.", "t_").replace(case.partition(".")[0], "table"))
        assert_is_the_table(*read_table(renamed, format=CASES[case][2]))

    def test_width(self, case, tmp_path):
        path = case_file(tmp_path, case)
        assert read_table(path, n_features=10)[0].shape == (3, 10)
        with pytest.raises(DataFileError, match="has 3 features, 2 were expected"):
            read_table(path, n_features=2)

    def test_narrow_test_file(self, case, tmp_path):
        """svmlight often lacks the last ids; in other formats a missing column is an error."""
        (tmp_path / "test").mkdir()
        train, test = case_file(tmp_path, case), case_file(tmp_path / "test", case, X[:, :2])
        if case.startswith("svmlight"):
            np.testing.assert_array_equal(read_files([train, test]).tables[1][0].toarray()[:, :2], X[:, :2])
        else:
            with pytest.raises(DataFileError, match=r"has 2 features and .* has 3: use the same columns"):
                read_files([train, test])

    def test_unlabelled(self, case, tmp_path):
        """The label column of a table becomes a feature."""
        table, columns = read_unlabelled(case_file(tmp_path, case))
        is_table = case.partition(".")[0] in TABLES
        assert columns == ((*COLUMNS, "label") if is_table else None)
        np.testing.assert_array_equal(table.toarray(), np.column_stack([X, y]) if is_table else X)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_not_finite(self, case, value, tmp_path):
        broken = X.copy()
        broken[1, 1] = value
        with pytest.raises(DataFileError, match="row 2: a value is NaN or infinite"):
            read_table(case_file(tmp_path, case, broken))

    def test_empty(self, case, tmp_path):
        with pytest.raises(DataFileError, match=r"is empty: fetch or copy it again"):
            read_table(written(tmp_path, CASES[case][1], b""))


@pytest.mark.parametrize("case", BINARY)
def test_truncated_and_damaged(case, tmp_path):
    rng = np.random.default_rng(0)
    whole = case_file(tmp_path, case, rng.normal(size=(500, 3)), rng.integers(0, 2, 500)).read_bytes()
    for content in (whole[: len(whole) // 2], whole[:8] + b"nonsense"):
        with pytest.raises(DataFileError, match=r"truncated or damaged.*fetch or copy it again") as caught:
            read_table(written(tmp_path, CASES[case][1], content))
        assert CASES[case][1] in str(caught.value)


@pytest.mark.parametrize("case", TABLES)
def test_label_column(case, tmp_path):
    path = case_file(tmp_path, case)
    for label in ("b", 1, "1", -3):
        assert read_table(path, label=label)[1].tolist() == X[:, 1].tolist()
    with pytest.raises(ValueError, match=r"no label column 'z'. It has: a, b, c, label"):
        read_table(path, label="z")


@pytest.mark.parametrize("case", TABLES)
def test_same_columns_in_train_and_test(case, tmp_path, monkeypatch):
    (tmp_path / "test").mkdir()
    train = case_file(tmp_path, case)
    monkeypatch.setitem(globals(), "COLUMNS", ("b", "a", "c"))
    with pytest.raises(DataFileError, match=r"has the column 'a' where .* has 'b'"):
        read_files([train, case_file(tmp_path / "test", case)])


@pytest.mark.parametrize("name", ["t.svmlight", "t.libsvm", "t.txt", "t.dat", "t.trn", "t.tst", "a9a", "a.t", "a9a.xz"])
def test_svmlight_suffixes(tmp_path, name):
    path = written(tmp_path, name, COMPRESS[name[-3:] if name.endswith(".xz") else ""](svmlight(X, y)))
    assert_is_the_table(*read_table(path))


def test_format_unknown(tmp_path):
    with pytest.raises(DataFileError, match=r"its format is unknown.*\.csv .*\.npz"):
        read_table(written(tmp_path, "t.xlsx", b"PK something"))
    with pytest.raises(ValueError, match="Did you mean 'parquet'"):
        read_table(tmp_path / "t.xlsx", format="parket")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"PK\x03\x04 zip", "is a file of the format npz: say format='npz'"),
        ("t.npz", b"PAR1\x15 parquet", "is a file of the format parquet: say format='parquet'"),
        ("t.parquet", b"a,b\n1,2\n", "is not of the format parquet: say which it is"),
        ("t.npz.gz", b"\x1f\x8b", r"compressed twice: unpack the \.gz first"),
    ],
)
def test_format_of_another_name(tmp_path, name, content, message):
    with pytest.raises(DataFileError, match=message):
        read_table(written(tmp_path, name, content))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.svm: check the spelling"):
        read_table(tmp_path / "nowhere.svm")
    with pytest.raises(IsADirectoryError, match="name the data file inside"):
        read_table(tmp_path)


@pytest.mark.parametrize("empty", [0, 1])
def test_header_alone_names_the_file(tmp_path, empty):
    contents = [b"a,b,label\n1,2,0\n3,4,1\n"] * 2
    contents[empty] = b"a,b,label\n"
    paths = [written(tmp_path, f"part{i}.csv", content) for i, content in enumerate(contents)]
    with pytest.raises(DataFileError, match=rf"part{empty}\.csv is empty: it has no rows"):
        read_files(paths)


def test_measurements_are_no_labels(tmp_path):
    table = random(50, 3, density=1, random_state=0).toarray()
    with pytest.raises(DataFileError, match=r"column 'label' was taken as the label, and holds measurements"):
        read_table(written(tmp_path, "t.csv", text(table, table[:, 0] + 0.5)))


# svmlight


def test_ids_start_at_zero_if_a_zero_occurs(tmp_path):
    path = written(tmp_path, "t.svm", b"1 0:5 2:6\n2 1:7\n")
    assert read_table(path)[0].toarray().tolist() == [[5, 0, 6], [0, 7, 0]]
    with pytest.raises(DataFileError, match="feature id 0, ids from 1"):
        read_table(path, zero_based=False)


def test_train_and_test_agree_where_ids_start(tmp_path):
    """Alone, the test file would look one-based and its columns would shift against the training file."""
    train, test = written(tmp_path, "a.svm", b"1 0:5 3:1\n"), written(tmp_path, "b.svm", b"1 1:7\n")
    (_, _), (T, _) = read_files([train, test]).tables
    assert T.toarray().tolist() == [[0, 7, 0, 0]]
    assert read_table(test)[0].toarray().tolist() == [[7]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1 1:2\n-1 3:\n", "line 2: could not convert"),
        (b"1 1:2\n1 2:1 1:3\n", "line 2: .*sorted and unique"),
        (b"1 99999999999:2\n", "line 1"),
        (b"1\n-1\n", "no features"),
        (b"# nothing\n", "no rows"),
    ],
)
def test_svmlight_that_cannot_be_used(tmp_path, content, message):
    with pytest.raises(DataFileError, match=message):
        read_table(written(tmp_path, "bad.svm", content))


# CSV


@pytest.mark.parametrize(
    ("content", "rows", "labels"),
    [
        (b"Y,a,b\n7,1,2\n8,3,4\n", [[1, 2], [3, 4]], [7, 8]),
        (b"5.1,3.5,setosa\n4.9,3.0,virginica\n", [[5.1, 3.5], [4.9, 3.0]], ["setosa", "virginica"]),
        (b"label,0,1\n3,10,11\n4,12,13\n", [[10, 11], [12, 13]], [3, 4]),
        ('\ufeff"a";"class"\n1;"x; y"\n\n2;z\n'.encode(), [[1], [2]], ["x; y", "z"]),
    ],
    ids=["label in front", "no header", "numbers as names", "semicolons"],
)
def test_csv_header_and_label(tmp_path, content, rows, labels):
    table, found = read_table(written(tmp_path, "t.csv", content))
    assert (table.toarray().tolist(), found.tolist()) == (rows, labels)


def test_csv_longer_than_one_block(tmp_path, monkeypatch):
    monkeypatch.setattr("gadget_svm.data.text_tables.CELLS_PER_BLOCK", 7)
    rows = "\n".join(f"{i},{-i},{i % 2}" for i in range(1, 51))
    table, labels = read_table(written(tmp_path, "t.csv", rows.encode()))
    assert table[:, 0].toarray().ravel().tolist() == list(range(1, 51))
    assert labels.tolist() == [i % 2 for i in range(1, 51)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"age,city,label\n1,2,0\n3,Rome,1\n", "line 3, column 'city': 'Rome' is not a number: encode.*label='city'"),
        (b"age,label\n1,0\n,1\n", r"line 3, column 'age': the value is missing \(''\): fill it in"),
        (b"1,2,0\n3,x,1\n", "line 2, column number 1: 'x' is not a number.*label=1"),
        (b"a,b,label\n1,2,0\n3,1\n", "line 3: 2 columns where 3 were expected"),
        (b"a,b,label\n1,2,0\n3,1,\n", "line 3: the label is missing"),
        (b"a,b,label\n1,2,0\n3,1,inf\n", "row 2: the label is NaN or infinite"),
        (b"a\n1\n", "one column"),
        (b",a,label\n0,1,2\n", "column number 0 has no name; if it is a row index, drop it"),
        (b"a,label\n\xff\xfe,1\n", "truncated or damaged"),
    ],
)
def test_csv_that_cannot_be_used(tmp_path, content, message):
    with pytest.raises(DataFileError, match=message) as caught:
        read_table(written(tmp_path, "bad.csv", content))
    assert "bad.csv" in str(caught.value)


# Parquet and npz


def test_parquet_with_a_name_twice(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'gadget-svm[parquet]'")
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_arrays([[1.0], [2.0], [1]], names=["a", "a", "label"]), tmp_path / "t.parquet")
    with pytest.raises(DataFileError, match="two columns 'a', number 0 and number 1"):
        read_table(tmp_path / "t.parquet")


def test_parquet_words(tmp_path):
    path = written(tmp_path, "w.parquet", parquet(X, ["yes", "no", "yes"]))
    assert read_table(path)[1].tolist() == ["yes", "no", "yes"]
    with pytest.raises(DataFileError, match=r"column 'label'.*not a number"):
        read_table(path, label="a")


def test_parquet_missing_value(tmp_path):
    path = written(tmp_path, "m.parquet", parquet(X, y, a=[1.0, None, 2.0]))
    with pytest.raises(DataFileError, match="column 'a', row 2: a value is missing"):
        read_table(path)


def test_parquet_row_index_of_pandas_is_neither_label_nor_feature(tmp_path):
    path = written(tmp_path, "t.parquet", parquet(X, y, __index_level_0__=[17, 18, 19]))
    assert_is_the_table(*read_table(path))


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'gadget-svm\[parquet\]'"):
        read_table(written(tmp_path, "t.parquet", b"PAR1"))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.array([{}], dtype=object), "y": y}, "damaged"),
        ({"A": X, "y": y}, "has the arrays A, y: save y and X"),
        ({"X": X, "y": y[:2]}, "3 rows and 2 labels"),
        ({"X": X[0], "y": y}, "save rows x features"),
        ({"X": X, "y": X}, "save one label per row"),
        ({"data": [1.0], "indices": [9], "indptr": [0, 1], "shape": (1, 2), "y": [1]}, "damaged"),
    ],
    ids=["pickled", "names", "short", "vector", "labels", "indices"],
)
def test_npz_that_cannot_be_used(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(DataFileError, match=message):
        read_table(tmp_path / "bad.npz")


def test_npz_of_scipy(tmp_path):
    save_npz(tmp_path / "t.npz", csr_matrix(X))
    np.testing.assert_array_equal(read_unlabelled(tmp_path / "t.npz")[0].toarray(), X)
    save_npz(tmp_path / "t.npz", csr_matrix(X).tocsc())
    with pytest.raises(DataFileError, match=r"not CSR: save X\.tocsr\(\)"):
        read_unlabelled(tmp_path / "t.npz")
