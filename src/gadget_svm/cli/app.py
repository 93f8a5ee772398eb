"""The commands and their arguments. Owns the names a user types; each command imports its work when it is called."""

from pathlib import Path
from typing import Annotated

import typer

from gadget_svm.cli import train_options as o
from gadget_svm.cli.certs import certs_app
from gadget_svm.cli.errors import PlainErrors
from gadget_svm.cli.peer import peer_app

HELP = "Linear support vector machines learned by gossip: every node keeps its rows and shares only weights."
app = typer.Typer(
    cls=PlainErrors,
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="The named data sets: what there is, where it is, how to get it.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(certs_app, name="certs")
app.add_typer(peer_app, name="peer")

DatasetName = Annotated[str, typer.Argument(metavar="NAME", help="A named data set, such as adult.")]


def _show_version(asked: bool) -> None:
    if asked:
        from gadget_svm import __version__

        typer.echo(f"gadget-svm {__version__}")
        raise typer.Exit


@app.callback()
def gadget(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Nothing of its own: the commands do the work."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(callback=o.local_path, help="The folder for the model and report.html.")] = Path(
        "demo"
    ),
    json: o.Json = False,
) -> None:
    """Ten gossiping nodes learn to tell a handwritten 0 from all other digits."""
    from gadget_svm.cli.demo import run_demo

    raise typer.Exit(run_demo(out, json))


@app.command()
def train(
    data: o.Data,
    test: o.Test = None,
    positive: o.Positive = None,
    label: o.Label = None,
    format: o.Format = None,
    data_dir: o.DataDir = None,
    partition: o.Partition = "even",
    scale: o.Scale = "none",
    nodes: o.Nodes = None,
    topology: o.Topology = "random-regular",
    lam: o.Lam = None,
    C: o.C = None,
    multi_class: o.MultiClass = "ovr",
    algorithm: o.Algorithm = "auto",
    gossip: o.Gossip = None,
    rounds: o.Rounds = None,
    local_steps: o.LocalSteps = None,
    batch_size: o.BatchSize = None,
    average: o.Average = None,
    project: o.Project = None,
    intercept: o.Intercept = None,
    settings: o.Settings = None,
    seed: o.Seed = 0,
    jobs: o.Jobs = None,
    engine: o.Engine = "local",
    engine_option: o.EngineOption = None,
    address: o.Address = None,
    actors: o.Actors = None,
    checkpoint_dir: o.CheckpointDir = None,
    resume: o.Resume = None,
    require_all_rows: o.RequireAllRows = False,
    stopping: o.Stopping = None,
    tol: o.Tol = None,
    max_iter: o.MaxIter = 10_000,
    max_seconds: o.MaxSeconds = None,
    drop: o.Drop = None,
    fault: o.Fault = None,
    json: o.Json = False,
    out: o.Out = None,
    report: o.Report = None,
    record_every: o.RecordEvery = None,
    quiet: o.Quiet = False,
) -> None:
    """Train a network of nodes. Ctrl-C and SIGTERM stop it cleanly and keep the models so far (exit codes 130, 143)."""
    order = dict(locals())  # every option under its own name
    from gadget_svm.cli.train import run_training
    from gadget_svm.cli.train_request import Order

    raise typer.Exit(run_training(Order.of(**order)))


@app.command()
def predict(
    model: Annotated[
        str, typer.Argument(help="A model file, or the folder that 'gadget train --out' wrote; by path or URI.")
    ],
    data: Annotated[
        str, typer.Argument(help="A file, - for stdin, or a named data set, of which the test part is taken.")
    ],
    node: Annotated[
        str | None, typer.Option(help="Answer with the model of this node, by its site's name or its number.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="A file for the predictions, one per line; - is stdout.")
    ] = None,
    label: o.Label = None,
    format: o.Format = None,
    no_label: Annotated[
        bool, typer.Option("--no-label", help="No column is a label. Default: it shows by the model's columns.")
    ] = False,
    positive: o.Positive = None,
    zero_based: Annotated[
        bool | None, typer.Option("--zero-based/--one-based", help="How an svmlight file counts. Default: it shows.")
    ] = None,
    data_dir: o.DataDir = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout: accuracy and, without --out, the predictions.")
    ] = False,
) -> None:
    """Predict with a trained model and, where rows have labels, say how many answers were right."""
    from gadget_svm.cli.predict import run_prediction

    run_prediction(model, data, node, out, label, no_label, positive, zero_based, data_dir, format, json)


@app.command()
def topology(
    name: Annotated[str, typer.Argument(help="Such as ring, torus:5x4 or random-regular:4.")],
    nodes: Annotated[int, typer.Option("--nodes", "-n", help="How many nodes.", min=1)] = 10,
    transition: Annotated[str, typer.Option(help="lazy, random-walk, metropolis or max-degree.")] = "lazy",
    gamma: Annotated[float, typer.Option(help="The relative error asked of Push-Sum.")] = 0.01,
    seed: Annotated[int, typer.Option(callback=o.whole_seed, help="Decides the graphs that are drawn.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure a network: degree, diameter, spectral gap, mixing time, rounds of Push-Sum."""
    from gadget_svm.cli.topology import show_topology

    show_topology(name, nodes, transition, gamma, seed, json)


@app.command()
def reproduce(
    what: Annotated[
        str, typer.Argument(help="table1, table2, table3, table4, figures, network, or all of them.")
    ] = "all",
    data: Annotated[
        Path | None, typer.Option("--data", callback=o.local_path, help="The folder with the paper's data sets.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Nodes of the network.", min=2)] = 10,
    trials: Annotated[int | None, typer.Option(help="Trials of each experiment (5; with --quick 1).", min=1)] = None,
    out: Annotated[
        Path, typer.Option(callback=o.local_path, help="The folder for tables, figures and the page.")
    ] = Path("results"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer trials and iterations: a look in about a minute.")
    ] = False,
    docs: Annotated[
        Path | None, typer.Option(callback=o.local_path, help="Also write the report as this Markdown file.")
    ] = None,
) -> None:
    """Regenerate the paper's evaluation beside its published numbers. Interrupted, it goes on where it stopped."""
    from gadget_svm.cli.reproduce import run_reproduction

    raise typer.Exit(run_reproduction(what, data, nodes, trials, out, quick, docs))


@data_app.command("list")
def list_data(
    data_dir: o.DataDir = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout.")] = False,
) -> None:
    """List the named data sets, and where each was found or comes from."""
    from gadget_svm.cli.data import show_list

    show_list(data_dir, json)


@data_app.command("path")
def data_path(name: DatasetName, data_dir: o.DataDir = None) -> None:
    """Print the folder that holds a named data set."""
    from gadget_svm.cli.data import show_path

    show_path(name, data_dir)


@data_app.command("fetch")
def fetch_data(name: DatasetName, data_dir: o.DataDir = None) -> None:
    """Download a named data set from its official home."""
    from gadget_svm.cli.data import fetch_named

    fetch_named(name, data_dir)
