"""`gadget peer simulate`: real peers' code in a simulated network. Owns the options and what is printed."""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gadget_svm.cli.options import command_for, option_field, require_packages

if TYPE_CHECKING:
    from gadget_svm.peers.world import Result, Scenario

SCENARIO_HELP = "A scenario's name, or a .toml file. 'list' shows all. Default: a network of --peers without faults."
SECONDS_BETWEEN_LINES = 5.0
LONGEST_LATENCY_S = 60.0
NETWORK = ("latency", "bandwidth", "loss", "rows", "features", "tick")
"""Options of a network that is no scenario."""
FIGURES = ("seconds", "models_after", "certified_after", "ticks", "messages", "nbytes", "cpu")


@dataclass(frozen=True)
class SimulateRequest:
    """The arguments as typed."""

    scenario: Annotated[str | None, typer.Argument(metavar="SCENARIO", help=SCENARIO_HELP)] = None
    peers: int | None = option_field("--peers", "-n", min=1, help="Number of peers. Default: the scenario's, or 10.")
    latency: str = option_field("--latency", default="wan", help="wan (50 ms), lan, or seconds one way.")
    bandwidth: float = option_field(
        "--bandwidth", default=100e6, min=1, help="Bits per second that each site can send."
    )
    loss: float = option_field("--loss", default=0.0, min=0, max=0.9, help="The probability that a message is lost.")
    rows: int = option_field("--rows", default=100, min=20, help="Generated rows of each site.")
    features: int = option_field("--features", default=20, min=1, help="Features of the generated rows.")
    tick: float = option_field("--tick", default=0.25, min=0.001, help="Least seconds between two ticks.")
    seed: int = option_field("--seed", default=0, min=0, help="One history.")
    seeds: str | None = option_field("--seeds", metavar="A:B", help="Many histories: seeds A to B - 1.")
    processes: int = option_field("--processes", "-j", default=1, min=1, help="Runs at a time.")
    json: bool = option_field("--json", default=False, help="Print one JSON value on stdout, and nothing else.")
    report: str | None = option_field("--report", metavar="PATH", help="An HTML report, one file that opens offline.")
    trace: bool = option_field("--trace", default=False, help="Print every event.")


@command_for(SimulateRequest)
def simulate(request: SimulateRequest) -> None:
    """Simulate peers: seconds, bytes and ticks until a certified model; also with faults, as scenarios describe them.

    Exits with 1 if anything is not as it must be; the failing seed's command repeats it.
    """
    require_packages("peers", "google.protobuf")
    from gadget_svm.cli.output import place
    from gadget_svm.report import require_plotly

    if request.scenario == "list":
        _show_list()
        return
    if request.report is not None:
        require_plotly()
        place(request.report)
    plan, seeds = _plan(request), _seeds(request)
    results = []
    for result in _runs(request, plan, seeds):
        results.append(result)
        if not request.json and (result.failure or len(seeds) <= 20):
            _show(request, result)
    if request.json:
        typer.echo(dumps([_row(result) for result in results], allow_nan=False))
    elif len(results) > 1:
        _show_summary(results)
    if request.report is not None:
        _write_report(request, plan, results)
    if any(result.failure for result in results):
        raise typer.Exit(1)


def _plan(request: SimulateRequest) -> "Scenario":
    from dataclasses import replace

    from gadget_svm.peers.world import load, network_plan

    typed = _typed(request)
    if request.scenario is not None:
        plan = load(request.scenario)
        if others := [f"--{name}" for name in NETWORK if name in typed]:
            raise ValueError(
                f"{', '.join(others)}: a scenario says that itself; leave {request.scenario} out, or edit it"
            )
        return plan if request.peers is None else replace(plan, peers=(request.peers, request.peers))
    try:
        latency: float | str = float(request.latency)
    except ValueError:
        latency = request.latency
    if latency not in ("wan", "lan") and (isinstance(latency, str) or not 0 <= latency < LONGEST_LATENCY_S):
        raise ValueError(f"--latency {latency}: give wan, lan, or seconds such as 0.02")
    return network_plan(
        request.peers or 10, latency=latency, bandwidth=request.bandwidth / 8, loss=request.loss, rows=request.rows,
        features=request.features, tick=request.tick,
    )  # fmt: skip


def _seeds(request: SimulateRequest) -> range:
    if request.seeds is None:
        return range(request.seed, request.seed + 1)
    if request.seed:
        raise ValueError(f"--seed {request.seed} and --seeds {request.seeds}: give one of them")
    first, colon, last = request.seeds.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise ValueError(f"--seeds {request.seeds}: give a range such as 0:100")
    return range(int(first), int(last))


def _runs(request: SimulateRequest, plan: "Scenario", seeds: range) -> Iterator["Result"]:
    """Run every seed, with signs of progress on stderr."""
    import time

    from gadget_svm.peers.world import run, run_many

    shown = time.monotonic()

    def tell(record: dict[str, float]) -> None:
        nonlocal shown
        if time.monotonic() - shown > SECONDS_BETWEEN_LINES and not request.json:
            shown = time.monotonic()
            done = f"{record['seconds']:.0f} simulated seconds, {record['certified']:.0f} peers certified"
            typer.echo(f"{done}, {100 * record['excess']:.3g} % above the optimum", err=True)

    if len(seeds) == 1 or request.trace:
        for seed in seeds:
            yield run(plan, seed, request.trace, record=tell if len(seeds) == 1 else False)
        return
    failed = 0
    for done, result in enumerate(run_many(plan, seeds, request.processes), 1):
        failed += bool(result.failure)
        if time.monotonic() - shown > SECONDS_BETWEEN_LINES and not request.json:
            shown = time.monotonic()
            typer.echo(f"{done:,} of {len(seeds):,} seeds, {failed:,} failed", err=True)
        yield result


def _row(result: "Result") -> dict[str, Any]:
    row = {key: value for key, value in asdict(result).items() if key != "nbytes" and (key != "trace" or value)}
    return row | {"bytes": result.nbytes, "ok": result.ok}


def _show(request: SimulateRequest, result: "Result") -> None:
    from gadget_svm.report.formatting import count, size

    if request.trace:
        sys.stdout.write("".join(f"{line}\n" for line in result.trace))
    facts = (
        f"{result.scenario}, seed {result.seed}: {result.peers:,} peer{'s' * (result.peers != 1)}, models within the "
        f"tolerance {_after(result.models_after)}, certified {_after(result.certified_after)}; "
        f"{count(result.ticks)} ticks, {count(result.messages)} messages, {size(result.nbytes)} "
        f"({size(result.nbytes / result.peers)} a peer); {result.cpu:.2f} s of CPU"
    )
    typer.echo(facts)
    if result.failure:
        typer.echo(f"FAILED: {result.failure}\nrepeat it: {_command(request, result.seed)}")


def _command(request: SimulateRequest, seed: int) -> str:
    words = ["gadget peer simulate", request.scenario or ""]
    words += [f"--{name} {value}" for name, value in _typed(request).items() if name in ("peers", *NETWORK)]
    return " ".join(filter(None, [*words, f"--seed {seed} --trace"]))


def _after(seconds: float | None) -> str:
    from gadget_svm.report.formatting import number

    return "never" if seconds is None else f"after {number(seconds, 4)} s"


def _typed(request: SimulateRequest) -> dict[str, Any]:
    """Return the arguments that differ from their defaults."""
    given = {field.name: getattr(request, field.name) for field in fields(request)}
    return {name: value for name, value in given.items() if value != getattr(SimulateRequest, name, None)}


def _show_summary(results: list["Result"]) -> None:
    from statistics import median

    from gadget_svm.report.formatting import number

    failed = [result for result in results if result.failure]
    typer.echo(f"{len(results):,} seeds, {len(failed):,} failed")
    for name in FIGURES:
        values = [value for result in results if (value := getattr(result, name)) is not None]
        if values:
            spread = f"median {number(median(values), 4)}, at most {number(max(values), 4)}"
            typer.echo(f"  {name.replace('nbytes', 'bytes').replace('_', ' ')}: {spread}")


def _show_list() -> None:
    from gadget_svm.peers.world import load, names

    for name in names():
        typer.echo(f"{name:20} {load(name).title}")


def _write_report(request: SimulateRequest, plan: "Scenario", results: list["Result"]) -> None:
    from gadget_svm.peers.world import run
    from gadget_svm.report.simulated_peers import write_simulation_report

    first = results[0]
    history = first.history or run(plan, first.seed, record=True).history
    where = write_simulation_report(
        str(request.report), title=f"Simulated peers: {plan.title or plan.name}", facts=_facts(plan), history=history,
        results=[_row(result) for result in results],
    )  # fmt: skip
    typer.echo(f"report: {where}", err=request.json)


def _facts(plan: "Scenario") -> dict[str, Any]:
    """Return what a scenario says, without what does not occur in it."""
    said = asdict(plan)
    faults = Counter(fault["kind"] for fault in said.pop("faults"))
    parts = {part: said.pop(part) for part in ("data", "links", "disks", "settings", "study")}
    said |= {f"{part}: {key}": value for part, values in parts.items() for key, value in values.items()}
    said["faults"] = ", ".join(faults)
    return {key: _plain(value) for key, value in said.items() if value not in ("", (0, 0), 0) and key != "wire"}


def _plain(value: Any) -> Any:
    """Return a range of one value as that value, and another one as text."""
    if not isinstance(value, tuple) or len(value) != 2:
        return value
    return value[0] if value[0] == value[1] else f"{value[0]:g} to {value[1]:g}"
