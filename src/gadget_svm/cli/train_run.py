"""Does the work of `gadget train` in this order: check, read, train, save, measure, show.

Whatever can be checked before the training is checked before it.
"""

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from rich.console import Console
from sklearn.exceptions import ConvergenceWarning

from gadget_svm.cli import output
from gadget_svm.cli.errors import ROWS_LOST, TERMINATED, print_error
from gadget_svm.cli.progress import Interruption, show_progress
from gadget_svm.cli.signals import handled
from gadget_svm.cli.summary import Summary, plain, summarise
from gadget_svm.cli.train import TrainRequest
from gadget_svm.cli.train_data import TrainingRows, rows_of
from gadget_svm.cli.train_model import check_request, make_model
from gadget_svm.data.uris import display_name, join
from gadget_svm.estimator import GadgetSVC, save_model
from gadget_svm.report import write_report
from gadget_svm.report.formatting import lost_nodes
from gadget_svm.simulation.runtime import Observer, View

MAX_NODES_IN_MESSAGE = 5
Reference = Callable[[TrainingRows, GadgetSVC], dict[str, Any]]
"""Returns the scores of another method on the same rows."""


def run_training(request: TrainRequest, reference: Reference | None = None) -> int:
    """Train, write and show; return the exit code. ``reference`` measures another method on the same rows."""
    stderr = Console(stderr=True, quiet=request.quiet)
    out, report = output.place(request.out), output.place(request.report)
    output.check_targets(out, report, [output.place(path) for path in (*request.data, request.test)])
    check_request(request)
    interruption = Interruption()
    with handled(interruption.on_signal):
        with (
            log_level(logging.ERROR if request.quiet else logging.NOTSET),
            output.from_stdin(request.name) as source,
            redirect_stdout(sys.stderr),  # Ray prints lost actors; stdout is for results
        ):
            rows, model = rows_of(request, source, stderr), make_model(request)
            _fit(model, rows, stderr, interruption)
            history = plain(model.history_)
            if out is not None:  # the model is on disk before anything is measured
                save_model(rows.savable(model), join(out, output.MODEL))
                output.save_history(out, history)
            summary = summarise(request, rows, model)
            if reference is not None:
                summary["reference"] = plain(reference(rows, model))
        if out is not None:
            output.save_summary(out, summary)
        if report is not None:
            write_report(report, summary=summary, history=history, network=model.network_)
        if request.json:
            print(json.dumps({**summary, "history": history}, allow_nan=False))
        else:
            output.show_training(Console(), summary, history)
        _say_where(request, model, stderr, interruption.exit_code)  # also if the first signal arrives only now
    return interruption.exit_code or check_lost_rows(request, summary)


@contextmanager
def log_level(level: int) -> Iterator[None]:
    """Set the level of the package's log messages inside the block. They are about data and compilation."""
    log = logging.getLogger("gadget_svm")
    before = log.level
    log.setLevel(level)
    try:
        yield
    finally:
        log.setLevel(before)


def _fit(model: GadgetSVC, rows: TrainingRows, stderr: Console, interruption: Interruption) -> None:
    """Train with progress; Ctrl-C and SIGTERM end it after the current iterations.

    Before the first iteration a signal aborts the command, because a run that waits for room in a cluster does not
    check for signals.
    """

    class Watch(Observer):
        def on_record(self, record: dict[str, Any], view: View) -> None:
            if (test := rows.evaluation.test) is not None:
                record["test_error"] = float(test(view.average[None]).error[0])
            show(record)

        def should_stop(self) -> bool:
            interruption.stops_cleanly = True
            return interruption.requested

    with show_progress(stderr, model.max_iter, model.max_seconds) as show, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the summary says it below the table
        rows.fit(model.set_params(observers=[Watch()]), lambda: _announce(rows, model, stderr))


def _announce(rows: TrainingRows, model: GadgetSVC, stderr: Console) -> None:
    """Print the size of the data and the regularisation before training starts."""
    about = rows.about
    size = f"{about['rows']:,} rows, {about['features']:,} features"
    regularisation = f"lam {model.lam:g}" if model.C is None else f"C {model.C:g}"
    output.say(stderr, f"{about['name']}: {size}, {regularisation} ({about['note']})")


def _say_where(request: TrainRequest, model: GadgetSVC, stderr: Console, exit_code: int) -> None:
    """Say where model and report are, and whether the training was interrupted."""
    out, report = output.place(request.out), output.place(request.report)
    model_file = None if out is None else display_name(join(out, output.MODEL))
    if model.stopped_by_ == "interrupted":
        what = "terminated" if exit_code == TERMINATED else "interrupted"
        kept = f"kept in {model_file}" if model_file else "not kept, as no --out DIR was given"
        output.say(stderr, f"{what} at iteration {model.n_iter_:,}: the models so far are {kept}")
    elif model_file:
        output.say(stderr, f"The model is in {model_file}.")
    if report is not None:
        output.say(stderr, f"The report is {display_name(report)}.")


def check_lost_rows(request: TrainRequest, summary: Summary) -> int:
    """Return the exit code 3 and say why if --require-all-rows was given and nodes were lost with their rows."""
    lost = lost_nodes(summary["events"])
    if not request.require_all_rows or not lost:
        return 0
    nodes = ", ".join(map(str, sorted(lost)[:MAX_NODES_IN_MESSAGE])) + ", ..." * (len(lost) > MAX_NODES_IN_MESSAGE)
    print_error(
        f"--require-all-rows: the model lacks the rows of {len(lost):,} nodes that were lost and did not come back "
        f"({nodes}). Repeat the command with --resume auto --checkpoint-dir DIR, or use --engine-option restart=true"
    )
    return ROWS_LOST
