"""`gadget demo`: the paper's algorithm on handwritten digits, compared with one machine that has all the data."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gadget_svm.cli.options import Json, local_path, option
from gadget_svm.cli.train import TrainRequest

if TYPE_CHECKING:
    from gadget_svm.cli.train_data import TrainingRows
    from gadget_svm.estimator import GadgetSVC

DEMO_DIR = Path("demo")


def demo(
    out: Annotated[Path, option("--out", check=local_path, help="A folder for the model and report.html.")] = DEMO_DIR,
    json: Json = False,
) -> None:
    """Ten gossiping nodes learn to tell a handwritten 0 from all other digits."""
    from gadget_svm.cli.train_run import run_training

    report = str(out / "report.html") if find_spec("plotly") else None
    request = TrainRequest(
        data=["digits"], positive="0", n_nodes=10, topology="random-regular:4", lam=1e-3, algorithm="gadget",
        fit_intercept=False, stopping="none", max_iter=200_000, out=str(out), report=report, json=json,
    )  # fmt: skip
    about = "Ten nodes with a tenth of the images each learn to tell 0 from 1 to 9. They share weights, never images."
    typer.echo(about, err=json)
    code = run_training(request, one_machine)
    if report is None:
        typer.echo("No report was written, as plotly is not installed: pip install 'gadget-svm[report]'", err=True)
    raise typer.Exit(code)


def one_machine(rows: "TrainingRows", model: "GadgetSVC") -> dict[str, Any]:
    """Return the scores of scikit-learn's LinearSVC, trained on all rows with the same lam and no intercept."""
    import numpy as np
    from sklearn.svm import LinearSVC

    from gadget_svm.report.formatting import number, percent

    C = 1 / (model.lam * len(rows.data.y))
    central = LinearSVC(loss="hinge", C=C, fit_intercept=False, max_iter=100_000).fit(rows.data.X, rows.data.y)
    scores = rows.evaluation.model(central.coef_, np.zeros(1), intercept=False)
    text = f"test accuracy {percent(scores['test_accuracy'])}, objective {number(scores['train_objective'])}"
    return {"name": "one machine with all the data (scikit-learn LinearSVC)", "text": text, **scores}
