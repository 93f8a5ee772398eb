"""CSV files: the same rows as by the csv module and `float`, or an error that names the place."""

import bz2
import csv
import gzip
import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gadget_svm.data import DataFileError, read_table, text_tables
from gadget_svm.data.tables import NoLabel
from gadget_svm.data.text_tables import read_csv

HEAD = "a,b,label\n"
PLAIN = {
    "a header": HEAD + "1,2,x\n3,4,y\n",
    "no header": "1,2,x\n3,4,y\n",
    "no last newline": HEAD + "1,2,x\n3,4,y",
    "CRLF": HEAD.replace("\n", "\r\n") + "1,2,x\r\n3,4,y\r\n",
    "CR alone": "a,b,label\r1,2,x\r3,4,y\r",
    "mixed line ends": "a,b,label\r\n1,2,x\n3,4,y\r\n5,6,x",
    "blank lines": "\n\n" + HEAD + "\n1,2,x\n\n\n3,4,y\n\n",
    "a BOM": "\ufeff" + HEAD + "1,2,x\n3,4,y\n",
    "a BOM and no header": "\ufeff1,2,x\n3,4,y\n",
    "quoted header": '"a","b, or c","label"\n1,2,x\n3,4,y\n',
    "header of two lines": '"a\nb",c,label\n1,2,x\n3,4,y\n',
    "exponents": HEAD + "1e-3,-2.5E-7,x\n-1e+10,.5,y\n5.,1e-320,x\n",
    "digits": HEAD + "0.1,0.30000000000000004,x\n1.7976931348623157e308,2.2250738585072011e-308,y\n",
    "zeros": HEAD + "0,-0.0,x\n0.0,0,y\n",
    "semicolons": "a;b;label\n1;2;x\n3;4;y\n",
    "tabs": "a\tb\tlabel\n1\t2\tx\n3\t4\ty\n",
    "spaces around labels": HEAD + "1,2, x \n3,4,\ty\n",
    "long and short labels": HEAD + "1,2,x\n3,4,Überlänge\n5,6,x\n",
    "numbers as labels": HEAD + "1,2,1\n3,4,-1\n5,6,1.0\n",
    "label in front": "label,a,b\nx,1,2\ny,3,4\n",
    "ids": "id,a,label\n9007199254740993,1,x\n12345678901234567890,2,y\n",
    "quoted numbers": HEAD + '"1",2,x\n3,4,y\n',
    "quoted labels": HEAD + '1,2,"x"\n3,4,"y, z"\n5,6,"a ""b"""\n',
    "a label of two lines": HEAD + '1,2,"x\n3,4,z"\n3,4,y\n',
    "a quote inside a label": HEAD + '1,2,x"x\n3,4,y\n',
    "a line of spaces": HEAD + "1,2,x\n   \n3,4,y\n",
    "rows of separators": HEAD + "1,2,x\n,,\n3,4,y\n",
    "spaces around numbers": HEAD + " 1 ,2,x\n3,\t4,y\n",
    "text after a quoted number": HEAD + '"1"2,2,x\n3,4,y\n',
    "a quote that does not end": HEAD + '1,2,"x\n3,4,y\n',
    "plus signs": HEAD + "+1,2,x\n3,4,y\n",
    "overflow and underflow": HEAD + "1e400,1e-400,x\n-Infinity,nan,y\n",
}
REFUSED = {
    "an underscore": (HEAD + "1_000,4,y\n", r"line 2, column 'a': '1_000' is not a number"),
    "a missing value": (
        HEAD + "1,,x\n3,4,y\n",
        r"line 2, column 'b': the value is missing \(''\): fill it in or drop the row",
    ),
    "NA": (HEAD + "1,NA,x\n3,4,y\n", r"line 2, column 'b': the value is missing \('NA'\): fill it in"),
    "nan(ind)": (HEAD + "1,nan(ind),x\n3,4,y\n", r"line 2, column 'b'"),
    "a word": (HEAD + "\n1,2,x\n1,two,x\n", r"line 4, column 'b': 'two' is not a number"),
    "hexadecimal": (HEAD + "1,0x10,x\n3,4,y\n", r"line 2, column 'b'"),
    "decimal commas": ("a;b;label\n1,5;2;x\n3;4;y\n", r"line 2, column 'a': '1,5'"),
    "no header": ("1,2,x\n3,?,y\n", r"line 2, column number 1: the value is missing .*say label=1"),
    "a missing label": (HEAD + "1,2,\n3,4,y\n", r"line 2: the label is missing"),
    "a blank label": (HEAD + "1,2,  \n3,4,y\n", r"line 2: the label is missing"),
    "a narrow row": (HEAD + "1,2,x\n3,4\n", r"line 3: 2 columns where 3 were expected"),
    "a wide row": (HEAD + "1,2,x\n3,4,5,y\n", r"line 3: 4 columns where 3 were expected"),
    "wide rows only": (HEAD + "1,2,x,\n3,4,y,\n", r"line 2: 4 columns where 3 were expected"),
    "bytes that are not UTF-8": (
        HEAD.encode() + b"1,2,\xff\n3,4,y\n",
        "save the file as UTF-8; .*truncated or damaged",
    ),
    "Latin-1": (HEAD.encode() + "1,2,größer\n".encode("latin-1"), "not UTF-8 text .*: save the file as UTF-8"),
    "UTF-16": ((HEAD + "1,2,x\n").encode("utf-16"), "not UTF-8 text .*: save the file as UTF-8"),
    "UTF-16 without a mark": ((HEAD + "1,2,x\n").encode("utf-16-le"), "not UTF-8 text .*null bytes.*: save the file"),
    "a name twice": (
        "a,b,a,label\n1,2,3,x\n",
        "two columns 'a', number 0 and number 2 counted from 0: rename or remove",
    ),
    "two label columns": ("label,a,label\nx,1,x\n", "two columns 'label', number 0 and number 2"),
    "a null byte": (HEAD + "1,2\x00,x\n", "csv"),
}


def written(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def by_hand(text, label):
    """Features as bits, and labels, of a table with a header in its first row if that has a name ``a``."""
    text = text.removeprefix("\ufeff")
    separator = max(",;\t", key=text.strip().split("\n")[0].count)
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if any(map(str.strip, row))]
    rows = rows[rows[0][label][:1] == "l" :]
    labels = [row.pop(label).strip() for row in rows]
    return np.array([[float(cell) for cell in row] for row in rows]).tobytes(), labels


def read(path):
    raw = read_csv(path)
    return raw.X.toarray().tobytes(), raw.y.tolist()


@pytest.mark.parametrize("name", PLAIN)
def test_plain_tables(name, tmp_path):
    label = 0 if name == "label in front" else 2
    found, labels = read(written(tmp_path / "table.csv", PLAIN[name]))
    expected, expected_labels = by_hand(PLAIN[name], label)
    np.testing.assert_array_equal(np.frombuffer(found), np.frombuffer(expected))  # CSR has no negative zero
    assert labels == expected_labels


@pytest.mark.parametrize("name", REFUSED)
def test_the_place_of_an_error_is_named(name, tmp_path):
    text, message = REFUSED[name]
    with pytest.raises(DataFileError, match=message):
        read_table(written(tmp_path / "table.csv", text))


def test_a_label_by_name_in_a_table_without_a_header(tmp_path):
    with pytest.raises(DataFileError, match=r"it has no header, .*Add a first line with the names .*or give"):
        read_table(written(tmp_path / "table.csv", "x,1,2\ny,3,4\n"), label="outcome")


def test_a_table_without_labels(tmp_path):
    path = written(tmp_path / "table.csv", "a,b\n1,2\n\n3,4\n")
    raw = read_csv(path, NoLabel.NONE)
    assert (raw.X.toarray().tolist(), raw.columns) == ([[1, 2], [3, 4]], ("a", "b"))
    written(path, "a,b\n1,2\n\n3,\n")
    with pytest.raises(DataFileError, match="line 4, column 'b': the value is missing"):
        read_csv(path, NoLabel.NONE)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.one_of(st.floats(allow_nan=False).map(repr), st.integers(-(10**20), 10**20).map(str)),
            st.sampled_from(["1", " 1.5", "2e-3 ", '"4"', '"1"2', ".5", "5.", "+3"]),
            st.sampled_from(["x", " y ", '"x"', '"a,b"', '"a""b"', '"a\nb"', "x y", "1", "Ü"]),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_any_table(tmp_path, rows, separator, newline):
    lines = [("a", "b", "label"), *((a, b, c.replace(",", separator)) for a, b, c in rows)]
    text = newline.join(separator.join(cells) for cells in lines)
    path = written(tmp_path / "table.csv", text)
    found, labels = read(path)
    expected, expected_labels = by_hand(text.replace("\r", "\n") if newline == "\r" else text, 2)
    np.testing.assert_array_equal(np.frombuffer(found), np.frombuffer(expected))
    assert labels == expected_labels


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_many_blocks(ending, pack, tmp_path, monkeypatch):
    monkeypatch.setattr(text_tables, "CELLS_PER_BLOCK", 300)
    rng = np.random.default_rng(0)
    text = HEAD + "".join(
        f"{a!r},{b!r},{'x' * (i % 9 + 1)}\r\n" for i, (a, b) in enumerate(rng.normal(size=(999, 2)).tolist())
    )
    path = written(tmp_path / f"table.csv{ending}", pack(text.encode()))
    assert read(path) == by_hand(text, 2)
    path.write_bytes(pack(text.encode())[:-2000])
    if ending:
        with pytest.raises(DataFileError, match="truncated or damaged"):
            read(path)
