"""`gadget train`: from an order to models, files and a table. Owns the order of things: what can fail fails first."""

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.exceptions import ConvergenceWarning

from gadget_svm.cli.data_source import Known, Pooled, Source, shards_of
from gadget_svm.cli.errors import ROWS_LOST, TERMINATED, as_stdin, complain
from gadget_svm.cli.evaluation import Outsider
from gadget_svm.cli.output_files import MODEL, check_targets, from_stdin, write_history, write_summary
from gadget_svm.cli.progress import Download, Interruption, Meter, meter
from gadget_svm.cli.scaling import scaling_hints, unscaled
from gadget_svm.cli.shards import check_place, check_shards
from gadget_svm.cli.summary import Summary, plain, summarise
from gadget_svm.cli.tables import say, show_training
from gadget_svm.cli.train_checks import check_order
from gadget_svm.cli.train_request import Order, make_model, share_out, with_nodes
from gadget_svm.data import Dataset, load_dataset
from gadget_svm.data.catalog import ENTRIES
from gadget_svm.data.uris import display_name, join
from gadget_svm.estimator import GadgetSVC, save_model
from gadget_svm.faults import make_faults
from gadget_svm.report.lost_nodes import lost_nodes

MENTIONED = 5
"""At most so many lost nodes are named in a message."""
Reference = Callable[[Dataset, GadgetSVC, Outsider], dict[str, Any]]


@dataclass(frozen=True)
class Trained:
    """A finished training."""

    model: GadgetSVC
    history: list[dict[str, Any]]
    summary: Summary
    exit_code: int


def run_training(order: Order, reference: Reference | None = None) -> int:
    """Train as ordered; the exit code. ``reference`` says what another method makes of the same data."""
    aside = Console(stderr=True, quiet=order.quiet)
    check_targets(order)
    check_order(order)
    with Interruption() as interruption:
        interruption.heeded = False  # nothing is learned yet
        with (
            quietly(order.quiet),
            from_stdin(order.data) as place,
            redirect_stdout(sys.stderr),
        ):  # Ray, for one, prints what it has lost; what we have to say comes after
            order = replace(order, data=place)
            trained = train_models(order, aside, reference, interruption)
        show(order, trained, aside)  # whole, also if the first signal comes only now
    return trained.exit_code or interruption.exit_code or require_all_rows(order, trained.summary)


@contextmanager
def quietly(quiet: bool) -> Iterator[None]:
    """Silence remarks, about data and about compilation, if --quiet was given."""
    log = logging.getLogger("gadget_svm")
    level = log.level
    log.setLevel(logging.ERROR if quiet else level)
    try:
        yield
    finally:
        log.setLevel(level)


def train_models(order: Order, aside: Console, reference: Reference | None, interruption: Interruption) -> Trained:
    """Load, train, save, judge: the model is on disk before anything is measured."""
    source = find(order, aside)
    order = with_nodes(order, source.n_nodes)
    model = make_model(order, source)
    progress = meter(aside, order.max_iter, order.max_seconds, order.quiet)
    known = fit(model, source, aside, progress, interruption)
    history = [plain(record) for record in model.history_]
    if order.out is not None:
        save_model(with_names(unscaled(model, known.scale), known.columns), join(order.out, MODEL))
        write_history(order.out, history)
    judge, rows = known.judge, known.rows(len(model.node_coef_))
    summary = summarise(order, known.about, model, judge.nodes(model, rows), judge.average(model))
    if known.scale is None:
        summary["hints"] += scaling_hints(model, known.data)
    if reference is not None and known.data is not None:
        summary["reference"] = plain(reference(known.data, model, judge))
    return Trained(model, history, summary, interruption.exit_code if model.stopped_by_ == "interrupted" else 0)


def with_names(model: GadgetSVC, columns: tuple[str, ...] | None) -> GadgetSVC:
    """Return a copy of the model that knows its features by name, so that `gadget predict` can match columns."""
    named = copy(model)
    if columns is not None:
        named.feature_names_in_ = np.array(columns, dtype=object)
    return named


def require_all_rows(order: Order, summary: Summary) -> int:
    """Return the exit code 3 and say why if --require-all-rows was given and nodes were lost with their rows."""
    lost = lost_nodes(summary["events"])
    if not order.require_all_rows or not lost:
        return 0
    nodes = ", ".join(map(str, sorted(lost)[:MENTIONED])) + ", ..." * (len(lost) > MENTIONED)
    complain(
        f"--require-all-rows: the model lacks the rows of {len(lost):,} nodes that were lost and did not come back "
        f"({nodes}). Repeat the command with --resume auto --checkpoint-dir DIR, or use --engine-option restart=true"
    )
    return ROWS_LOST


def find(order: Order, aside: Console) -> Source:
    """Where the rows come from."""
    if order.shards:
        check_shards(order)
        return shards_of(order)
    if order.data not in ENTRIES:
        check_place(order.data)
    say(aside, f"reading {as_stdin(display_name(order.data))}")
    data = load(order, aside)
    return Pooled.of(order, data, share_out(order, data.y))


def load(order: Order, aside: Console) -> Dataset:
    """The data, downloaded if need be."""
    chosen: dict[str, Any] = {} if order.positive is None else {"positive": order.positive}  # else the paper's
    with Download(aside, order.data) as progress:
        return load_dataset(
            order.data,
            test=order.test,
            label=order.label,
            data_dir=order.data_dir,
            progress=progress,
            format=order.format,
            **chosen,
        )


def remark(about: dict[str, Any], model: GadgetSVC, aside: Console) -> None:
    """What a user would like to know before it begins."""
    lossy = any(fault.loses for fault in make_faults(model.faults))
    size = f"{about['rows']:,} rows, {about['features']:,} features"
    regularised = f"lam {model.lam:g}" if model.C is None else f"C {model.C:g}"
    say(aside, f"{about['name']}: {size}, {regularised} ({about['note']})")
    if lossy and getattr(model.algorithm, "gossip", None) == "auto":
        say(aside, "Messages get lost, so the nodes gossip by running sums, which a loss cannot corrupt "
            "(--gossip push-sum insists on the paper's form).")  # fmt: skip


def fit(model: GadgetSVC, source: Source, aside: Console, progress: Meter, interruption: Interruption) -> Known:
    """Train under observation; Ctrl-C and SIGTERM end it after the current iterations.

    Returns what was known of the rows before. Until the first iteration a signal aborts: a start that waits for room
    in a cluster does not look for signals.
    """
    known: list[Known] = []

    def ready(found: Known) -> None:
        known.append(found)
        remark(found.about, model, aside)

    def observe(record: dict[str, Any], mean: Any) -> None:
        error = known[0].judge.test_error(mean)
        if error is not None:
            record["test_error"] = error
        progress.record(record)

    with progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # said in words below the table

        def should_stop() -> bool:
            interruption.heeded = True
            progress.tick()
            return interruption.asked

        source.fit(model, ready, observe, should_stop)
    return known[0]


def show(order: Order, trained: Trained, aside: Console) -> None:
    """Everything a training leaves to see: files, report, JSON or a table."""
    summary = trained.summary
    if order.out is not None:
        write_summary(order.out, summary)
    if order.report is not None:
        from gadget_svm.report import write_report

        write_report(order.report, summary=summary, history=trained.history, network=trained.model.network_)
    if order.json:
        print(json.dumps({**summary, "history": trained.history}, allow_nan=False), file=sys.stdout)
    else:
        show_training(Console(), summary, trained.history)
    if trained.model.stopped_by_ == "interrupted":
        say(aside, interrupted(order, trained.model.n_iter_, trained.exit_code))
    elif order.out is not None:
        say(aside, f"The model is in {display_name(join(order.out, MODEL))}.")
    if order.report is not None:
        say(aside, f"The report is {display_name(order.report)}.")


def interrupted(order: Order, n_iter: int, code: int) -> str:
    """What is left after Ctrl-C or SIGTERM."""
    what = "terminated" if code == TERMINATED else "interrupted"
    kept = (
        "not kept, as no --out DIR was given"
        if order.out is None
        else f"kept in {display_name(join(order.out, MODEL))}"
    )
    return f"{what} at iteration {n_iter:,}: the models so far are {kept}"
