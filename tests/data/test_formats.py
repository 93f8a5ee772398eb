"""Reading files: every format gives the same table, and every kind of bad file names itself and its fix."""

import bz2
import gzip
import lzma
import sys

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random

from gadget_svm.data.formats import DataFileError, read_table, read_tables

X = np.array([[0.5, 0.0, -2.0], [0.0, 1.25, 0.0], [3.0, 0.0, 0.0]])
y = np.array([1, -1, 1])
SVMLIGHT = b"+1 1:0.5 3:-2 # a comment\n-1 2:1.25\n+1 1:3\n"
CSV = b"a,b,c,label\n0.5,0,-2,1\n0,1.25,0,-1\n3,0,0,1\n"
COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def assert_is_the_table(table, labels):
    assert isinstance(table, csr_matrix)
    assert table.dtype == np.float64
    assert table.indices.dtype == table.indptr.dtype == np.int32
    assert table.has_sorted_indices
    assert table.nnz == 4  # zeros are not stored
    np.testing.assert_array_equal(table.toarray(), X)
    np.testing.assert_array_equal(labels, y)
    assert labels.ndim == 1


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("name", ["t.svm", "t.svmlight", "t.libsvm", "t.txt", "t.dat", "t.trn", "t.tst", "a9a", "a.t"])
def test_svmlight_of_every_ending_and_compression(tmp_path, name, ending):
    path = written(tmp_path, name + ending, COMPRESS[ending](SVMLIGHT))
    assert_is_the_table(*read_table(path))


@pytest.mark.parametrize("ending", COMPRESS)
def test_csv_of_every_compression(tmp_path, ending):
    assert_is_the_table(*read_table(written(tmp_path, "t.csv" + ending, COMPRESS[ending](CSV))))


def test_npz_with_dense_arrays_and_with_csr_parts(tmp_path):
    np.savez(tmp_path / "dense.npz", X=X, y=y)
    S = csr_matrix(X)
    parts = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": S.shape}
    np.savez(tmp_path / "parts.npz", y=y, **parts)
    for name in ("dense.npz", "parts.npz"):
        assert_is_the_table(*read_table(tmp_path / name))


def parquet_file(path, columns):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'gadget-svm[parquet]'")
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), path)
    return path


def test_parquet_and_its_string_labels(tmp_path):
    columns = {"a": X[:, 0], "target": y, "b": X[:, 1], "c": X[:, 2].astype(np.float32)}
    assert_is_the_table(*read_table(parquet_file(tmp_path / "t.parquet", columns)))
    words = columns | {"target": ["yes", "no", "yes"]}
    assert read_table(parquet_file(tmp_path / "w.parquet", words))[1].tolist() == ["yes", "no", "yes"]


def test_parquet_refuses_words_and_missing_values(tmp_path):
    path = parquet_file(tmp_path / "w.parquet", {"a": ["x", "y"], "label": [0, 1]})
    with pytest.raises(DataFileError, match=r"column 'a'.*not a number"):
        read_table(path)
    path = parquet_file(tmp_path / "m.parquet", {"a": [1.0, None], "label": [0, 1]})
    with pytest.raises(DataFileError, match="column 'a', row 2: a value is missing"):
        read_table(path)
    with pytest.raises(DataFileError, match="truncated or damaged"):
        read_table(written(tmp_path, "bad.parquet", b"PAR1 nonsense"))


def test_pandas_row_index_in_parquet_is_neither_label_nor_feature(tmp_path):
    columns = {"a": [1.0, 2.0], "b": [3, 4], "__index_level_0__": [17, 18]}
    table, labels = read_table(parquet_file(tmp_path / "t.parquet", columns))
    assert table.shape == (2, 1)
    assert labels.tolist() == [3, 4]


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'gadget-svm\[parquet\]'"):
        read_table(written(tmp_path, "t.parquet", b"PAR1"))


def test_csv_label_by_name_by_number_and_by_default(tmp_path):
    path = written(tmp_path, "t.csv", b"Y,a,b\n7,1,2\n8,3,4\n")
    assert read_table(path)[1].tolist() == [7, 8]
    assert read_table(path, label="a")[1].tolist() == [1, 3]
    assert read_table(path, label=-1)[1].tolist() == [2, 4]
    assert read_table(path, label="1")[1].tolist() == [1, 3]
    with pytest.raises(ValueError, match=r"no label column 'z'. It has: Y, a, b"):
        read_table(path, label="z")


def test_csv_without_header_and_with_words_as_labels(tmp_path):
    table, labels = read_table(written(tmp_path, "t.csv", b"5.1,3.5,setosa\n4.9,3.0,virginica\n"))
    assert table.shape == (2, 2)
    assert labels.tolist() == ["setosa", "virginica"]


def test_csv_header_of_numbers_beside_a_word(tmp_path):
    table, labels = read_table(written(tmp_path, "t.csv", b"label,0,1\n3,10,11\n4,12,13\n"))
    assert table.toarray().tolist() == [[10, 11], [12, 13]]
    assert labels.tolist() == [3, 4]


def test_csv_semicolons_quotes_and_blank_lines(tmp_path):
    path = written(tmp_path, "t.csv", '\ufeff"a";"class"\n1;"x; y"\n\n2;z\n'.encode())
    table, labels = read_table(path)
    assert table.toarray().tolist() == [[1], [2]]
    assert labels.tolist() == ["x; y", "z"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"age,city,label\n1,2,0\n3,Rome,1\n", "line 3, column 'city': 'Rome' is not a number; encode"),
        (b"age,label\n1,0\n,1\n", "line 3, column 'age': '' is not a number"),
        (b"1,2,0\n3,x,1\n", "line 2, column number 1: 'x' is not a number"),
        (b"a,b,label\n1,2,0\n3,1\n", "line 3: 2 columns where 3 were expected"),
        (b"a,b,label\n1,2,0\n3,1,\n", "line 3: the label is missing"),
        (b"a,b,label\n1,2,0\n3,nan,1\n", "row 2: a value is NaN or infinite"),
        (b"a,b,label\n1,2,0\n3,1,inf\n", "row 2: the label is NaN or infinite"),
        (b"a,b,label\n", "empty: it has no rows"),
        (b"a\n1\n", "one column"),
        (b",a,label\n0,1,2\n", "column number 0 has no name; if it is a row index, drop it"),
        (b"a,label\n\xff\xfe,1\n", "truncated or damaged"),
    ],
)
def test_csv_that_cannot_be_used(tmp_path, content, message):
    with pytest.raises(DataFileError, match=message) as caught:
        read_table(written(tmp_path, "bad.csv", content))
    assert "bad.csv" in str(caught.value)


@pytest.mark.parametrize("empty", [0, 1])
def test_of_two_files_the_one_that_is_a_header_alone_is_named(tmp_path, empty):
    contents = [b"a,b,label\n1,2,0\n3,4,1\n"] * 2
    contents[empty] = b"a,b,label\n"
    paths = [written(tmp_path, f"part{i}.csv", content) for i, content in enumerate(contents)]
    with pytest.raises(DataFileError, match=rf"part{empty}\.csv is empty: it has no rows"):
        read_tables(paths)


def test_csv_longer_than_one_block(tmp_path, monkeypatch):
    monkeypatch.setattr("gadget_svm.data.delimited._CELLS_PER_BLOCK", 7)
    rows = "\n".join(f"{i},{-i},{i % 2}" for i in range(1, 51))
    table, labels = read_table(written(tmp_path, "t.csv", rows.encode()))
    assert table[:, 0].toarray().ravel().tolist() == list(range(1, 51))
    assert labels.tolist() == [i % 2 for i in range(1, 51)]


def test_n_features_pads_and_refuses(tmp_path):
    path = written(tmp_path, "t.svm", SVMLIGHT)
    assert read_table(path, n_features=10)[0].shape == (3, 10)
    with pytest.raises(DataFileError, match="has 3 features, 2 were expected"):
        read_table(path, n_features=2)


def test_ids_start_at_zero_where_a_zero_occurs(tmp_path):
    path = written(tmp_path, "t.svm", b"1 0:5 2:6\n2 1:7\n")
    assert read_table(path)[0].toarray().tolist() == [[5, 0, 6], [0, 7, 0]]
    with pytest.raises(DataFileError, match="feature id 0, ids from 1"):
        read_table(path, zero_based=False)


def test_train_and_test_agree_where_ids_start(tmp_path):
    """Alone, the test file would look one-based and its columns would shift against the training file."""
    train, test = written(tmp_path, "a.svm", b"1 0:5 3:1\n"), written(tmp_path, "b.svm", b"1 1:7\n")
    (_, _), (T, _) = read_tables([train, test])
    assert T.toarray().tolist() == [[0, 7, 0, 0]]
    assert read_table(test)[0].toarray().tolist() == [[7]]


def test_csv_train_and_test_need_the_same_columns(tmp_path):
    train = written(tmp_path, "a.csv", b"a,b,label\n1,2,0\n")
    with pytest.raises(DataFileError, match=r"column 'a' of .* stands where .* has 'b'"):
        read_tables([train, written(tmp_path, "b.csv", b"b,a,label\n1,2,0\n")])
    with pytest.raises(DataFileError, match=r"has 1 features and .* has 2"):
        read_tables([train, written(tmp_path, "c.csv", b"a,label\n1,0\n")])


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.svm: check the spelling"):
        read_table(tmp_path / "nowhere.svm")
    with pytest.raises(IsADirectoryError, match="name the data file inside"):
        read_table(tmp_path)


@pytest.mark.parametrize("name", ["e.svm", "e.csv", "e.npz", "e.parquet", "e.svm.gz", "e"])
def test_empty_files(tmp_path, name):
    with pytest.raises(DataFileError, match="empty"):
        read_table(written(tmp_path, name, b""))


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("kind", ["svm", "csv"])
def test_truncated_and_damaged_archives(tmp_path, kind, ending):
    rows = random(500, 50, density=0.3, random_state=0, format="csr")
    lines = [b"1 " + b" ".join(b"%d:%r" % (j + 1, v) for j, v in zip(r.indices, r.data, strict=True)) for r in rows]
    whole = COMPRESS[ending](b"\n".join(lines) if kind == "svm" else CSV * 50)
    for name, content in {"cut": whole[: len(whole) // 2], "noise": b"not compressed at all"}.items():
        path = written(tmp_path, f"{name}.{kind}{ending}", content)
        with pytest.raises(DataFileError, match=r"truncated or damaged.*fetch or copy it again") as caught:
            read_table(path)
        assert path.name in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1 1:2\n-1 3:\n", "line 2: could not convert"),
        (b"1 1:2\n1 2:1 1:3\n", "line 2: .*sorted and unique"),
        (b"1 1:2\n1 2:nan\n", "row 2: a value is NaN or infinite"),
        (b"1 99999999999:2\n", "line 1"),
        (b"1\n-1\n", "no features"),
        (b"# nothing\n", "no rows"),
    ],
)
def test_svmlight_that_cannot_be_used(tmp_path, content, message):
    with pytest.raises(DataFileError, match=message):
        read_table(written(tmp_path, "bad.svm", content))


def test_npz_that_cannot_be_used(tmp_path):
    np.savez(tmp_path / "pickled.npz", X=np.array([{}], dtype=object), y=y)
    np.savez(tmp_path / "names.npz", A=X, y=y)
    np.savez(tmp_path / "short.npz", X=X, y=y[:2])
    np.savez(tmp_path / "broken.npz", data=[1.0], indices=[9], indptr=[0, 1], shape=(1, 2), y=[1])
    whole = (tmp_path / "names.npz").read_bytes()
    written(tmp_path, "cut.npz", whole[: len(whole) // 2])
    expected = {"pickled": "damaged", "names": "arrays A, y", "short": "3 rows and 2 labels"}
    expected |= {"broken": "damaged", "cut": "damaged"}
    for name, message in expected.items():
        with pytest.raises(DataFileError, match=message):
            read_table(tmp_path / f"{name}.npz")


def test_unknown_ending_names_the_known_ones(tmp_path):
    with pytest.raises(DataFileError, match=r"cannot tell its format.*\.csv .*\.npz"):
        read_table(written(tmp_path, "t.xlsx", b"PK something"))
