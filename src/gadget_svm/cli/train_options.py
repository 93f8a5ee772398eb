"""The options of `gadget train`, with their help: owns words and names only, what they mean is decided in `order`."""

from pathlib import Path
from typing import Annotated

import typer

DATA, NETWORK, ALGORITHM = "Data", "Network", "Algorithm"
STOP, FAULTS, OUTPUT = "When to stop", "Faults", "Output"
ENGINE = "Where it runs"


def _option(*names: str, panel: str, help: str, metavar: str | None = None) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar)
    return found


def local_path(param: typer.CallbackParam, given: Path | None) -> Path | None:
    """Refuse a URI where only a local path can be used: it would be taken for a folder of that name."""
    from gadget_svm.data.uris import require_local_path

    name = param.opts[0] if param.opts[0].startswith("-") else "this argument"
    return (
        None if given is None else require_local_path(given, f"{name} takes a local path: mount it, or copy it first")
    )


def whole_seed(given: int) -> int:
    """Refuse a negative seed."""
    if given < 0:
        raise ValueError(f"--seed must be a whole number of at least 0, got {given}")
    return given


Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA",
        help="A named data set (see: gadget data list) or a file: svmlight, CSV, Parquet, npz; - is stdin. "
        "Several files are shards, one a node; with --engine ray the actors read them. Files may be URIs (s3://, "
        "https://, ...), and part-{0..9}.svm means ten files.",
    ),
]
Test = Annotated[
    str | None,
    _option(
        "--test", panel=DATA, metavar="PATH", help="A file or URI with test rows. Named data sets bring their own."
    ),
]
Positive = Annotated[
    str | None,
    _option("--positive", panel=DATA, help="This label becomes +1, all others -1. Default: what the paper does."),
]
Label = Annotated[str | None, _option("--label", panel=DATA, help="The label's column in a file, by name or number.")]
Format = Annotated[
    str | None,
    _option("--format", panel=DATA, help="svmlight, csv, tsv, parquet or npz. Default: by the file's ending."),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        callback=local_path,
        rich_help_panel=DATA,
        help="A folder to look for named data sets in, before all others.",
    ),
]
Partition = Annotated[
    str,
    _option("--partition", panel=DATA, help="Who gets which rows: even, sorted, label-skew:0.1 or sizes:1,2,3."),
]
Scale = Annotated[
    str,
    _option(
        "--scale",
        panel=DATA,
        help="Scale features by the training rows: none, deviation or max-abs. The saved model takes unscaled rows.",
    ),
]

Nodes = Annotated[
    int | None, _option("--nodes", "-n", panel=NETWORK, help="How many nodes. Default: min(10, rows), or one a shard.")
]
Topology = Annotated[
    str,
    _option(
        "--topology", "-t", panel=NETWORK, help="Who gossips with whom, such as ring, k-out:20 or random-regular:4."
    ),
]

Lam = Annotated[
    float | None,
    _option(
        "--lam",
        "--lambda",
        panel=ALGORITHM,
        help="The regulariser's weight. Default: the paper's for the data, else 1e-4.",
    ),
]
C = Annotated[
    float | None,
    _option("--C", panel=ALGORITHM, help="The weight of the losses, as LinearSVC's C; in place of --lam."),
]
MultiClass = Annotated[
    str,
    _option(
        "--multi-class",
        panel=ALGORITHM,
        help="With several classes: ovr, one output a class, or ovo, one for every two (for classes that overlap).",
    ),
]
Algorithm = Annotated[
    str,
    _option(
        "--algorithm",
        "-a",
        panel=ALGORITHM,
        help="auto: pdmm, or gadget on directed graphs. gadget: the paper's Algorithm 2 with one exchange per "
        "iteration; gadget-as-printed: with Push-Sum restarted in each. Also asgd, mom-dsvm, gadget-2ps.",
    ),
]
Gossip = Annotated[
    str | None,
    _option("--gossip", panel=ALGORITHM, help="How vectors are averaged: push-sum, diffusion, pairwise, running-sum."),
]
Rounds = Annotated[
    str | None, _option("--rounds", panel=ALGORITHM, help="Gossip rounds in an iteration: a number, mix or diameter.")
]
LocalSteps = Annotated[int | None, _option("--local-steps", panel=ALGORITHM, help="Local steps between two gossips.")]
BatchSize = Annotated[int | None, _option("--batch-size", panel=ALGORITHM, help="Examples in a local step.")]
Average = Annotated[
    bool | None,
    _option("--average/--last", panel=ALGORITHM, help="Answer with the averaged iterates (default) or the last ones."),
]
Project = Annotated[
    bool | None,
    _option("--project/--no-project", panel=ALGORITHM, help="Whether to project into the ball, steps (f) and (h)."),
]
Intercept = Annotated[
    bool | None,
    _option(
        "--intercept/--no-intercept",
        panel=ALGORITHM,
        help="A constant feature that travels with the weights. Default: off for the paper's data sets "
        "(the paper has no bias), on for all other data.",
    ),
]
Settings = Annotated[
    list[str] | None,
    _option("--set", panel=ALGORITHM, metavar="NAME=VALUE", help="Any other setting of the algorithm. Repeatable."),
]
Seed = Annotated[
    int,
    typer.Option("--seed", callback=whole_seed, rich_help_panel=ALGORITHM, help="Same seed, same result, bit for bit."),
]
Jobs = Annotated[
    int | None,
    _option(
        "--threads", "-j", "--jobs", panel=ALGORITHM, help="Threads; the result does not depend on them. Default: all."
    ),
]

Engine = Annotated[
    str, _option("--engine", panel=ENGINE, help="local: in this process. ray: on a Ray cluster, with the same result.")
]
EngineOption = Annotated[
    list[str] | None,
    _option(
        "--engine-option",
        panel=ENGINE,
        metavar="NAME=VALUE",
        help="For ray: address, actors, num_cpus, timeout, checkpoint_dir, resume and others, see "
        "docs/reference/ray.md; for local: blocks. Repeatable.",
    ),
]
RequireAllRows = Annotated[
    bool,
    _option(
        "--require-all-rows",
        panel=ENGINE,
        help="Exit with code 3 if nodes were lost with their rows. Default: a model of the other rows is a success.",
    ),
]
Address = Annotated[
    str | None,
    _option("--address", panel=ENGINE, help="For ray: the cluster, such as auto or 10.0.0.5:6379."),
]
Actors = Annotated[int | None, _option("--actors", panel=ENGINE, help="For ray: how many actors share the nodes.")]
CheckpointDir = Annotated[
    str | None, _option("--checkpoint-dir", panel=ENGINE, metavar="DIR", help="For ray: a folder for checkpoints.")
]
Resume = Annotated[
    str | None,
    _option(
        "--resume",
        panel=ENGINE,
        metavar="auto|true|false",
        help="For ray, with --checkpoint-dir: auto continues from a checkpoint if there is one, true insists on it.",
    ),
]

Stopping = Annotated[
    str | None,
    _option(
        "--stopping",
        panel=STOP,
        help="gap: the nodes certify that a model is at most --tol (0.01) above the optimum; the default with pdmm and "
        "mom-dsvm. Else what must come to rest: average (default), weights (the paper's rule), "
        "objective (default with --last). Or none.",
    ),
]
Tol = Annotated[float | None, _option("--tol", panel=STOP, help="The rule's tolerance. Default: the rule's own.")]
MaxIter = Annotated[int, _option("--max-iter", panel=STOP, help="At most so many iterations.")]
MaxSeconds = Annotated[float | None, _option("--max-seconds", panel=STOP, help="At most so much training time.")]

Drop = Annotated[
    float | None, _option("--drop", panel=FAULTS, metavar="P", help="Each message is lost with this probability.")
]
Fault = Annotated[
    list[str] | None,
    _option(
        "--fault",
        panel=FAULTS,
        metavar="NAME=VALUE",
        help="loss=P, bounce=P, delay=N, partition=T, churn=P, slow=N, async=P; several values as JSON: "
        """'crash={"nodes": [3], "at": 100}'. Repeatable.""",
    ),
]

Json = Annotated[bool, _option("--json", panel=OUTPUT, help="One JSON object on stdout, and nothing else.")]
Out = Annotated[
    str | None,
    _option(
        "--out",
        "-o",
        panel=OUTPUT,
        metavar="DIR",
        help="A folder or URI for model.safetensors, history.jsonl, summary.json.",
    ),
]
Report = Annotated[
    str | None,
    _option("--report", panel=OUTPUT, metavar="PATH", help="An HTML report, one file that opens offline."),
]
RecordEvery = Annotated[
    int | None,
    _option("--record-every", panel=OUTPUT, help="Iterations between records. Default: ever rarer; 0: only the last."),
]
Quiet = Annotated[bool, _option("--quiet", "-q", panel=OUTPUT, help="No progress and no remarks.")]
