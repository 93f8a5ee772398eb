"""Curves of a run's history: objective, error, disagreement, messages. Owns axes and which of them are logarithmic.

Every figure carries all its horizontal axes in ``layout.meta``, so that the page can switch between them.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gadget_svm.core.extras import require
from gadget_svm.report.formatting import finite

Record = dict[str, Any]
Values = list[float | None]

BLUE, ORANGE, GREEN = "#3b82f6", "#f97316", "#10b981"
AXES = {"iteration": "iterations", "seconds": "seconds of training", "messages": "messages sent"}
LOG_AXIS_RATIO = 50.0
"""A quantity is drawn on a logarithmic axis if its largest value is at least this multiple of its smallest."""
REFERENCE = "one machine"
STYLE: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("figure.json").read_text(encoding="utf-8"))
"""The style of figures and of the nodes of a network, as plotly names its properties."""


def require_plotly() -> Any:
    """Return plotly's graph objects; if plotly is missing, the error says what to install."""
    return require("plotly.graph_objects", "a report needs", "report")


def column(history: Sequence[Record], name: str, factor: float = 1.0) -> Values:
    """Return one quantity over the history. None, where it is missing or not finite, leaves a gap in the curve."""
    return [finite(record.get(name), factor) for record in history]


def axis_type(*columns: Values) -> str:
    """Return "log" if all values are positive and far apart, else "linear"."""
    values = [value for values in columns for value in values if value is not None]
    return "log" if values and min(values) > 0 and max(values) > LOG_AXIS_RATIO * min(values) else "linear"


def styled_figure() -> Any:
    """Return an empty figure in the style of the page: transparent, a legend above, titles no larger than the text."""
    return require_plotly().Figure(layout=STYLE["layout"])


def curve_figure(history: Sequence[Record], curves: dict[str, tuple[Values, str]], title: str, suffix: str = "") -> Any:
    """Draw named curves in their colours, at first against iterations; level lines of a reference are dashed."""
    figure = styled_figure()
    axes = {name: {"x": (x := column(history, name)), "title": words, "type": axis_type(x)}
            for name, words in AXES.items()}  # fmt: skip
    for name, (values, colour) in curves.items():
        dashed = name.startswith(REFERENCE)
        figure.add_scatter(
            x=axes["iteration"]["x"], y=values, name=name, mode="lines" if dashed else "lines+markers",
            line={"color": colour, "width": 2.5, "dash": "dash" if dashed else None}, marker={"size": 5},
        )  # fmt: skip
    kind = axis_type(*(values for values, _ in curves.values()))
    return figure.update_layout(
        meta={"axes": axes},
        xaxis={"title": {"text": AXES["iteration"]}, "type": axes["iteration"]["type"]},
        yaxis={"title": {"text": title}, "type": kind, "ticksuffix": suffix},
    )


def objective_figure(history: Sequence[Record], reference: dict[str, Any] | None) -> Any:
    """Draw the objective of the average model and of the worst node, and the level of a reference."""
    curves = {"network average": (column(history, "objective"), BLUE)}
    for name, words in (("worst_objective", "worst node"), ("worst_sampled_objective", "worst of 200 nodes")):
        if any(name in record for record in history):
            curves[words] = (column(history, name), ORANGE)
    if (level := finite((reference or {}).get("train_objective"))) is not None:
        curves[REFERENCE] = ([level] * len(history), GREEN)
    return curve_figure(history, curves, "objective")


def error_figure(history: Sequence[Record], reference: dict[str, Any] | None) -> Any:
    """Draw the share of wrong answers of the average model."""
    curves = {"training rows": (column(history, "error", 100), BLUE)}
    test = column(history, "test_error", 100)
    if any(value is not None for value in test):
        curves["test rows"] = (test, ORANGE)
    if (right := finite((reference or {}).get("test_accuracy"))) is not None:
        curves[f"{REFERENCE}, test rows"] = ([100 * (1 - right)] * len(history), GREEN)
    return curve_figure(history, curves, "wrong answers", " %")


def traffic_figure(history: Sequence[Record]) -> Any:
    """Draw messages on the left axis and bytes on the right: two scales of one growth."""
    figure = curve_figure(history, {"messages": (column(history, "messages"), BLUE)}, "messages")
    nbytes = column(history, "bytes")
    line = {"color": ORANGE, "width": 2.5, "dash": "dot"}
    figure.add_scatter(x=column(history, "iteration"), y=nbytes, name="bytes", yaxis="y2", mode="lines", line=line)
    right = {"overlaying": "y", "side": "right", "showgrid": False, "type": axis_type(nbytes)}
    return figure.update_layout(yaxis2=STYLE["layout"]["yaxis"] | right, yaxis2_title_text="bytes")
