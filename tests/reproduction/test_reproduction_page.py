"""The files of a reproduction, and the command that writes them."""

import csv
import re
import sys

import pytest
from typer.testing import CliRunner

from gadget_svm.cli.app import app
from gadget_svm.reproduction.page import write_all
from gadget_svm.reproduction.reproduce import Reproduction


@pytest.mark.parametrize("part", ["table1", "table2", "table3", "table4", "network"])
def test_tables_are_csv_and_latex(written, part):
    with (written.out / f"{part}.csv").open() as file:
        rows = list(csv.DictReader(file))
    tex = (written.out / f"{part}.tex").read_text()
    assert rows
    assert tex.count(r"\\") == len(rows) + 1, "a heading, and a line for every row"
    assert all(rule in tex for rule in (r"\toprule", r"\midrule", r"\bottomrule"))


@pytest.mark.parametrize("name", ["adult", "network"])
def test_figures_are_png_and_pdf(written, name):
    assert (written.out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (written.out / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_html_opens_offline(written):
    page, figures = re.subn(r'src="data:image/png;base64,[^"]+"', "", written.html.read_text())
    assert figures == 2
    assert "&lt;there&gt;" in page, "what is left out is listed, escaped"
    assert "http" not in page
    assert page.count("<table>") == 5
    assert "<strong>As printed</strong>" in page


def test_markdown_has_relative_figures_and_both_readings(written):
    text = (written.out / "docs" / "reproduction.md").read_text()
    assert "../figures/adult.png" in text
    assert "77.04 ± 0.03" in text
    assert "gadget (as printed)" in text
    assert "gadget (persistent mass)" in text


def test_one_part_does_not_replace_the_whole_page(small_run, tmp_path):
    (tmp_path / "reproduction.html").write_text("the whole")
    made = write_all(small_run(tmp_path), ("table1",))
    assert made["html"].name == "table1.html"
    assert (tmp_path / "reproduction.html").read_text() == "the whole"


def invoke(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


@pytest.mark.parametrize("part", ["table2", "table3"])
def test_missing_solver_is_reported_before_the_work(part, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "clarabel", None)
    result = invoke(part, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "gadget-svm[paper]" in result.output
    assert not (tmp_path / "out").exists()


def test_missing_folder_is_named(tmp_path):
    result = invoke("table1", "--data", tmp_path / "nosuch", "--out", tmp_path)
    assert result.exit_code == 2
    assert "nosuch" in result.output


def test_unknown_part_suggests_the_nearest():
    result = invoke("tabel2")
    assert result.exit_code == 2
    assert "table2" in result.output


def test_command_writes_a_table(tmp_path, monkeypatch, cancer):
    monkeypatch.setattr(Reproduction, "sets", {"adult": cancer})
    result = invoke("table1", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "table1.csv").read_text().splitlines()[1].startswith("adult,426,143,30,")
