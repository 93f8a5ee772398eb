"""Curves of a run's history: objective, error, disagreement, messages. Owns axes and which of them are logarithmic.

Every figure carries all its horizontal axes in ``layout.meta``, so that the page can switch between them.
"""

from collections.abc import Sequence
from typing import Any

from gadget_svm.report.formatting import finite
from gadget_svm.report.needs import require_plotly

Record = dict[str, Any]
Values = list[float | None]

BLUE, ORANGE, GREEN = "#3b82f6", "#f97316", "#10b981"
AXES = {"iteration": "iterations", "seconds": "seconds of training", "messages": "messages sent"}
WIDE = 50.0
"""A quantity whose greatest value is so many times its least is drawn on a logarithmic axis."""


def column(history: Sequence[Record], name: str, factor: float = 1.0) -> Values:
    """One quantity over the history; None where it is missing or not finite, which leaves a gap in the curve."""
    return [finite(record.get(name), factor) for record in history]


def kind_of_axis(*columns: Values) -> str:
    """ "log" where all values are positive and far apart, else "linear"."""
    values = [value for values in columns for value in values if value is not None]
    return "log" if values and min(values) > 0 and max(values) > WIDE * min(values) else "linear"


def curve_figure(history: Sequence[Record], curves: dict[str, tuple[Values, str]], title: str, suffix: str = "") -> Any:
    """Named curves over the history, at first against iterations."""
    go = require_plotly()
    figure = go.Figure()
    x = column(history, "iteration")
    for name, (values, colour) in curves.items():
        line = {"color": colour, "width": 2.5}
        figure.add_scatter(x=x, y=values, name=name, mode="lines+markers", line=line, marker={"size": 5})
    axes = {name: _axis(column(history, name), words) for name, words in AXES.items()}
    kind = kind_of_axis(*(values for values, _ in curves.values()))
    figure.update_layout(
        meta={"axes": axes},
        xaxis={"title": {"text": AXES["iteration"]}, "type": axes["iteration"]["type"]},
        yaxis={"title": {"text": title}, "type": kind, "ticksuffix": suffix},
    )
    return dressed(figure)


def _axis(values: Values, words: str) -> dict[str, Any]:
    return {"x": values, "title": words, "type": kind_of_axis(values)}


def dressed(figure: Any) -> Any:
    """What all figures share: no background of their own, a legend above, titles no larger than the text."""
    axis = {"automargin": True, "gridcolor": "rgba(128,128,128,.25)", "zeroline": False, "exponentformat": "SI"}
    figure.update_layout(
        height=340,
        margin={"l": 64, "r": 24, "t": 36, "b": 56},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#6b7280"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="closest",
        xaxis={**axis, "title": {"font": {"size": 13}}},
        yaxis={**axis, "title": {"font": {"size": 13}}},
    )
    return figure


def objective_figure(history: Sequence[Record], reference: dict[str, Any] | None) -> Any:
    """The average model and the worst node; and what another method reached, as a level line."""
    curves = {"network average": (column(history, "objective"), BLUE)}
    for name, words in (("worst_objective", "worst node"), ("worst_sampled_objective", "worst of 200 nodes")):
        if any(name in record for record in history):
            curves[words] = (column(history, name), ORANGE)
    if reference is not None and (level := finite(reference.get("train_objective"))) is not None:
        curves["one machine"] = ([level] * len(history), GREEN)
    return _without_markers(curve_figure(history, curves, "objective"), "one machine")


def error_figure(history: Sequence[Record], reference: dict[str, Any] | None) -> Any:
    """Share of wrong answers of the average model."""
    curves = {"training rows": (column(history, "error", 100), BLUE)}
    test = column(history, "test_error", 100)
    if any(value is not None for value in test):
        curves["test rows"] = (test, ORANGE)
    if reference is not None and (right := finite(reference.get("test_accuracy"))) is not None:
        curves["one machine, test rows"] = ([100 * (1 - right)] * len(history), GREEN)
    figure = curve_figure(history, curves, "wrong answers", " %")
    return _without_markers(figure, "one machine, test rows")


def disagreement_figure(history: Sequence[Record]) -> Any:
    """How far the farthest node is from the average."""
    return curve_figure(history, {"farthest node": (column(history, "disagreement", 100), BLUE)}, "distance", " %")


def traffic_figure(history: Sequence[Record]) -> Any:
    """Messages on the left axis, bytes on the right: two scales of one growth."""
    figure = curve_figure(history, {"messages": (column(history, "messages"), BLUE)}, "messages")
    nbytes = column(history, "bytes")
    line = {"color": ORANGE, "width": 2.5, "dash": "dot"}
    figure.add_scatter(x=column(history, "iteration"), y=nbytes, name="bytes", yaxis="y2", mode="lines", line=line)
    right = {"overlaying": "y", "side": "right", "showgrid": False, "automargin": True, "exponentformat": "SI"}
    title = {"text": "bytes", "font": {"size": 13}}
    figure.update_layout(yaxis2={**right, "tickmode": "auto", "title": title, "type": kind_of_axis(nbytes)})
    return figure


def _without_markers(figure: Any, name: str) -> Any:
    figure.update_traces(mode="lines", line={"dash": "dash"}, selector={"name": name})
    return figure
