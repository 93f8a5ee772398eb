"""One description of a table, three formats; the statistics of a row."""

import csv
import math

import pytest

from gadget_svm.reproduction.published_numbers import PUBLISHED, SPEEDUP
from gadget_svm.reproduction.tables import TABLES, Table, accuracy, better, number, spread, summarise, text, whole


def table(*columns):
    return Table("A title", "A caption", columns)


def test_paper_deviation():
    """Table 2's caption: "estimated by sqrt(Var(Nodes) + Var(Trials))"."""
    assert spread([[1.0, 3.0], [5.0, 7.0]]) == pytest.approx(math.sqrt(1.0 + 4.0))
    assert spread([[2.0, 2.0]]) == 0.0
    assert spread([[2.0]]) is None, "one value has no deviation"


def test_lexicographic_comparison():
    """Section 4.1: "Comparison of pairs (A_1,T_1) and (A_2,T_2) will simply be lexicographic"."""

    def row(percent, seconds):
        return {"accuracy_mean": percent, "seconds_mean": seconds}

    assert better(row(90.0, 9.0), row(89.0, 1.0))
    assert not better(row(90.0, 9.0), row(90.0, 1.0))
    assert not better(row(90.01, 9.0), row(90.0, 1.0)), "a hundredth of a per cent is a tie"


def test_csv_keeps_every_digit(tmp_path):
    table(number("x", "x")).write(tmp_path, "t", [{"dataset": "d", "x": 0.1 + 0.2}])
    with (tmp_path / "t.csv").open() as file:
        assert float(next(csv.DictReader(file))["x"]) == 0.1 + 0.2


def test_the_same_cells_in_every_format():
    shown = table(text("name & co", "name"), accuracy("accuracy %", "accuracy_mean"), whole("rows", "rows"))
    rows = [{"name": "<a_b>", "accuracy_mean": 76.381, "accuracy_sd": 0.5, "majority": 76.377, "rows": 12345}]
    assert shown.cells(rows) == [["<a_b>", "76.38* ± 0.50", "12,345"]]
    assert shown.markdown(rows).splitlines()[1:] == ["| :--- | ---: | ---: |", r"| <a_b> | 76.38\* ± 0.50 | 12,345 |"]
    lines = shown.latex(rows).splitlines()
    assert lines[1:4] == [r"\begin{tabular}{lrr}", r"\toprule", r"name \& co & accuracy \% & rows \\"]
    assert lines[5] == r"<a\_b> & 76.38$^*$ $\pm$ 0.50 & 12,345 \\"
    assert lines[7].startswith(r"\multicolumn{3}{l}{$^*$ The share of the majority class")
    assert "multicolumn" not in shown.latex([rows[0] | {"majority": 50.0}])


def test_majority_share_is_marked():
    shown = table(accuracy("accuracy %", "accuracy_mean"))
    equal, other = ({"accuracy_mean": value, "majority": 76.377} for value in (76.38, 76.39))
    assert not shown.has_marks([other])
    assert shown.has_marks([other, equal])


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
@pytest.mark.parametrize("column", [number, whole, accuracy])
def test_missing_number_is_left_empty(column, value):
    assert table(column("A", "a")).cells([{"a": value}, {}]) == [[""], [""]]


def test_last_iterates_have_rows_of_their_own():
    result = {"own": [90.0], "whole": [91.0], "objective": [1.0], "own_last": [80.0], "whole_last": [81.0],
              "objective_last": [2.0], "seconds": [1.0], "iterations": [5], "epsilon": 0.1, "messages": 3}  # fmt: skip
    assert summarise([result])["accuracy_mean"] == 90.0
    assert summarise([result], last=True)["objective_mean"] == 2.0


def test_published_numbers():
    """A few of Tables 2, 3 and of the appendix, typed in once more."""
    assert PUBLISHED["table2", "ccat", "pegasos"] == (0.29, 0.031, 76.21, 0.04)
    assert PUBLISHED["table3", "usps", "svm-perf"] == (18.64, 22.89, 91.62, 1.90)
    assert PUBLISHED["table4", "gisette", "gadget"].accuracy == 55.43
    for name, factor in SPEEDUP.items():
        mine, central = (PUBLISHED["table4", name, method].seconds for method in ("gadget", "pegasos"))
        assert mine / central == pytest.approx(factor, abs=0.01), "distributed time over centralised time"


def test_published_deviations_stand_beside_ours(written):
    first = TABLES["table2"].cells(written.rows["table2"])[0]
    assert first[3] == "77.04 ± 0.03"
    assert first[5] == "0.08 ± 0.01"
    assert " ± " in first[2]


def test_every_caption_says_which_reading_it_shows():
    for part in ("table2", "table3", "table4", "network"):
        assert "persistent mass" in TABLES[part].title.lower() + TABLES[part].caption.lower()
    assert "as printed" in TABLES["table2"].caption.lower()
