"""Curves and the picture of the network."""

import sys

import pytest

from gadget_svm.report import require_plotly
from gadget_svm.report.figures import (
    axis_type,
    column,
    error_figure,
    histogram,
    network_figure,
    objective_figure,
    quality,
)
from gadget_svm.topologies import build
from support.report_runs import records, summary, summary_with_losses


def test_curves_carry_all_axes():
    axes = objective_figure(records(), None).layout.meta["axes"]
    assert axes["seconds"]["x"] == [record["seconds"] for record in records()]
    assert axes["iteration"]["type"] == "log"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_missing_number_leaves_a_gap(bad):
    assert column(records(1, objective=bad), "objective") == [None]


@pytest.mark.parametrize(
    ("figure", "reference", "level"),
    [(objective_figure, {"train_objective": 0.01}, 0.01), (error_figure, {"test_accuracy": 0.75}, 25.0)],
)
def test_reference_is_a_dashed_level_line(figure, reference, level):
    line = figure(records(), reference).data[-1]
    assert set(line.y) == {level}
    assert (line.mode, line.line.dash) == ("lines", "dash")
    assert len(figure(records(), None).data) == 2


@pytest.mark.parametrize(
    ("values", "kind"), [([1.0, 100.0], "log"), ([0.0, 100.0], "linear"), ([1.0, 2.0], "linear"), ([None], "linear")]
)
def test_axis_type(values, kind):
    assert axis_type(values) == kind


def test_missing_plotly_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(ImportError, match=r"pip install 'gadget-svm\[report\]'"):
        require_plotly()


def test_every_node_is_drawn():
    drawn = network_figure(build("ring", 10), summary(10)["nodes"]).data[-1]
    assert list(drawn.text) == [str(i) for i in range(10)]
    assert len(drawn.x) == 10
    assert "sends to 1, 9" in drawn.hovertext[0]


def test_many_nodes_are_a_histogram():
    nodes = summary(301)["nodes"]
    assert network_figure(build("ring", 301), nodes).data[0].type == "histogram"
    assert len(histogram(nodes).data[0].x) == 301


def test_nodes_are_compared_by_what_they_differ_in():
    assert quality(summary(3)["nodes"])[0].startswith("test accuracy")
    assert quality(summary(3, test_accuracy=0.9)["nodes"])[0] == "objective"
    assert quality(summary(3, test_accuracy=None)["nodes"]) == ("objective", [0.5, 1.5, 2.5])
    remote = summary(3, test_accuracy=None, train_objective=None)["nodes"]
    assert quality(remote) == ("number of rows", [7.0] * 3)
    assert quality(summary(3, test_accuracy=0.9, train_objective=None)["nodes"]) == ("test accuracy, %", [90.0] * 3)


@pytest.mark.parametrize(
    "known", [{"test_accuracy": 0.9}, {"test_accuracy": 0.9, "train_objective": None},
              {"test_accuracy": None, "train_objective": None}]
)  # fmt: skip
def test_lost_nodes_do_not_change_the_quality(known):
    name, values = quality(summary_with_losses(**known)["nodes"])
    same, all_values = quality(summary(6, **known)["nodes"])
    assert name == same
    assert values == [None if i in (2, 3) else value for i, value in enumerate(all_values)]


def test_lost_node_is_grey():
    network, run = build("ring", 6), summary_with_losses()
    drawn = network_figure(network, run["nodes"]).data[-1]
    assert [value != value for value in drawn.marker.color] == [False, False, True, True, False, False], "NaN is grey"
    assert drawn.marker.cmin > 79, "the scale is that of the live nodes"
    assert "<b>node 2, lost at iteration 40</b><br>7 rows<br>sends to" in drawn.hovertext[2]
    assert "lost" not in drawn.hovertext[1] + drawn.hovertext[5]
    assert len(histogram(run["nodes"]).data[0].x) == 4
