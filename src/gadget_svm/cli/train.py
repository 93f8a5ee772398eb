"""`gadget train`: its options, and the order of its work. All checks are made before training starts."""

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gadget_svm.cli.errors import ROWS_LOST, TERMINATED, print_error
from gadget_svm.cli.options import DATA, DataDir, Format, Label, Positive, command_for, option_field, seed
from gadget_svm.cli.shard_names import expand_ranges

if TYPE_CHECKING:
    from rich.console import Console

    from gadget_svm.cli.progress import Interruption
    from gadget_svm.cli.summary import Summary
    from gadget_svm.cli.train_data import TrainingRows
    from gadget_svm.data.uris import Location
    from gadget_svm.estimator import GadgetSVC

_data, _network, _learning = (partial(option_field, panel=panel) for panel in (DATA, "Network", "Algorithm"))
_where, _stop = partial(option_field, panel="Where it runs"), partial(option_field, panel="When to stop")
_faults, _output = partial(option_field, panel="Faults"), partial(option_field, panel="Output")
MAX_NODES_IN_MESSAGE = 5
Reference = Callable[["TrainingRows", "GadgetSVC"], dict[str, Any]]
"""Returns the scores of another method on the same rows."""


@dataclass(frozen=True)
class TrainRequest:
    """The arguments of one training as typed; None where an option was not given.

    A field has the name of the estimator's or algorithm's parameter that it sets, where there is one.
    """

    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA",
            callback=expand_ranges,
            help="A named data set (see: gadget data list) or a file: svmlight, CSV, Parquet, npz; - is stdin. "
            "Several files are shards, one per node; with --engine ray the actors read them. Files may be URIs "
            "(s3://, https://, ...), and part-{0..9}.svm means ten files.",
        ),
    ]
    test: str | None = _data("--test", metavar="PATH", help="A file or URI with test rows. Named data sets have some.")
    positive: Positive = None
    label: Label = None
    format: Format = None
    data_dir: DataDir = None
    partition: str = _data(
        "--partition", default="even", help="How rows are divided: even, sorted, label-skew:0.1 or sizes:1,2,3."
    )
    scale: str = _data(
        "--scale",
        default="none",
        help="Scale features by the training rows: none, deviation or max-abs. The saved model takes unscaled rows.",
    )
    n_nodes: int | None = _network("--nodes", "-n", help="Number of nodes. Default: min(10, rows), or one per shard.")
    topology: str = _network(
        "--topology", "-t", default="random-regular",
        help="The communication graph, such as ring, k-out:20 or random-regular:4.",
    )  # fmt: skip
    lam: float | None = _learning(
        "--lam", "--lambda", help="The regularisation weight. Default: the paper's for the data, else 1e-4."
    )
    C: float | None = _learning("--C", help="The weight of the losses, as LinearSVC's C; replaces --lam.")
    multi_class: str = _learning(
        "--multi-class",
        default="ovr",
        help="For several classes: ovr, one output per class, or ovo, one per pair (for classes that overlap).",
    )
    algorithm: str = _learning(
        "--algorithm", "-a", default="auto",
        help="auto: pdmm, or gadget on directed graphs. gadget: the paper's Algorithm 2 with one exchange per "
        "iteration; gadget-as-printed: with Push-Sum restarted in each. Also asgd, mom-dsvm, gadget-2ps.",
    )  # fmt: skip
    gossip: str | None = _learning(
        "--gossip", help="The gossip protocol: push-sum, diffusion, pairwise or running-sum."
    )
    gossip_rounds: str | None = _learning("--rounds", help="Gossip rounds per iteration: a number, mix or diameter.")
    local_steps: int | None = _learning("--local-steps", help="Local steps between two gossip exchanges.")
    batch_size: int | None = _learning("--batch-size", help="Examples per local step.")
    average: bool | None = _learning(
        "--average/--last", help="Return the averaged iterates (default) or the last ones."
    )
    project: bool | None = _learning(
        "--project/--no-project", help="Whether to project into the ball, steps (f) and (h)."
    )
    fit_intercept: bool | None = _learning(
        "--intercept/--no-intercept",
        help="Learn an intercept. Default: no for the paper's data sets (the paper has none), yes for other data.",
    )
    settings: list[str] | None = _learning(
        "--set", metavar="NAME=VALUE", help="Any other parameter of the algorithm. Repeatable."
    )
    random_state: int = _learning("--seed", default=0, check=seed, help="The same seed gives the same bits.")
    topology_seed: int | None = _network("--graph-seed", check=seed, help="Seed of a random graph. Default: --seed.")
    partition_seed: int | None = _data("--partition-seed", check=seed, help="Seed of the division. Default: --seed.")
    n_jobs: int | None = _learning(
        "--threads", "-j", "--jobs", help="Number of threads; the result is the same. Default: all."
    )
    engine: str = _where(
        "--engine", default="local", help="local: in this process. ray: on a Ray cluster, with the same result."
    )
    engine_options: list[str] | None = _where(
        "--engine-option",
        metavar="NAME=VALUE",
        help="For ray: address, actors, num_cpus, timeout, checkpoint_dir, resume and others, see "
        "docs/reference/ray.md; for local: blocks. Repeatable.",
    )
    address: str | None = _where("--address", help="For ray: the cluster, such as auto or 10.0.0.5:6379.")
    actors: int | None = _where("--actors", help="For ray: the number of actors that share the nodes.")
    checkpoint_dir: str | None = _where("--checkpoint-dir", metavar="DIR", help="For ray: a folder for checkpoints.")
    resume: str | None = _where(
        "--resume",
        metavar="auto|true|false",
        help="For ray, with --checkpoint-dir: auto continues from a checkpoint if there is one, true requires one.",
    )
    require_all_rows: bool = _where(
        "--require-all-rows",
        default=False,
        help="Exit with code 3 if nodes were lost with their rows. Default: a model of the other rows is a success.",
    )
    stopping: str | None = _stop(
        "--stopping",
        help="gap: until the nodes certify that the objective is at most --tol (0.01) above the optimum; the default "
        "with pdmm and mom-dsvm. Or until this no longer changes: average (default), weights (the paper's rule), "
        "objective (default with --last). Or none.",
    )
    tol: float | None = _stop("--tol", help="Tolerance of the stopping rule. Default: the rule's own.")
    max_iter: int = _stop("--max-iter", default=10_000, help="Maximum number of iterations.")
    max_seconds: float | None = _stop("--max-seconds", help="Maximum training time.")
    drop: float | None = _faults("--drop", metavar="P", help="Each message is lost with this probability.")
    faults: list[str] | None = _faults(
        "--fault",
        metavar="NAME=VALUE",
        help="loss=P, bounce=P, delay=N, partition=T, churn=P, slow=N, async=P; several values as JSON: "
        """'crash={"nodes": [3], "at": 100}'. Repeatable.""",
    )
    json: bool = _output("--json", default=False, help="Print one JSON object on stdout, and nothing else.")
    out: str | None = _output(
        "--out", "-o", metavar="DIR", help="A folder or URI for model.safetensors, history.jsonl, summary.json."
    )
    report: str | None = _output("--report", metavar="PATH", help="An HTML report, one file that opens offline.")
    record_every: int | None = _output(
        "--record-every", help="Iterations between records. Default: growing intervals; 0: only the last."
    )
    quiet: bool = _output("--quiet", "-q", default=False, help="Show no progress and no remarks.")

    @property
    def shards(self) -> list[str]:
        """The files of the nodes, one each; empty if one file or data set is divided among them."""
        from gadget_svm.data.uris import scheme_of

        divided = len(self.data) == 1 and (not scheme_of(self.data[0]) or self.engine != "ray")
        return [] if divided else self.data

    @property
    def name(self) -> str:
        """The name of the data in messages."""
        return f"{len(self.shards):,} shard{'s' * (len(self.shards) > 1)}" if self.shards else self.data[0]

    @property
    def typed_faults(self) -> list[tuple[str, str]]:
        """All faults: the option as typed, and its meaning. --drop P is the fault loss=P, applied first."""
        dropped = [] if self.drop is None else [(f"--drop {self.drop:g}", f"loss={self.drop}")]
        return dropped + [(f"--fault {text}", text) for text in self.faults or []]

    @property
    def fault_specs(self) -> list[str]:
        """All faults as the estimator takes them."""
        return [spec for _, spec in self.typed_faults]


def place(given: str | None) -> "Location | None":
    """Return a path or URI as the package's functions take it; None for an option that was not given."""
    from gadget_svm.data.uris import parse_location

    return None if given is None else parse_location(given)


@command_for(TrainRequest)
def train(request: TrainRequest) -> None:
    """Train a network of nodes. Ctrl-C and SIGTERM stop it cleanly and keep the models so far (exit codes 130, 143)."""
    raise typer.Exit(run_training(request))


def run_training(request: TrainRequest, reference: Reference | None = None) -> int:
    """Train, write and show; return the exit code. ``reference`` measures another method on the same rows."""
    from rich.console import Console

    from gadget_svm.cli.output import check_targets, from_stdin
    from gadget_svm.cli.progress import Interruption
    from gadget_svm.cli.train_model import check_request

    stderr = Console(stderr=True, quiet=request.quiet)
    read = [place(path) for path in (*request.data, request.test)]
    check_targets(place(request.out), place(request.report), read)
    check_request(request)
    with Interruption() as interruption:
        interruption.stops_cleanly = False  # nothing is learned yet
        with (
            warnings_only_if(not request.quiet),
            from_stdin(request.name) as source,
            redirect_stdout(sys.stderr),  # Ray prints lost actors; stdout is for results
        ):
            model, summary = _train(request, source, stderr, reference, interruption)
        _show(request, model, summary, stderr, interruption.exit_code)  # also if the first signal arrives only now
    return interruption.exit_code or check_lost_rows(request, summary)


@contextmanager
def warnings_only_if(wanted: bool) -> Iterator[None]:
    """Silence the package's log messages about data and compilation unless they are wanted."""
    log = logging.getLogger("gadget_svm")
    level = log.level
    log.setLevel(level if wanted else logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _train(
    request: TrainRequest, source: str, stderr: "Console", reference: Reference | None, interruption: "Interruption"
) -> "tuple[GadgetSVC, Summary]":
    """Load, train, save, evaluate: the model is on disk before anything is measured."""
    from gadget_svm.cli.output import MODEL, save_history
    from gadget_svm.cli.summary import plain, summarise
    from gadget_svm.cli.train_data import rows_of
    from gadget_svm.cli.train_model import make_model
    from gadget_svm.data.uris import join
    from gadget_svm.estimator import save_model

    rows = rows_of(request, source, stderr)
    model = make_model(request, rows)
    _fit(model, rows, request, stderr, interruption)
    if (out := place(request.out)) is not None:
        save_model(rows.savable(model), join(out, MODEL))
        save_history(out, plain(model.history_))
    summary = summarise(request, rows, model)
    if reference is not None:
        summary["reference"] = plain(reference(rows, model))
    return model, summary


def _fit(
    model: "GadgetSVC", rows: "TrainingRows", request: TrainRequest, stderr: "Console", interruption: "Interruption"
) -> None:
    """Train with progress; Ctrl-C and SIGTERM end it after the current iterations.

    Until the first iteration a signal aborts: while a start waits for resources of a cluster, it does not check for
    signals.
    """
    from sklearn.exceptions import ConvergenceWarning

    from gadget_svm.cli.progress import progress_meter
    from gadget_svm.simulation.observers import Observer, View

    class Watch(Observer):
        def on_record(self, record: dict[str, Any], view: View) -> None:
            error = rows.evaluation.test_error(view.average)
            if error is not None:
                record["test_error"] = error
            progress.record(record)

        def should_stop(self) -> bool:
            interruption.stops_cleanly = True
            progress.tick()
            return interruption.requested

    with (
        progress_meter(stderr, model.max_iter, model.max_seconds, request.quiet) as progress,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)  # the summary says it below the table
        rows.fit(model.set_params(observers=[Watch()]), lambda: _announce(rows, model, stderr))


def _announce(rows: "TrainingRows", model: "GadgetSVC", stderr: "Console") -> None:
    """Print the size of the data and the regularisation before training starts."""
    from gadget_svm.cli.output import say
    from gadget_svm.faults import make_faults

    about = rows.about
    size = f"{about['rows']:,} rows, {about['features']:,} features"
    regularisation = f"lam {model.lam:g}" if model.C is None else f"C {model.C:g}"
    say(stderr, f"{about['name']}: {size}, {regularisation} ({about['note']})")
    if model.algorithm.get_params().get("gossip") == "auto" and any(f.loses for f in make_faults(model.faults)):
        say(
            stderr,
            "Messages get lost, so the nodes gossip by running sums, which recover from losses (--gossip push-sum "
            "uses the paper's protocol).",
        )


def _show(request: TrainRequest, model: "GadgetSVC", summary: "Summary", stderr: "Console", exit_code: int) -> None:
    """Write summary and report; print JSON or a table; say where the files are."""
    from rich.console import Console

    from gadget_svm.cli.output import MODEL, save_summary, say, show_training
    from gadget_svm.cli.summary import plain
    from gadget_svm.data.uris import display_name, join

    out, report, history = place(request.out), place(request.report), plain(model.history_)
    if out is not None:
        save_summary(out, summary)
    if report is not None:
        from gadget_svm.report import write_report

        write_report(report, summary=summary, history=history, network=model.network_)
    if request.json:
        print(json.dumps({**summary, "history": history}, allow_nan=False))
    else:
        show_training(Console(), summary, history)
    model_file = None if out is None else display_name(join(out, MODEL))
    if model.stopped_by_ == "interrupted":
        what = "terminated" if exit_code == TERMINATED else "interrupted"
        kept = f"kept in {model_file}" if model_file else "not kept, as no --out DIR was given"
        say(stderr, f"{what} at iteration {model.n_iter_:,}: the models so far are {kept}")
    elif model_file:
        say(stderr, f"The model is in {model_file}.")
    if report is not None:
        say(stderr, f"The report is {display_name(report)}.")


def check_lost_rows(request: TrainRequest, summary: "Summary") -> int:
    """Return the exit code 3 and say why if --require-all-rows was given and nodes were lost with their rows."""
    from gadget_svm.report.lost_nodes import lost_nodes

    lost = lost_nodes(summary["events"])
    if not request.require_all_rows or not lost:
        return 0
    nodes = ", ".join(map(str, sorted(lost)[:MAX_NODES_IN_MESSAGE])) + ", ..." * (len(lost) > MAX_NODES_IN_MESSAGE)
    print_error(
        f"--require-all-rows: the model lacks the rows of {len(lost):,} nodes that were lost and did not come back "
        f"({nodes}). Repeat the command with --resume auto --checkpoint-dir DIR, or use --engine-option restart=true"
    )
    return ROWS_LOST
