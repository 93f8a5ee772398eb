"""The report: one file, nothing from outside, every word from outside escaped, no number that breaks it."""

import json
import re
import sys
from html.parser import HTMLParser

import pytest

from gadget_svm.report import require_plotly, write_report
from gadget_svm.report.curves import column, kind_of_axis, objective_figure
from gadget_svm.report.formatting import count, number, percent, size
from gadget_svm.report.graph import histogram, network_figure, quality
from gadget_svm.report.lost_nodes import lost_nodes, mark_lost
from gadget_svm.report.page import cards, network_caption, nodes_caption, nodes_table, tiles
from gadget_svm.topologies import build

EVIL = "<script>alert('x')</script>&\"cats\""


def records(n: int = 6, **changed: object) -> list[dict]:
    return [
        {
            "iteration": 4**i, "seconds": 0.01 * 2**i, "objective": 10.0 / 4**i, "worst_objective": 12.0 / 4**i,
            "error": 0.1, "test_error": 0.11, "disagreement": 1.0 / 2**i, "messages": 40 * 4**i, "bytes": 4000 * 4**i,
            **changed,
        }
        for i in range(n)
    ]  # fmt: skip


def summary(n_nodes: int, name: str = "toy", **node: object) -> dict:
    nodes = [
        {
            "node": i,
            "rows": 7,
            "train_objective": 0.5 + i,
            "train_accuracy": 0.9,
            "test_accuracy": 0.8 + i * 1e-4,
            **node,
        }
        for i in range(n_nodes)
    ]
    return {
        "dataset": {"name": name, "note": name, "rows": 7 * n_nodes, "features": 3, "classes": [-1, 1], "test_rows": 9},
        "parameters": {"nodes": n_nodes, "lam": 0.1, "label": None, "faults": [name], "more": {"solver": "pegasos"}},
        "nodes": nodes,
        "average": {"train_objective": 0.4, "train_accuracy": 0.9, "test_accuracy": 0.8},
        "n_iter": 1024, "converged": True, "stopped_by": "converged", "why": "converged after 1,024 iterations",
        "messages": 4096, "bytes": 409600, "seconds": 0.32, "disagreement": 0.03,
    }  # fmt: skip


class Page(HTMLParser):
    """What a browser would load, and the cells it would show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "srcset", "data") and value]
        self.in_cell = tag == "td"
        if self.in_cell:
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self.in_cell = False

    def handle_data(self, data: str) -> None:
        if self.in_cell:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "new" / "report.html"
    assert write_report(path, summary=summary(10), history=records(), network=build("ring", 10)) == path
    return path.read_text(encoding="utf-8")


def test_it_is_one_file_that_loads_nothing(ten):
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


def test_every_node_has_its_row_and_its_place_in_the_graph(ten):
    cells = Page(ten).cells
    assert all(str(i) in cells for i in range(10))
    assert "average" in cells
    drawn = network_figure(build("ring", 10), summary(10)["nodes"]).data[-1]
    assert list(drawn.text) == [str(i) for i in range(10)]
    assert len(drawn.x) == 10
    assert "sends to 1, 9" in drawn.hovertext[0]


def test_curves_can_be_seen_against_iterations_seconds_and_messages(ten):
    assert all(f'value="{axis}"' in ten for axis in ("iteration", "seconds", "messages"))
    axes = objective_figure(records(), None).layout.meta["axes"]
    assert axes["seconds"]["x"] == [record["seconds"] for record in records()]
    assert axes["iteration"]["type"] == "log"


def test_what_users_wrote_is_escaped(tmp_path):
    path = write_report(
        tmp_path / "evil.html",
        summary=summary(3, EVIL),
        history=records(),
        network=build("ring", 3),
        title=f"A title with {EVIL}",
    )
    text = path.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;cats&quot;") >= 4


def test_a_named_network_with_markup_is_escaped(tmp_path):
    from dataclasses import replace

    network = replace(build("ring", 3), name=EVIL)
    path = write_report(tmp_path / "r.html", summary=summary(3), history=records(), network=network)
    assert "<script>alert" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_numbers_that_are_none_leave_a_gap(tmp_path, bad):
    history = records() + records(1, objective=bad, worst_objective=bad, disagreement=bad, seconds=bad, error=bad)
    run = summary(3, train_objective=bad, test_accuracy=bad)
    path = write_report(tmp_path / "r.html", summary=run, history=history, network=build("ring", 3))
    text = path.read_text(encoding="utf-8")
    figures = re.findall(r'Plotly\.newPlot\(\s*"[^"]+",\s*(\[.*?\]),\s*\{', text, re.S)
    assert len(figures) >= 5
    for figure in figures:
        assert not re.search(r"\b(NaN|Infinity)\b", figure)
    assert column(history, "objective")[-1] is None


def test_an_empty_history_and_one_node_still_make_a_page(tmp_path):
    path = write_report(tmp_path / "r.html", summary=summary(1), history=[], network=build("ring", 1))
    assert "Objective" in path.read_text(encoding="utf-8")


def test_above_300_nodes_a_histogram_and_the_reason(tmp_path):
    run = summary(301)
    path = write_report(tmp_path / "r.html", summary=run, history=records(), network=build("ring", 301))
    text = path.read_text(encoding="utf-8")
    assert "more than 300 nodes" in text
    assert network_figure(build("ring", 301), run["nodes"]).data[0].type == "histogram"
    assert len(histogram(run["nodes"]).data[0].x) == 301
    assert "300" in Page(text).cells, "the last node is in the table"


def test_nodes_are_compared_by_what_they_differ_in():
    assert quality(summary(3)["nodes"])[0].startswith("test accuracy")
    assert quality(summary(3, test_accuracy=0.9)["nodes"])[0] == "objective"
    assert quality(summary(3, test_accuracy=None)["nodes"]) == ("objective", [0.5, 1.5, 2.5])
    unseen = summary(3, test_accuracy=None, train_objective=None)["nodes"]
    assert quality(unseen) == ("number of rows", [float(node["rows"]) for node in unseen])
    assert quality(summary(3, test_accuracy=0.9, train_objective=None)["nodes"]) == ("test accuracy, %", [90.0] * 3)


def test_a_reference_is_a_level_line():
    figure = objective_figure(records(), {"train_objective": 0.01})
    assert set(figure.data[-1].y) == {0.01}
    assert len(objective_figure(records(), None).data) == 2


def test_axes_are_logarithmic_only_where_they_can_be():
    assert kind_of_axis([1.0, 100.0]) == "log"
    assert kind_of_axis([0.0, 100.0]) == "linear"
    assert kind_of_axis([1.0, 2.0]) == "linear"
    assert kind_of_axis([None]) == "linear"


def test_without_plotly_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(ImportError, match=r"pip install 'gadget-svm\[report\]'"):
        require_plotly()


def test_numbers_as_words():
    assert (percent(0.5), percent(None), percent(float("nan"))) == ("50.00 %", "-", "-")
    assert (size(999), size(1.5e6), size(2e15)) == ("999 B", "1.5 MB", "2e+03 TB")
    assert (number(1 / 3), number(float("inf")), count(1234567), count(None)) == ("0.33333", "-", "1,234,567", "-")


def test_the_parameters_are_in_the_page(ten):
    cells = Page(ten).cells
    assert json.dumps(0.1) in cells
    assert "pegasos" in cells


def happened(kind: str, first: int, last: int, iteration: int) -> dict:
    return {"event": kind, "actor": first, "nodes": [first, last], "iteration": iteration, "why": "no answer"}


def bereft(n_nodes: int = 6, judged: int | None = None, **node: object) -> dict:
    """A summary of a run that lost nodes 2 and 3, whose last models were the worst, and had node 5 back."""
    run = summary(n_nodes, **node)
    run["events"] = [happened("lost", 2, 3, 40), happened("lost", 5, 5, 50), happened("restarted", 5, 5, 60)]
    for i in (2, 3):
        run["nodes"][i] |= {"test_accuracy": 0.111, "train_objective": 77.0} if not node else {}
    judged = n_nodes if judged is None else judged
    run["nodes"], run["average"] = mark_lost(
        run["nodes"][:judged], run["average"], lost_nodes(run["events"]), run["parameters"]["nodes"]
    )
    return run


def test_lost_is_who_is_not_back_at_the_end():
    away, back = happened("lost", 2, 3, 40), happened("restarted", 2, 3, 60)
    assert lost_nodes([]) == lost_nodes([away, back]) == lost_nodes([back]) == {}
    assert lost_nodes([away, happened("restart failed", 2, 3, 50), happened("lost", 0, 0, 55)]) == {2: 40, 3: 40, 0: 55}
    assert lost_nodes([away, back, happened("lost", 2, 3, 80)]) == {2: 80, 3: 80}
    assert lost_nodes([happened("checkpoint failed", 0, 5, 10)]) == {}


def test_records_without_losses_stay_as_they_are():
    run = summary(4)
    assert mark_lost(run["nodes"], run["average"], {}, 4) == (run["nodes"], run["average"])


def test_rows_of_the_average_are_those_of_nodes_that_are_here():
    run = bereft()
    assert [node.get("lost") for node in run["nodes"]] == [None, None, 40, 40, None, None]
    assert run["average"]["rows"] == 28
    assert Page(nodes_table(run)).cells[-5:-3] == ["average", "28"]
    assert Page(nodes_table(summary(6))).cells[-5:-3] == ["average", "42"]
    assert "not in the average" in nodes_caption(run)
    assert "lost" not in nodes_caption(summary(6)).lower()


@pytest.mark.parametrize("judged", [2, 5])
def test_where_not_all_are_judged_the_rows_of_those_that_are_here_are_not_known(judged):
    run = bereft(judged=judged)
    assert run["average"]["rows"] is None
    assert Page(nodes_table(run)).cells[-5:-3] == ["average", "-"]


def test_a_lost_node_is_named_so_and_has_no_figures():
    cells = Page(nodes_table(bereft())).cells
    at = cells.index("2, lost at iteration 40")
    assert cells[at : at + 5] == ["2, lost at iteration 40", "7", "-", "-", "-"]
    assert [cell for cell in cells if "lost" in cell] == ["2, lost at iteration 40", "3, lost at iteration 40"]
    assert "11.10 %" not in cells


def test_the_worst_node_is_one_that_is_here():
    assert "<b>80.00 %</b><span>test accuracy, worst node</span>" in tiles(bereft())


def test_a_lost_node_is_grey_in_the_graph_and_says_so():
    network, run = build("ring", 6), bereft()
    drawn = network_figure(network, run["nodes"]).data[-1]
    assert [value != value for value in drawn.marker.color] == [False, False, True, True, False, False], "NaN is grey"
    assert drawn.marker.cmin > 79, "the scale is that of the others"
    assert "<b>node 2, lost at iteration 40</b><br>7 rows<br>sends to" in drawn.hovertext[2]
    assert "lost" not in drawn.hovertext[1] + drawn.hovertext[5]
    assert "Grey nodes are lost" in network_caption(run, network)
    assert "rey" not in network_caption(summary(6), network)
    assert len(histogram(run["nodes"]).data[0].x) == 4


@pytest.mark.parametrize(
    "known", [{"test_accuracy": 0.9}, {"test_accuracy": 0.9, "train_objective": None},
              {"test_accuracy": None, "train_objective": None}]
)  # fmt: skip
def test_lost_nodes_do_not_change_what_nodes_are_compared_by(known):
    words, values = quality(bereft(**known)["nodes"])
    named, all_values = quality(summary(6, **known)["nodes"])
    assert words == named
    assert values == [None if i in (2, 3) else value for i, value in enumerate(all_values)]


def test_curves_say_when_rows_are_out_of_sight():
    """Actors that read their shards take the rows along when they are lost; the driver has those it dealt out."""
    network, words = build("ring", 6), "rows of nodes that are lost are left out"
    assert cards(bereft(train_objective=None), records(), network).count(words) == 2
    assert words not in cards(bereft(), records(), network)
    assert words not in cards(summary(6, train_objective=None), records(), network)
