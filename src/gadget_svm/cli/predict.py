"""The options of `gadget predict`; `predict_run` does the work."""

from dataclasses import dataclass
from typing import Annotated

import typer

from gadget_svm.cli.options import DataDir, Format, Label, Positive, command_for, option_field


@dataclass(frozen=True)
class PredictRequest:
    """The arguments of one prediction as typed."""

    model: Annotated[str, typer.Argument(help="A model file, or the folder of 'gadget train --out'; a path or URI.")]
    data: Annotated[str, typer.Argument(help="A file, - for stdin, or a named data set: its test rows are used.")]
    node: str | None = option_field("--node", help="Use the model of this node, by its site's name or its number.")
    out: str | None = option_field("--out", "-o", help="A file for the predictions, one per line; - is stdout.")
    label: Label = None
    format: Format = None
    no_label: bool = option_field(
        "--no-label", default=False, help="No column is a label. Default: column names decide."
    )
    positive: Positive = None
    zero_based: bool | None = option_field(
        "--zero-based/--one-based",
        help="Whether ids of svmlight start at 0 or 1. Default: 0 if an id 0 occurs, else 1.",
    )
    data_dir: DataDir = None
    json: bool = option_field("--json", default=False, help="Print accuracy and, without --out, predictions as JSON.")


@command_for(PredictRequest)
def predict(request: PredictRequest) -> None:
    """Predict with a trained model and, where rows have labels, print the accuracy."""
    from gadget_svm.cli.predict_run import run_prediction

    run_prediction(request)
