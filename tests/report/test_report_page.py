"""The report is one file that loads nothing, escapes what users write, and shows who is lost."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from gadget_svm.report import write_report
from gadget_svm.report.page import cards, network_caption, nodes_caption, nodes_table, tiles
from gadget_svm.topologies import build
from support.report_runs import records, summary, summary_with_losses

MARKUP = "<script>alert('x')</script>&\"cats\""


class Page(HTMLParser):
    """What a browser loads, and the cells it shows."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.tags, self.cells, self.in_cell = [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "srcset", "data") and value]
        self.in_cell = tag == "td"
        if self.in_cell:
            self.cells.append("")

    def handle_endtag(self, tag):  # noqa: ARG002
        self.in_cell = False

    def handle_data(self, data):
        if self.in_cell:
            self.cells[-1] += data


def write(folder, run, history, n_nodes, **more):
    network = more.pop("network", build("ring", n_nodes))
    return write_report(folder / "report.html", summary=run, history=history, network=network, **more).read_text()


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    return write(tmp_path_factory.mktemp("report") / "new", summary(10), records(), 10)


def test_one_file_loads_nothing(ten):
    page = Page(ten)
    assert page.loaded == []
    assert not {"link", "iframe", "img", "object"} & set(page.tags)
    css = re.search(r"<style>(.*?)</style>", ten, re.S).group(1)
    assert "url(" not in css
    assert "@import" not in css


def test_plotly_is_inside_once(ten):
    assert 3_000_000 < len(ten) < 8_000_000
    assert ten.count("plotly.js v") == 1
    assert ten.count("Plotly.newPlot(") >= 5


def test_nodes_and_parameters_are_in_tables(ten):
    cells = Page(ten).cells
    assert {"average", "0.1", "pegasos", *map(str, range(10))} <= set(cells)


def test_curves_can_be_switched(ten):
    assert all(f'value="{axis}"' in ten for axis in ("iteration", "seconds", "messages"))


def test_text_of_users_is_escaped(tmp_path):
    network = replace(build("ring", 3), name=MARKUP)
    text = write(tmp_path, summary(3, MARKUP), records(), 3, network=network, title=f"A title with {MARKUP}")
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;cats&quot;") >= 5


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_missing_numbers_do_not_break_figures(tmp_path, bad):
    history = records() + records(1, objective=bad, worst_objective=bad, disagreement=bad, seconds=bad, error=bad)
    text = write(tmp_path, summary(3, train_objective=bad, test_accuracy=bad), history, 3)
    figures = re.findall(r'Plotly\.newPlot\(\s*"[^"]+",\s*(\[.*?\]),\s*\{', text, re.S)
    assert len(figures) >= 5
    for figure in figures:
        assert not re.search(r"\b(NaN|Infinity)\b", figure)


def test_empty_history_and_one_node(tmp_path):
    assert "Objective" in write(tmp_path, summary(1), [], 1)


def test_many_nodes_are_a_histogram_and_a_folded_table(tmp_path):
    text = write(tmp_path, summary(301), records(), 301)
    assert "more than 300 nodes" in text
    assert "<summary>301 nodes</summary>" in text
    assert "300" in Page(text).cells, "the last node is in the table"


def test_average_counts_rows_of_live_nodes():
    run = summary_with_losses()
    assert [node.get("lost") for node in run["nodes"]] == [None, None, 40, 40, None, None]
    assert run["average"]["rows"] == 28
    assert Page(nodes_table(run)).cells[-5:-3] == ["average", "28"]
    assert Page(nodes_table(summary(6))).cells[-5:-3] == ["average", "42"]
    assert "not in the average" in nodes_caption(run)
    assert "lost" not in nodes_caption(summary(6)).lower()


@pytest.mark.parametrize("evaluated", [2, 5])
def test_rows_of_live_nodes_are_unknown_in_a_sample(evaluated):
    run = summary_with_losses(evaluated=evaluated)
    assert run["average"]["rows"] is None
    assert Page(nodes_table(run)).cells[-5:-3] == ["average", "-"]


def test_lost_node_has_no_figures():
    cells = Page(nodes_table(summary_with_losses())).cells
    at = cells.index("2, lost at iteration 40")
    assert cells[at : at + 5] == ["2, lost at iteration 40", "7", "-", "-", "-"]
    assert [cell for cell in cells if "lost" in cell] == ["2, lost at iteration 40", "3, lost at iteration 40"]
    assert "11.10 %" not in cells


def test_worst_node_is_live():
    assert "<b>80.00 %</b><span>test accuracy, worst node</span>" in tiles(summary_with_losses())


def test_captions_explain_lost_rows():
    """Actors that read their own shards take the rows along when they are lost; the driver has those it dealt out."""
    network, words = build("ring", 6), "rows of lost nodes are left out"
    assert cards(summary_with_losses(train_objective=None), records(), network).count(words) == 2
    assert words not in cards(summary_with_losses(), records(), network)
    assert words not in cards(summary(6, train_objective=None), records(), network)
    assert "Grey nodes are lost" in network_caption(summary_with_losses(), network)
    assert "rey" not in network_caption(summary(6), network)
