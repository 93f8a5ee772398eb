"""`gadget demo`: the paper's algorithm on handwritten digits, and one machine that has all the data beside it."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from gadget_svm.cli.evaluation import Outsider
from gadget_svm.cli.tables import say
from gadget_svm.cli.train import run_training
from gadget_svm.cli.train_request import Order
from gadget_svm.data import Dataset
from gadget_svm.estimator import GadgetSVC
from gadget_svm.report.formatting import number, percent


def run_demo(out: Path, as_json: bool = False) -> int:
    """Train, show, write; the exit code."""
    report = out / "report.html" if find_spec("plotly") else None
    order = Order(
        data="digits",
        positive="0",
        nodes=10,
        topology="random-regular:4",
        lam=1e-3,
        algorithm="gadget",
        intercept=False,
        stopping="none",
        max_iter=200_000,
        out=out,
        report=report,
        json=as_json,
    )
    say(
        Console(stderr=as_json),
        "Ten nodes with a tenth of the images each learn to tell 0 from 1 to 9. They share weights, never images.",
    )
    code = run_training(order, one_machine)
    if report is None:
        say(Console(stderr=True), "No report was written, as plotly is not installed: pip install 'gadget-svm[report]'")
    return code


def one_machine(data: Dataset, model: GadgetSVC, judge: Outsider) -> dict[str, Any]:
    """The optimum, found by scikit-learn where all rows are in one place: the same lam, no intercept."""
    from sklearn.svm import LinearSVC

    central = LinearSVC(loss="hinge", C=1 / (model.lam * len(data.y)), fit_intercept=False, max_iter=100_000)
    central.fit(data.X, data.y)
    scores = judge.model(central.coef_, np.zeros(1), intercept=False)
    text = f"test accuracy {percent(scores['test_accuracy'])}, objective {number(scores['train_objective'])}"
    return {"name": "one machine with all the data (scikit-learn LinearSVC)", "text": text, **scores}
