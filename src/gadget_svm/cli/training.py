"""`gadget train`: from an order to models, files and a table. Owns the order of things: what can fail fails first."""

import json
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from sklearn.exceptions import ConvergenceWarning

from gadget_svm.cli.errors import INTERRUPTED
from gadget_svm.cli.files import MODEL, check_targets, write_history, write_summary
from gadget_svm.cli.judging import Outsider
from gadget_svm.cli.order import Order, make_model, share_out, with_nodes
from gadget_svm.cli.progress import Download, Interruption, Meter, meter
from gadget_svm.cli.results import Summary, plain, summarise
from gadget_svm.cli.shards import check_place, check_shards
from gadget_svm.cli.sources import Known, Pooled, Source, shards_of
from gadget_svm.cli.tables import say, show_training
from gadget_svm.data import Dataset, load_dataset
from gadget_svm.data.sources import ENTRIES
from gadget_svm.estimator import GadgetSVC, save_model
from gadget_svm.faults import make_faults

Reference = Callable[[Dataset, GadgetSVC, Outsider], dict[str, Any]]


@dataclass(frozen=True)
class Trained:
    """A finished training."""

    model: GadgetSVC
    history: list[dict[str, Any]]
    summary: Summary


def run_training(order: Order, reference: Reference | None = None) -> int:
    """Train as ordered; the exit code. ``reference`` says what another method makes of the same data."""
    aside = Console(stderr=True, quiet=order.quiet)
    check_targets(order)
    with redirect_stdout(sys.stderr):  # Ray, for one, prints what it has lost; what we have to say comes after
        trained = train_models(order, aside, reference)
    show(order, trained, aside)
    return INTERRUPTED if trained.model.stopped_by_ == "interrupted" else 0


def train_models(order: Order, aside: Console, reference: Reference | None) -> Trained:
    """Load, train, save, judge: the model is on disk before anything is measured."""
    source = find(order, aside)
    order = with_nodes(order, source.n_nodes)
    model = make_model(order, source)
    known = fit(model, source, aside, meter(aside, order.max_iter, order.max_seconds, order.quiet))
    history = [plain(record) for record in model.history_]
    if order.out is not None:
        save_model(model, order.out / MODEL)
        write_history(order.out, history)
    judge, rows = known.judge, known.rows(len(model.node_coef_))
    summary = summarise(order, known.about, model, judge.nodes(model, rows), judge.average(model))
    if reference is not None and known.data is not None:
        summary["reference"] = plain(reference(known.data, model, judge))
    return Trained(model, history, summary)


def find(order: Order, aside: Console) -> Source:
    """Where the rows come from."""
    if order.shards:
        check_shards(order)
        return shards_of(order)
    if order.data not in ENTRIES:
        check_place(order.data)
    data = load(order, aside)
    return Pooled(data, share_out(order, data.y))


def load(order: Order, aside: Console) -> Dataset:
    """The data, downloaded if need be."""
    chosen: dict[str, Any] = {} if order.positive is None else {"positive": order.positive}  # else the paper's
    with Download(aside, order.data) as progress:
        return load_dataset(
            order.data, test=order.test, label=order.label, data_dir=order.data_dir, progress=progress, **chosen
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


def fit(model: GadgetSVC, source: Source, aside: Console, shown: Meter) -> Known:
    """Train under observation; Ctrl-C ends it after the current leap. What was known of the rows before."""
    known: list[Known] = []

    def ready(found: Known) -> None:
        known.append(found)
        remark(found.about, model, aside)

    def observe(record: dict[str, Any], mean: Any) -> None:
        error = known[0].judge.test_error(mean)
        if error is not None:
            record["test_error"] = error
        shown.record(record)

    with Interruption() as ctrl_c, shown, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # said in words below the table
        ctrl_c.heeded = False  # nothing is learned yet, and a start that waits for room in a cluster asks nobody

        def should_stop() -> bool:
            ctrl_c.heeded = True
            shown.tick()
            return ctrl_c.asked

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
        say(aside, interrupted(order, trained.model.n_iter_))
    elif order.out is not None:
        say(aside, f"The model is in {order.out / MODEL}.")
    if order.report is not None:
        say(aside, f"The report is {order.report}.")


def interrupted(order: Order, n_iter: int) -> str:
    """What is left after Ctrl-C."""
    kept = "not kept, as no --out DIR was given" if order.out is None else f"kept in {order.out / MODEL}"
    return f"interrupted at iteration {n_iter:,}: the models so far are {kept}"
