"""The options of `gadget train`; `train_run` does the work."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from gadget_svm.cli.options import DATA, DataDir, Format, Label, Positive, command_for, option_field

_data, _network, _learning = (partial(option_field, panel=panel) for panel in (DATA, "Network", "Algorithm"))
_privacy = partial(option_field, panel="Privacy")
_where, _stop = partial(option_field, panel="Where it runs"), partial(option_field, panel="When to stop")
_faults, _output = partial(option_field, panel="Faults"), partial(option_field, panel="Output")

Engine = StrEnum("Engine", "local ray")
MultiClass = StrEnum("MultiClass", "ovr ovo")
Resume = StrEnum("Resume", "auto true false")
Scaling = StrEnum("Scaling", {"none": "none", "deviation": "deviation", "max_abs": "max-abs"})

PAIR = "NAME=VALUE"
DATA_HELP = (
    "A named data set (see: gadget data list) or a file: svmlight, CSV, Parquet, npz; - is stdin. Several files are "
    "shards, one per node; with --engine ray the actors read them. Files may be URIs (s3://, https://, ...), and "
    "part-{0..9}.svm means ten files."
)
PARTITION_HELP = "Rows per node: even, sorted, label-skew:0.1 or sizes:1,2."
SCALE_HELP = "How features are scaled, by statistics of the training rows. The saved model takes unscaled rows."
TOPOLOGY_HELP = "The graph, such as ring, torus:5x4, random-regular:4 (the default's degree) or k-out:20."
ALGORITHM_HELP = (
    "auto: pdmm, or gadget on directed graphs. gadget: the paper's Algorithm 2 with one exchange per iteration; "
    "gadget-as-printed: Push-Sum is restarted in every iteration. Also asgd, mom-dsvm, gadget-2ps."
)
MULTI_CLASS_HELP = "ovr: an output per class; ovo: per pair."
INTERCEPT_HELP = "Default: no for the paper's data sets (the paper has none), yes for other data."
ENGINE_HELP = (
    "For ray: address, actors, num_cpus, timeout, checkpoint_dir, resume and others, see docs/reference/ray.md; "
    "for local: blocks. Repeatable."
)
RESUME_HELP = "With --checkpoint-dir: auto continues from a checkpoint if there is one, true requires one."
ALL_ROWS_HELP = "Exit with code 3 if nodes were lost with their rows. Default: a model of the other rows is a success."
STOPPING_HELP = (
    "gap: train until the nodes certify that the objective is at most --tol (0.01) above the optimum; the default with "
    "pdmm and mom-dsvm. average (the default otherwise), weights (the paper's rule), objective (the default with "
    "--last): train until this no longer changes. Or none."
)
FAULTS_HELP = (
    "loss=P, bounce=P, delay=N, partition=T, churn=P, flapping=NODE, slow=N, async=P; wrong messages from a node or a "
    "share of the nodes: sign-flip, constant, zeros, little-is-enough, false-counts=P; several values as JSON: "
    """'crash={"nodes": [3], "at": 100}'. Repeatable."""
)


RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
MAX_SHARDS = 100_000


def expand_ranges(typed: list[str]) -> list[str]:
    """Expand part-{0..9}.svm as bash does: other shells may not, and a cluster job runs without a shell."""
    return [name for each in typed for name in _expanded(each)]


def _expanded(name: str) -> list[str]:
    found = RANGE.search(name)
    if found is None:
        return [name]
    first, last = found[1], found[2]
    step = 1 if int(first) <= int(last) else -1
    numbers = range(int(first), int(last) + step, step)
    if len(numbers) > MAX_SHARDS:
        raise ValueError(f"{name} means {len(numbers):,} names: no more than {MAX_SHARDS:,} are allowed")
    padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return expand_ranges([f"{name[: found.start()]}{number:0{width}}{name[found.end() :]}" for number in numbers])


@dataclass(frozen=True)
class TrainRequest:
    """The arguments of one training as typed; None where an option was not given.

    A field has the name of the estimator's or algorithm's parameter that it sets, where there is one.
    """

    data: Annotated[list[str], typer.Argument(metavar="DATA", callback=expand_ranges, help=DATA_HELP)]
    test: str | None = _data("--test", metavar="PATH", help="A file or URI with test rows. Named data sets have some.")
    positive: Positive = None
    label: Label = None
    format: Format = None
    data_dir: DataDir = None
    partition: str = _data("--partition", default="even", help=PARTITION_HELP)
    scale: Scaling = _data("--scale", default=Scaling.none, help=SCALE_HELP)
    n_nodes: int | None = _network("--nodes", "-n", min=1, help="Nodes. Default: min(10, rows), or one per shard.")
    topology: str = _network("--topology", "-t", default="random-regular", help=TOPOLOGY_HELP)
    lam: float | None = _learning("--lam", "--lambda", help="Regularisation weight. Default: the paper's, else 1e-4.")
    C: float | None = _learning("--C", help="The weight of the losses, as LinearSVC's C; replaces --lam.")
    multi_class: MultiClass = _learning("--multi-class", default=MultiClass.ovr, help=MULTI_CLASS_HELP)
    algorithm: str = _learning("--algorithm", "-a", default="auto", help=ALGORITHM_HELP)
    gossip: str | None = _learning("--gossip", help="Protocol: push-sum, diffusion, pairwise or running-sum.")
    gossip_rounds: str | None = _learning("--rounds", help="Gossip rounds per iteration: a number, mix or diameter.")
    local_steps: int | None = _learning("--local-steps", help="Local steps between two gossip exchanges.")
    batch_size: int | None = _learning("--batch-size", help="Examples per local step.")
    average: bool | None = _learning("--average/--last", help="Return averaged iterates (default) or the last ones.")
    project: bool | None = _learning("--project/--no-project", help="Project into the ball, steps (f) and (h).")
    fit_intercept: bool | None = _learning("--intercept/--no-intercept", help=INTERCEPT_HELP)
    settings: list[str] | None = _learning("--set", metavar=PAIR, help="A parameter of the algorithm. Repeatable.")
    epsilon: float | None = _privacy("--epsilon", help="A budget of differential privacy per row; 1 is strong.")
    delta: float | None = _privacy("--delta", help="The budget's delta, far below 1 / rows. Default: 1e-6.")
    clip: float | None = _privacy("--clip", help="The largest norm of a row; longer ones are scaled down. Default: 1.")
    random_state: int = _learning(
        "--seed", default=0, min=0, help="The same seed gives the same bits, except with --epsilon."
    )
    topology_seed: int | None = _network("--topology-seed", min=0, help="Seed of a random graph. Default: --seed.")
    partition_seed: int | None = _data("--partition-seed", min=0, help="Seed of --partition. Default: --seed.")
    n_jobs: int | None = _learning("--threads", "-j", "--jobs", min=-1, help="Threads; they do not change the result.")
    engine: Engine = _where("--engine", default=Engine.local, help="local: this process; ray: a cluster. Same result.")
    engine_options: list[str] | None = _where("--engine-option", metavar=PAIR, help=ENGINE_HELP)
    address: str | None = _where("--address", help="For ray: the cluster, such as auto or 10.0.0.5:6379.")
    actors: int | None = _where("--actors", help="For ray: the number of actors that share the nodes.")
    checkpoint_dir: str | None = _where("--checkpoint-dir", metavar="DIR", help="For ray: a folder for checkpoints.")
    resume: Resume | None = _where("--resume", help=RESUME_HELP)
    require_all_rows: bool = _where("--require-all-rows", default=False, help=ALL_ROWS_HELP)
    stopping: str | None = _stop("--stopping", help=STOPPING_HELP)
    tol: float | None = _stop("--tol", help="Tolerance of the stopping rule. Default: the rule's own.")
    max_iter: int = _stop("--max-iter", default=10_000, help="Maximum number of iterations.")
    max_seconds: float | None = _stop("--max-seconds", help="Maximum training time.")
    drop: float | None = _faults("--drop", metavar="P", min=0, max=1, help="The probability that a message is lost.")
    faults: list[str] | None = _faults("--fault", metavar=PAIR, help=FAULTS_HELP)
    json: bool = _output("--json", default=False, help="Print one JSON object on stdout, and nothing else.")
    out: str | None = _output("--out", "-o", metavar="DIR", help="A folder or URI for model, history and summary.")
    report: str | None = _output("--report", metavar="PATH", help="An HTML report, one file that opens offline.")
    record_every: int | None = _output("--record-every", help="Iterations between records; 0: only the last.")
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


@command_for(TrainRequest)
def train(request: TrainRequest) -> None:
    """Train a network of nodes. Ctrl-C and SIGTERM stop it cleanly and keep the models so far (exit codes 130, 143)."""
    from gadget_svm.cli.train_run import run_training

    raise typer.Exit(run_training(request))
