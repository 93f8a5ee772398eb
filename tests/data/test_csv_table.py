"""pyarrow's parser of CSV and the csv module read the same, bit for bit, or fail with the same message."""

import bz2
import gzip
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gadget_svm.data import csv_table
from gadget_svm.data.formats import read_raw, read_table
from gadget_svm.data.tables import NoLabel

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
    "names twice": "a,a,label\n1,2,x\n3,4,y\n",
}
UNUSUAL = {
    "spaces around numbers": HEAD + " 1 ,2,x\n3,\t4,y\n",
    "text after a quoted number": HEAD + '"1"2,2,x\n3,4,y\n',
    "a quote that does not end": HEAD + '1,2,"x\n3,4,y\n',
    "plus signs and underscores": HEAD + "+1,2,x\n1_000,4,y\n",
    "a missing value": HEAD + "1,,x\n3,4,y\n",
    "NA": HEAD + "1,NA,x\n3,4,y\n",
    "a missing label": HEAD + "1,2,\n3,4,y\n",
    "a blank label": HEAD + "1,2,  \n3,4,y\n",
    "rows of separators": HEAD + "1,2,x\n,,\n3,4,y\n",
    "NaN": HEAD + "1,nan,x\n3,4,y\n",
    "nan(ind)": HEAD + "1,nan(ind),x\n3,4,y\n",
    "infinity": HEAD + "1,-Infinity,x\n3,4,y\n",
    "overflow": HEAD + "1,1e400,x\n3,4,y\n",
    "underflow": HEAD + "1,1e-400,x\n3,4,y\n",
    "a word": HEAD + "1,two,x\n3,4,y\n",
    "hexadecimal": HEAD + "1,0x10,x\n3,4,y\n",
    "a narrow row": HEAD + "1,2,x\n3,4\n",
    "a wide row": HEAD + "1,2,x\n3,4,5,y\n",
    "a trailing separator": HEAD + "1,2,x,\n3,4,y,\n",
    "a line of spaces": HEAD + "1,2,x\n   \n3,4,y\n",
    "a header alone": HEAD,
    "decimal commas": "a;b;label\n1,5;2;x\n3;4;y\n",
    "bytes that are not UTF-8": HEAD.encode() + b"1,2,\xff\n3,4,y\n",
    "a null byte": HEAD + "1,2,x\x00\n3,4,y\n",
}


def outcome(path, **options):
    """Return everything that was read, or the error."""
    try:
        raw = read_raw(path, **options)
        X, y = read_table(path) if not options else (raw.X, raw.y)
    except Exception as error:
        return type(error), str(error)
    arrays = (raw.X.data, raw.X.indices, raw.X.indptr, raw.y, X.data, X.indices, X.indptr, y)
    return raw.X.shape, raw.columns, raw.label, [(array.dtype, array.tobytes()) for array in arrays]


def both(path, monkeypatch, **options):
    """Return what each parser makes of a file, and whether pyarrow read it."""
    read = []
    real = csv_table._read_plain

    def noted(*args):
        read.append(real(*args))
        return read[-1]

    with monkeypatch.context() as patch:
        patch.setattr(csv_table, "ARROW_MIN_BYTES", 0)
        patch.setattr(csv_table, "_read_plain", noted)
        plain = outcome(path, **options)
        patch.setattr(csv_table, "_read_plain", lambda *_: None)
        by_rows = outcome(path, **options)
    return plain, by_rows, bool(read) and all(found is not None for found in read)


@pytest.mark.parametrize("name", [*PLAIN, *UNUSUAL])
def test_parsers_agree(name, tmp_path, monkeypatch):
    text = (PLAIN | UNUSUAL)[name]
    path = tmp_path / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    plain, by_rows, used = both(path, monkeypatch)
    assert plain == by_rows
    if name in PLAIN:
        assert used, "pyarrow must read a plain table"
    plain, by_rows, _ = both(path, monkeypatch, label=NoLabel.NONE)
    assert plain == by_rows


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(
            st.one_of(
                st.floats(allow_nan=False).map(repr),
                st.integers(-(10**20), 10**20).map(str),
                st.text(alphabet='0123456789.eE+-, "\t\r\nx_', max_size=6),
                st.sampled_from(['"1"', '"1"2', '1"2"', '"a,b"', '"a""b"', '"a\nb"', ' "a"', '"a" ', '""', '"']),
            ),
            min_size=3,
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.sampled_from([30, csv_table.ARROW_BLOCK_BYTES]),
)
def test_parsers_agree_on_any_text(tmp_path, monkeypatch, rows, separator, newline, header, block):
    monkeypatch.setattr(csv_table, "ARROW_BLOCK_BYTES", block)
    lines = [["a", "b", "label"]] * header + rows
    path = tmp_path / "table.csv"
    path.write_bytes(newline.join(separator.join(cells) for cells in lines).encode())
    plain, by_rows, _ = both(path, monkeypatch)
    assert plain == by_rows


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_many_blocks(ending, pack, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_table, "ARROW_BLOCK_BYTES", 600)
    monkeypatch.setattr(csv_table, "CELLS_PER_BLOCK", 300)
    rng = np.random.default_rng(0)
    text = HEAD + "".join(
        f"{a!r},{b!r},{'x' * (i % 9 + 1)}\r\n" for i, (a, b) in enumerate(rng.normal(size=(999, 2)).tolist())
    )
    path = tmp_path / f"table.csv{ending}"
    path.write_bytes(pack(text.encode()))
    plain, by_rows, used = both(path, monkeypatch)
    assert used
    assert plain == by_rows
    assert plain[0] == (999, 2)
    path.write_bytes(pack(text.encode())[:-2000])
    plain, by_rows, _ = both(path, monkeypatch)
    assert plain == by_rows
    assert not ending or "truncated or damaged" in plain[1]


def test_row_larger_than_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_table, "ARROW_BLOCK_BYTES", 200)
    path = tmp_path / "table.csv"
    path.write_text(f"a,b,label\n1,2,x\n3,4,{'y' * 500}\n")
    plain, by_rows, _ = both(path, monkeypatch)
    assert plain == by_rows


def test_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "table.csv"
    path.write_text(PLAIN["a header"])
    plain, by_rows, used = both(path, monkeypatch)
    assert not used
    assert plain == by_rows
